"""kfext beside other systems: each does its task, and no job is stuck."""

import json
from collections.abc import Callable, Iterator

import pytest

from e2e.harness import nodes
from e2e.harness.jobs import gated, held, job, pinned_to, specs, suspended, workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.kube import Object
from e2e.harness.pods import admit_pods, refuse_pods
from e2e.harness.space import CASE, Space, set_managed
from e2e.harness.stand_in import standing_in
from e2e.harness.stopping import autoscaler_seen
from e2e.testbed import training_operator
from e2e.testbed.cluster import Testbed
from kfext.names import (
    HELD,
    KUEUE_QUEUE,
    NEW_NODES_NAMESPACE,
    PLACEHOLDER_OF,
    PLAN,
    REASON_NOT_MANAGED,
    RELEASED,
)

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}
JOBS = {"apiGroups": ["kubeflow.org"], "apiVersions": ["v1"], "resources": ["pytorchjobs"]}
POOL = "example.com/flavor"


# --- Kueue ----------------------------------------------------------------------------------------


def default_queue(job: Object) -> list[Object]:
    """Act as Kueue's webhook in a namespace with a default LocalQueue: label and suspend."""
    if KUEUE_QUEUE in job["metadata"].get("labels", {}):
        return []
    labels = {**job["metadata"].get("labels", {}), KUEUE_QUEUE: "default"}
    policy = {**job["spec"].get("runPolicy", {}), "suspend": True}
    return [
        {"op": "add", "path": "/metadata/labels", "value": labels},
        {"op": "add", "path": "/spec/runPolicy", "value": policy},
    ]


@pytest.fixture
def queueing(space: Space, kfext: Kfext) -> Iterator[Space]:
    """A namespace where jobs get Kueue's label after kfext's webhook has seen them."""

    def labelled() -> bool:
        answer = space.try_submit(workers("trial", 1), query="?dryRun=All")
        return KUEUE_QUEUE in answer.body["metadata"].get("labels", {})

    with standing_in(
        kfext.testbed,
        kfext.kube,
        name="kueue-mutating-webhook-configuration",
        namespace=space.name,
        rule=JOBS,
        mutate=default_queue,
        effective=labelled,
    ):
        yield space


def admit(space: Space, name: str, *, flavor: str) -> None:
    """Act as Kueue when it admits a job: add node labels to the templates, and unsuspend it."""
    stored = space.job(name)
    for spec in specs(stored).values():
        spec["template"]["spec"].setdefault("nodeSelector", {})[POOL] = flavor
    patch = {"runPolicy": {"suspend": False}, "pytorchReplicaSpecs": specs(stored)}
    space.patch_job(name, {"spec": patch})


def evict(space: Space, name: str) -> None:
    """Act as Kueue when it withdraws a job's quota."""
    space.patch_job(name, {"spec": {"runPolicy": {"suspend": True}}})


def set_flavor(space: Space, members: list[str], flavor: str) -> None:
    """Give nodes the label of a Kueue ResourceFlavor."""
    for node in members:
        nodes.label(space.kfext, node, {POOL: flavor})


def test_a_job_that_gets_kueues_label_after_kfexts_webhook_is_not_held(queueing: Space) -> None:
    stored = queueing.submit(workers("late", 4, each=GPU))
    assert suspended(stored), "Kueue suspends the job"
    assert not held(stored), "kfext does not hold the job"
    queueing.phase("late", "Suspended")
    other = workers("plain", 2, each=GPU, labels={KUEUE_QUEUE: "mine"})
    assert not suspended(queueing.submit(other))  # the stand-in ignores labelled jobs
    queueing.bound("plain", 2)
    assert suspended(queueing.job("late"))
    assert queueing.starts() == 0  # kfext has unsuspended no job


