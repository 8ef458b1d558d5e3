"""The operator or kube-scheduler takes too long: kfext waits for a limited time, and then acts."""

from collections.abc import Callable, Iterable, Mapping

import pytest

from e2e.harness.jobs import gated, held, pinned_to, suspended, workers
from e2e.harness.pods import admit_pods, event_before_list, refuse_pods
from e2e.harness.space import Space
from kfext.names import JOB_NAME, REPLICA_INDEX, REPLICA_TYPE

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}
MERGE = "application/merge-patch+json"
# Anti-affinity between the pods of all jobs, a term that the planner does not model.
APART = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchExpressions": [
                        {"key": "training.kubeflow.org/job-name", "operator": "Exists"}
                    ]},
                }
            ]
        }
    }
}  # fmt: skip


def keep_off(space: Space, nodes: Iterable[str], labels: Mapping[str, str]) -> None:
    """Create pods on all nodes with anti-affinity to these labels, which the planner ignores."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    anti = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    for node in nodes:
        spec = {
            "nodeName": node,
            "affinity": {"podAntiAffinity": anti},
            "containers": [{"name": "guard", "image": "none"}],
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"on-{node}"}, "spec": spec}
        space.kube.create(space.path("pods"), body)


def test_a_gang_that_the_scheduler_refuses_three_times_is_released_with_its_message(
    space: Space,
) -> None:
    nodes = space.nodes(4, cpu="32", memory="64Gi", gpu="4")
    keep_off(space, nodes, {JOB_NAME: "gang"})
    space.policy(placement={"bindTimeout": "3s"})
    space.submit(workers("gang", 2, each=GPU))
    space.phase("gang", "Released")
    note = space.until(
        lambda: [e["note"] for e in space.events("gang") if "3 attempts" in e["note"]],
        "an event reports it",
    )
    assert "didn't satisfy existing pods anti-affinity rules" in note[0]
    space.until(
        lambda: (
            len(pods := space.pods("gang")) == 2
            and not any(gated(pod) or pinned_to(pod) for pod in pods)
        ),
        "plain pods have replaced the pinned pods",
    )
    # Each attempt was on a different node, and the job continues under plain Kubernetes.
    assert not suspended(space.job("gang"))
    assert space.starts() == 1


def test_a_required_gang_that_the_scheduler_refuses_three_times_is_suspended(space: Space) -> None:
    nodes = space.nodes(4, cpu="32", memory="64Gi", gpu="4")
    keep_off(space, nodes, {JOB_NAME: "gang"})
    space.policy(placement={"bindTimeout": "1s"})
    required = {"kfext.dev/colocation": "required"}
    space.submit(workers("gang", 2, each=GPU, annotations=required))
    view = space.until(
        lambda: (
            suspended(space.job("gang"))
            and space.starts()
            and (v := space.view("gang")).get("phase") == "Queued"
            and v
        ),
        "the gang is suspended again",
    )
    space.until(lambda: not space.pods("gang", ending=True), "its pods are gone")
    view = space.until(
        lambda: (v := space.view("gang")).get("reason") == "BindTimeout" and v, "it shows why"
    )
    assert "kube-scheduler reports" in view["message"]


def test_pods_with_unmodelled_anti_affinity_are_bound_to_different_nodes(space: Space) -> None:
    space.nodes(4, cpu="32", memory="64Gi", gpu="4")
    space.policy(placement={"bindTimeout": "1s"})
    space.submit(workers("gang", 3, each=GPU, pod=APART))
    nodes_by_pod = space.until(
        lambda: (h := space.nodes_by_pod("gang")) and len(h) == 3 and all(h.values()) and h,
        "every pod runs",
    )
    assert len(set(nodes_by_pod.values())) == 3


def test_a_required_gang_is_stopped_if_only_some_of_its_pods_can_be_bound(space: Space) -> None:
    nodes = space.nodes(4, cpu="32", memory="64Gi", gpu="4")
    keep_off(space, nodes, {JOB_NAME: "gang", REPLICA_TYPE: "worker", REPLICA_INDEX: "1"})
    space.policy(placement={"bindTimeout": "1s"})
    required = {"kfext.dev/colocation": "required"}
    space.submit(workers("gang", 3, each=GPU, annotations=required))
    space.until(lambda: space.starts() == 1, "the gang is started")
    space.until(lambda: suspended(space.job("gang")), "the gang is suspended again")
    space.until(lambda: not space.pods("gang", ending=True), "its pods are gone")


def test_a_gang_with_refused_pods_is_suspended_and_the_operator_is_quoted(space: Space) -> None:
    refuse_pods(space, create_timeout="2s")
    with event_before_list(space):
        space.submit(workers("gang", 4, each=GPU))
    assert space.starts() == 1
    notes = space.until(
        lambda: [e["note"] for e in space.events("gang") if e["reason"] == "CreateTimeout"],
        "an event says why it was stopped",
    )
    assert "0 of 4 pods exist and no pod was created for 2 s" in notes[0]
    assert "the operator reports:" in notes[0]
    assert "violates PodSecurity" in notes[0]
    stored = space.job("gang")
    assert suspended(stored)
    assert held(stored)
    assert "violates PodSecurity" in stored["metadata"]["annotations"]["kfext.dev/state"]


def crash(space: Space, job: str, crashed: set[str]) -> None:
    """Make each running pod of a job fail, as if its program failed; add its uid to `crashed`."""
    for pod in space.pods(job):
        if pod["status"].get("phase") == "Running":
            crashed.add(pod["metadata"]["uid"])
            path = f"{space.path('pods', pod['metadata']['name'])}/status"
            space.kube.ask("PATCH", path, {"status": {"phase": "Failed"}}, kind=MERGE)


@pytest.mark.parametrize("managed", [False, True], ids=["unmanaged", "managed"])
def test_a_job_that_always_crashes_does_not_delay_the_stop_of_a_refused_gang(
    space: Space, new_space: Callable[..., Space], managed: bool
) -> None:
    elsewhere, third = new_space(managed=managed), new_space()
    elsewhere.submit(workers("crashing", 2))
    refuse_pods(space, create_timeout="6s")
    space.submit(workers("gang", 4, each=GPU))
    crashed: set[str] = set()

    def stopped() -> bool:
        crash(elsewhere, "crashing", crashed)
        return bool(space.starts()) and suspended(space.job("gang"))

    space.until(stopped, "the gang is stopped")
    assert len(crashed) > 4, "pods were created more often than once in each createTimeout"
    before = len(crashed)
    third.submit(workers("other", 2, each=GPU))

    def placed() -> bool:
        crash(elsewhere, "crashing", crashed)
        return third.view("other").get("phase") == "Placed" and len(crashed) > before

    third.until(placed, "another job is placed while pods still crash")


@pytest.mark.long
def test_a_gang_with_refused_pods_is_placed_once_they_are_admitted(space: Space) -> None:
    refuse_pods(space, create_timeout="2s")
    space.submit(workers("gang", 4, each=GPU))
    space.until(lambda: space.starts() and suspended(space.job("gang")), "it is stopped")
    admit_pods(space)
    space.patiently(lambda: space.view("gang").get("phase") == "Placed", seconds=120)
    assert len(set(space.bound("gang", 4).values())) == 1


@pytest.mark.long
def test_a_preferred_job_that_is_too_big_for_the_cluster_is_released_after_a_minute(
    space: Space,
) -> None:
    space.nodes(1, cpu="32", memory="64Gi", gpu="2")
    space.submit(workers("huge", 4, each=GPU))
    view = space.phase("huge", "Queued")
    assert "released to plain Kubernetes" in view["message"]
    space.patiently(lambda: space.view("huge").get("phase") == "Released", seconds=120)
    space.until(lambda: len(space.pods("huge")) == 4, "plain pods exist")
    assert not any(gated(pod) or pinned_to(pod) for pod in space.pods("huge"))


def test_a_preferred_job_is_released_after_release_after(space: Space) -> None:
    space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.policy(placement={"releaseAfter": "6s"})
    space.submit(workers("first", 4, each=GPU))
    space.phase("first", "Placed")
    space.submit(workers("second", 4, each=GPU))
    message = space.phase("second", "Queued")["message"]
    assert "released to plain Kubernetes" in message
    assert "6 s" in message
    space.phase("second", "Released")
    space.until(lambda: len(space.pods("second")) == 4, "plain pods exist")
    pods = space.pods("second")
    assert not any(gated(pod) or pinned_to(pod) for pod in pods)
    preferred = pods[0]["spec"]["affinity"]["podAffinity"]
    (term,) = preferred["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