def test_a_job_that_kueue_admits_is_placed_together_on_the_nodes_that_kueue_chose(
    queueing: Space,
) -> None:
    space = queueing
    larger = space.nodes(3, cpu="32", memory="64Gi", gpu="8")
    chosen = space.nodes(2, cpu="32", memory="64Gi", gpu="4")
    set_flavor(space, larger, "spot")
    set_flavor(space, chosen, "reserved")
    sent = space.submit(workers("late", 4, each=GPU, annotations={"kfext.dev/network": "host"}))
    space.phase("late", "Suspended")
    admit(space, "late", flavor="reserved")
    nodes_by_pod = space.bound("late", 4)
    # kfext assigns no host ports, because Kueue does not know them.
    assert not any(pod["spec"].get("hostNetwork") for pod in space.pods("late"))
    space.until(
        lambda: "PodNetwork" in {event["reason"] for event in space.events("late")},
        "an event tells the user that the job keeps the pod network",
    )
    assert len(set(nodes_by_pod.values())) == 1
    assert set(nodes_by_pod.values()) <= set(chosen)
    assert space.pins() == dict.fromkeys(nodes_by_pod, 1)
    space.phase("late", "Placed")
    # Kueue would evict the job if replicas or resources changed.
    for type_, spec in specs(space.job("late")).items():
        before = specs(sent)[type_]
        assert spec["replicas"] == before["replicas"]
        for container, other in zip(
            spec["template"]["spec"]["containers"],
            before["template"]["spec"]["containers"],
            strict=True,
        ):
            assert container["resources"] == other["resources"]
    assert space.starts() == 0


def test_a_job_that_kueue_admits_without_capacity_is_gated_and_not_suspended(
    queueing: Space,
) -> None:
    space = queueing
    (node,) = space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    set_flavor(space, [node], "only")
    space.take_gpus("thief", node, 3)
    space.submit(workers("late", 4, each=GPU))
    space.phase("late", "Suspended")
    admit(space, "late", flavor="only")
    space.phase("late", "Gated")
    assert not suspended(space.job("late"))
    assert all(gated(pod) for pod in space.pods("late"))
    space.kube.delete(space.path("pods", "thief"), grace=0)
    nodes_by_pod = space.bound("late", 4)
    assert set(nodes_by_pod.values()) == {node}
    assert space.pins() == dict.fromkeys(nodes_by_pod, 1)


def test_a_job_that_kueue_evicts_waits_for_kueue_and_is_placed_again(queueing: Space) -> None:
    space = queueing
    set_flavor(space, space.nodes(1, cpu="32", memory="64Gi", gpu="4"), "first")
    set_flavor(space, space.nodes(1, cpu="32", memory="64Gi", gpu="4"), "second")
    space.submit(workers("late", 4, each=GPU))
    space.phase("late", "Suspended")
    admit(space, "late", flavor="first")
    first = set(space.bound("late", 4).values())
    evict(space, "late")
    space.until(lambda: not space.pods("late", ending=True), "its pods are gone")
    space.phase("late", "Suspended")
    # kfext uses the free capacity for other jobs, but not for this job.
    space.submit(workers("other", 2, each=GPU, labels={KUEUE_QUEUE: "mine"}))
    space.bound("other", 2)
    assert suspended(space.job("late"))
    space.kube.delete(space.path("pytorchjobs", "other"))
    space.until(lambda: not space.pods("other", ending=True), "the other is deleted")
    admit(space, "late", flavor="second")
    second = set(space.bound("late", 4).values())
    assert first.isdisjoint(second)
    assert not suspended(space.job("late"))


# --- other schedulers -----------------------------------------------------------------------------


GANG_SCHEDULER = "scheduler-plugins-scheduler"
POD_GROUPS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "podgroups.scheduling.x-k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in"},
    },
    "spec": {
        "group": "scheduling.x-k8s.io",
        "scope": "Namespaced",
        "names": {"kind": "PodGroup", "plural": "podgroups"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


@pytest.fixture
def gang_mode(testbed: Testbed) -> Iterator[str]:
    """The training-operator creates PodGroups, and assigns its pods to another scheduler."""
    testbed.api.apply(POD_GROUPS)
    testbed.restart_process("training-operator", more=[f"--gang-scheduler-name={GANG_SCHEDULER}"])
    training_operator.wait_ready(testbed)
    yield GANG_SCHEDULER
    testbed.restart_process("training-operator")
    training_operator.wait_ready(testbed)


def bind(space: Space, pods: list[Object], node: str) -> None:
    for pod in pods:
        name = pod["metadata"]["name"]
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        space.kube.create(space.path("pods", f"{name}/binding"), body)


@pytest.mark.parametrize("held_before", [True, False], ids=["a held job", "a job of plain pods"])
def test_pods_of_a_gang_scheduler_are_neither_gated_nor_pinned(
    space: Space, gang_mode: str, held_before: bool
) -> None:
    (node,) = space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    settings = {} if held_before else {"kfext.dev/colocation": "off"}
    stored = space.submit(workers("gang", 4, each=GPU, annotations=settings))
    assert held(stored) is held_before
    pods = space.until(lambda: len(p := space.pods("gang")) == 4 and p, "its pods exist")
    assert {pod["spec"]["schedulerName"] for pod in pods} == {gang_mode}
    assert not any(gated(pod) or pinned_to(pod) for pod in pods)
    bind(space, pods, node)
    assert set(space.bound("gang", 4).values()) == {node}
    if held_before:
        space.phase("gang", "Placed")
    assert space.pins() == {}
    assert {p["metadata"]["uid"] for p in space.pods("gang")} == {
        p["metadata"]["uid"] for p in pods
    }


def test_a_job_of_two_schedulers_is_not_held_and_its_gated_pods_are_bound(space: Space) -> None:
    # How long kfext waits for pods of another scheduler before it plans without their nodes.
    space.policy(placement={"bindTimeout": "5s"})
    (node,) = space.nodes(1, cpu="32", memory="64Gi", gpu="8")
    mixed = job("mixed", {"PS": 1, "Worker": 3}, kind="TFJob", each=GPU)
    specs(mixed)["PS"]["template"]["spec"]["schedulerName"] = "volcano"
    assert not suspended(space.submit(mixed))
    pods = space.until(lambda: len(p := space.pods("mixed")) == 4 and p, "its pods exist")
    (foreign,) = (pod for pod in pods if pod["spec"]["schedulerName"] == "volcano")
    assert not gated(foreign)
    assert not pinned_to(foreign)

    def bound_workers() -> int:
        nodes_by_pod = space.nodes_by_pod("mixed")
        return sum(bool(home) for name, home in nodes_by_pod.items() if "worker" in name)

    space.patiently(lambda: bound_workers() == 3, seconds=120)  # the PS is not bound yet
    bind(space, [foreign], node)
    space.bound("mixed", 4)


# --- rules of the cluster -------------------------------------------------------------------------


def test_what_kfext_injects_is_refused_neither_by_pod_security_nor_by_a_quota(
    new_space: Callable[..., Space],
) -> None:
    space = new_space()
    strict = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    space.label(strict)
    each = {"cpu": "1", "memory": "1Gi"}
    limits = {"pods": 3, "requests.cpu": 3, "limits.cpu": 3}
    limits |= {"requests.memory": "3Gi", "limits.memory": "3Gi"}  # type: ignore[dict-item]
    body = {"metadata": {"name": "exact"}, "spec": {"hard": limits}}
    path = f"/api/v1/namespaces/{space.name}/resourcequotas"
    space.kube.create(path, {"apiVersion": "v1", "kind": "ResourceQuota", **body})
    space.until(lambda: space.kube.get(f"{path}/exact").get("status"), "the quota is in force")

    manifest = job("strict", {"PS": 1, "Worker": 2}, kind="TFJob", each=each)
    for spec in specs(manifest).values():
        pod = spec["template"]["spec"]
        pod["securityContext"] = {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        pod["containers"][0]["securityContext"] = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
    answer = space.try_submit(manifest)
    assert answer.ok
    assert answer.warnings == ()
    nodes_by_pod = space.bound("strict", 3)
    assert space.pins() == dict.fromkeys(nodes_by_pod, 1)
    events = space.kube.items(f"/api/v1/namespaces/{space.name}/events")
    assert [event["message"] for event in events if event["reason"] == "FailedCreatePod"] == []
    assert space.starts() == 1


# --- the label of the namespace -------------------------------------------------------------------


def test_a_namespace_that_is_switched_off_releases_jobs_of_every_phase_and_holds_no_new_job(
    space: Space,
) -> None:
    (node,) = space.nodes(1, cpu="32", memory="64Gi", gpu="8")
    foreign = {"schedulingGates": [{"name": "example.com/gate"}]}
    space.submit(workers("running", 2, each=GPU))
    space.phase("running", "Placed")
    space.submit(workers("gated", 2, each=GPU, pod=foreign))
    space.phase("gated", "Gated")
    refuse_pods(space)
    space.submit(workers("planned", 2, each=GPU))
    space.phase("planned", "Planned")
    # A single pod that needs the whole node; once released, it cannot use capacity of the others.
    space.submit(workers("queued", 1, each={**GPU, "nvidia.com/gpu": "8"}))
    space.phase("queued", "Queued")

    set_managed(space, None)
    for pod in space.pods("gated"):
        patch = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
        space.kube.patch(space.path("pods", pod["metadata"]["name"]), patch, kind="json")
    space.bound("gated", 2)
    admit_pods(space, "planned")
    # Webhooks no longer see the new pods, so these have no gate. They still prefer the planned
    # nodes, because kfext wrote the preference to the templates.
    assert set(space.bound("planned", 2).values()) == {node}
    for name in ("running", "gated", "planned"):
        space.kube.delete(space.path("pytorchjobs", name))
    space.phase("queued", "Released")
    assert space.job("queued")["metadata"]["annotations"][RELEASED] == REASON_NOT_MANAGED
    assert set(space.bound("queued", 1).values()) == {node}


def test_a_held_job_in_a_namespace_that_is_not_managed_is_released_and_never_planned(
    new_space: Callable[..., Space],
) -> None:
    space = new_space(managed=False)
    space.nodes(2, cpu="32", memory="64Gi", gpu="8")
    copied = workers("copied", 4, each=GPU, annotations={HELD: "true"}, policy={"suspend": True})
    stored = space.submit(copied)
    assert suspended(stored)
    assert held(stored)
    space.bound("copied", 4)
    annotations = space.job("copied")["metadata"]["annotations"]
    assert annotations[RELEASED] == REASON_NOT_MANAGED
    assert annotations.keys().isdisjoint({HELD, PLAN})
    assert space.pins() == {}


def test_a_namespace_that_is_switched_on_leaves_running_jobs_where_they_are(
    new_space: Callable[..., Space],
) -> None:
    space = new_space(managed=False)
    space.nodes(2, cpu="32", memory="64Gi", gpu="8")
    space.submit(workers("before", 4, each=GPU))
    nodes_by_pod = space.bound("before", 4)
    set_managed(space, "true")
    space.submit(workers("after", 4, each=GPU))
    space.phase("after", "Placed")
    assert space.bound("before", 4) == nodes_by_pod
    assert space.view("before") == {}
    # A recreated pod is gated, and must not wait without end.
    (victim,) = (name for name in nodes_by_pod if "master" not in name and name.endswith("-0"))
    old = space.kube.get(space.path("pods", victim))["metadata"]["uid"]
    space.kube.delete(space.path("pods", victim), grace=0)
    space.until(
        lambda: (p := space.kube.find(space.path("pods", victim))) and p["metadata"]["uid"] != old,
        "the operator recreates it",
    )
    now = space.bound("before", 4)
    assert {n: h for n, h in now.items() if n != victim} == {
        n: h for n, h in nodes_by_pod.items() if n != victim
    }


def test_switching_off_and_on_again_changes_nothing_for_a_queued_job(space: Space) -> None:
    space.nodes(1, cpu="32", memory="64Gi", gpu="2")
    space.submit(workers("queued", 4, each=GPU))
    space.phase("queued", "Queued")
    set_managed(space, None)
    set_managed(space, "true")
    assert suspended(space.job("queued"))
    assert held(space.job("queued"))
    space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    nodes_by_pod = space.bound("queued", 4)
    assert space.pins() == dict.fromkeys(nodes_by_pod, 1)


# --- autoscalers ----------------------------------------------------------------------------------


def test_a_gang_starts_on_a_node_that_arrives_before_its_release(space: Space) -> None:
    space.policy(placement={"releaseAfter": "10m"})
    space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("big", 8, each=GPU))
    view = space.phase("big", "Queued")
    assert "released to plain Kubernetes after 600 s" in view["message"]
    (node,) = space.nodes(1, cpu="32", memory="64Gi", gpu="8")
    nodes_by_pod = space.bound("big", 8)
    assert set(nodes_by_pod.values()) == {node}
    assert space.pins() == dict.fromkeys(nodes_by_pod, 1)
    assert RELEASED not in space.job("big")["metadata"]["annotations"]


def test_a_released_job_has_plain_pods_that_an_autoscaler_can_add_nodes_for(space: Space) -> None:
    space.policy(placement={"releaseAfter": "1s"})
    space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("big", 8, each=GPU))
    space.phase("big", "Released")

    def refused(pod: Object) -> bool:
        conditions = pod["status"].get("conditions", [])
        return any(c["reason"] == "Unschedulable" for c in conditions if c["status"] == "False")

    pods = space.until(
        lambda: len(pods := space.pods("big")) == 8 and sum(map(refused, pods)) == 4 and pods,
        "kube-scheduler has bound some pods and reported the others",
    )
    # An autoscaler can add nodes for these pods: they have the nodeSelector of the test, but no
    # constraint of kfext that only one node satisfies.
    assert not any(gated(pod) or pinned_to(pod) for pod in pods)
    for pod in pods:
        required = json.dumps(pod["spec"].get("affinity", {})).count('"requiredDuring')
        assert required == 0
        assert pod["spec"]["nodeSelector"] == {CASE: space.name}
    (node,) = space.nodes(1, cpu="32", memory="64Gi", gpu="8")
    nodes_by_pod = space.bound("big", 8)
    assert sum(home == node for home in nodes_by_pod.values()) == 4
    assert space.pins() == {}


@pytest.fixture
def autoscaled(kfext: Kfext) -> Iterator[None]:
    """The controller detects a cluster-autoscaler, which adds no nodes."""
    with autoscaler_seen(kfext.kube):
        kfext.stop_controller()
        kfext.start_controller()
        yield
    kfext.stop_controller()


@pytest.mark.usefixtures("autoscaled")
def test_a_policy_may_have_a_job_released_where_an_autoscaler_runs(space: Space) -> None:
    space.policy(placement={"newNodes": "release"})
    (node,) = space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.take_gpus("thief", node, 3)
    space.submit(workers("big", 4, each=GPU))
    view = space.phase("big", "Queued")
    assert view["reason"] == "NoRoom"  # not TooBig: it would fit the empty cluster
    assert "an autoscaler may add nodes" in view["message"]
    assert "released to plain Kubernetes after 60 s" in view["message"]


@pytest.mark.usefixtures("autoscaled")
def test_a_job_without_capacity_asks_an_autoscaler_and_leaves_no_placeholder(space: Space) -> None:
    (node,) = space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.take_gpus("thief", node, 3)
    space.submit(workers("big", 4, each=GPU))
    uid = space.job("big")["metadata"]["uid"]
    pods = f"/api/v1/namespaces/{NEW_NODES_NAMESPACE}/pods?labelSelector={PLACEHOLDER_OF}={uid}"
    space.until(lambda: len(space.kube.items(pods)) == 4, "a placeholder for each pod")
    assert space.phase("big", "Queued")["reason"] == "WaitingForNodes"
    assert not space.pods("big")
    (other,) = space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    nodes_by_pod = space.bound("big", 4)
    assert set(nodes_by_pod.values()) == {other}
    space.until(lambda: not space.kube.items(pods), "no placeholder is left")
