"""Real training on the host network: real nodes, a real overlay, and every kind of rendezvous."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kubeflow.training import KubeflowOrgV1ElasticPolicy
from kubernetes import client

from e2e.harness.install import kubectl
from e2e.harness.pods import squatter
from e2e.harness.sdk_jobs import pytorch_job, tf_job
from e2e.harness.training import TRAINED_SECONDS, pods_of, set_suspend, submit, totals, trained
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from e2e.testbed.realnodes import Node, nodes
from kfext import names

_FEW_STEPS = ("--model", "cnn", "--steps", "10")


@pytest.fixture
def members(bed: Testbed) -> tuple[Node, Node]:
    """Return the two nodes."""
    first, second = nodes(bed)
    return first, second


@pytest.fixture
def homes(members: tuple[Node, Node]) -> tuple[str, str]:
    """Return the names of the two nodes."""
    return members[0].name, members[1].name


def specs(job: Any) -> Any:
    return getattr(job.spec, "pytorch_replica_specs", None) or job.spec.tf_replica_specs


def asking(job: Any, network: str = "host", **places: str) -> Any:
    """Have a job ask for a network, and send the pods of its types to nodes."""
    job.metadata.annotations = {names.NETWORK: network}
    for type_, node in places.items():
        specs(job)[type_].template.spec.node_selector = {names.HOSTNAME: node}
    return job


def ddp(name: str, *, workers: int = 1, steps: int = 10, model: str = "cnn") -> Any:
    """Return a PyTorchJob of which three, or nine small pods, fit one node."""
    arguments = ("--model", model, "--steps", str(steps))
    small = {"cpu": "60m", "memory": "280Mi"} if workers > 1 else {}
    return pytorch_job(name, workers=workers, arguments=arguments, **small)  # type: ignore[arg-type]


def with_torchrun(job: Any) -> Any:
    """Have torchrun start the program of a job."""
    for spec in specs(job).values():
        (container,) = spec.template.spec.containers
        container.command = ["torchrun", *container.command[1:]]
    job.spec.nproc_per_node = "1"
    return job


def elastic(workers: int) -> Any:
    """Return a PyTorchJob of torchrun's workers, that meet at the first of them."""
    job = with_torchrun(pytorch_job("elastic", workers=workers, arguments=_FEW_STEPS))
    del specs(job)["Master"]
    job.spec.elastic_policy = KubeflowOrgV1ElasticPolicy(
        rdzv_backend="c10d", min_replicas=workers, max_replicas=workers, max_restarts=3
    )
    return job


@contextmanager
def policy(bed: Testbed, namespace: str, **spec: Any) -> Iterator[None]:
    """Have a TrainingPolicy hold for a namespace."""
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    body = {
        "apiVersion": "kfext.dev/v1alpha1",
        "kind": "TrainingPolicy",
        "metadata": {"name": namespace},
        "spec": {"namespaceSelector": selector, **spec},
    }
    bed.api.apply(body)
    try:
        yield
    finally:
        bed.api.delete(f"/apis/kfext.dev/v1alpha1/trainingpolicies/{namespace}")


def on_host(pod: Any) -> bool:
    return (
        pod["spec"].get("hostNetwork") is True and pod["status"]["podIP"] == pod["status"]["hostIP"]
    )


def train(bed: Testbed, job: Any, namespace: str) -> list[Any]:
    """Train a job to Succeeded; return its pods."""
    trained(submit(bed, job, namespace), job, namespace)
    return list(pods_of(bed, namespace, job.metadata.name).values())


def test_C4_three_jobs_of_three_train_on_one_node_on_the_host_network(
    bed: Testbed, managed: str, homes: tuple[str, str]
) -> None:
    here = homes[0]
    jobs = [asking(ddp(name, workers=2), Master=here, Worker=here) for name in ("a", "b", "c")]
    clients = [submit(bed, job, managed) for job in jobs]
    until(
        lambda: (
            sum(pod["status"]["phase"] == "Running" for pod in pods_of(bed, managed).values()) == 9
        ),
        what="all nine pods run at once",
        seconds=TRAINED_SECONDS,
    )
    for sdk, job in zip(clients, jobs, strict=True):
        trained(sdk, job, managed)
    pods = pods_of(bed, managed)
    assert len(pods) == 9
    assert all(map(on_host, pods.values()))
    assert {pod["spec"]["nodeName"] for pod in pods.values()} == {here}


def test_C4_the_same_without_kfext_stays_pending(
    bed: Testbed, plain: str, homes: tuple[str, str]
) -> None:
    for name in ("a", "b", "c"):
        job = asking(ddp(name, workers=2), Master=homes[0], Worker=homes[0])
        for spec in specs(job).values():
            spec.template.spec.host_network = True
        submit(bed, job, plain)

    def refused() -> bool:
        pods = pods_of(bed, plain)
        said = [
            condition.get("message", "")
            for pod in pods.values()
            if not pod["spec"].get("nodeName")
            for condition in pod["status"].get("conditions", [])
        ]
        return len(pods) == 9 and sum("free ports" in one for one in said) == 8

    until(refused, what="eight of nine pods are refused for the port of the first")


@pytest.mark.long
def test_C6_a_job_comes_to_one_loss_wherever_and_on_whichever_network_it_trains(
    bed: Testbed, managed: str, members: tuple[Node, Node]
) -> None:
    """And what its processes say to each other goes where the network says: 330 MB each."""
    first, second = members
    losses, wire, overlay = {}, {}, {}
    for network in ("pod", "host"):
        for other in members:
            where = network, "apart" if other is second else "together"
            job = asking(
                ddp("-".join(where), model="mlp"), network, Master=first.name, Worker=other.name
            )
            before = first.bytes_on_wire(), first.bytes_in_overlay()
            pods = train(bed, job, managed)
            wire[where] = first.bytes_on_wire() - before[0] > 100e6
            overlay[where] = first.bytes_in_overlay() - before[1] > 100e6
            assert {pod["spec"]["nodeName"] for pod in pods} == {first.name, other.name}
            assert {on_host(pod) for pod in pods} == {network == "host"}
            losses[where] = totals(bed, managed, f"{job.metadata.name}-master-0")["loss"]
    assert len(set(losses.values())) == 1
    assert [where for where in wire if wire[where]] == [("pod", "apart"), ("host", "apart")]
    assert [where for where in overlay if overlay[where]] == [("pod", "apart")]


@pytest.mark.long
def test_nodes_whose_names_resolve_to_loopback_need_the_policys_interface(
    bed: Testbed, managed: str, homes: tuple[str, str]
) -> None:
    job = asking(ddp("loopback"), Master=homes[0], Worker=homes[1])
    for spec in specs(job).values():
        alias = client.V1HostAlias(ip="127.0.1.1", hostnames=list(homes))
        spec.template.spec.host_aliases = [alias]
    with policy(bed, managed, network={"interfaces": ["eth0"]}):
        pods = train(bed, job, managed)
    assert {pod["spec"]["nodeName"] for pod in pods} == set(homes)
    assert all(map(on_host, pods))


@pytest.mark.long
def test_a_job_of_one_replica_trains_on_the_host_network(bed: Testbed, managed: str) -> None:
    (pod,) = train(bed, asking(ddp("single", workers=0)), managed)
    assert on_host(pod)


@pytest.mark.long
def test_torchrun_as_the_sdk_starts_it_trains_twice_on_one_node(
    bed: Testbed, managed: str, homes: tuple[str, str]
) -> None:
    job = asking(with_torchrun(ddp("torchrun")), Master=homes[0], Worker=homes[0])
    pods = train(bed, job, managed)
    assert len(pods) == 2
    assert all(map(on_host, pods))


@pytest.mark.long
def test_elastic_workers_with_a_node_each_train_on_the_host_network(
    bed: Testbed, managed: str
) -> None:
    job = elastic(2)
    # More than half a node, so that no node holds both.
    (container,) = specs(job)["Worker"].template.spec.containers
    container.resources.requests["cpu"] = container.resources.limits["cpu"] = "400m"
    pods = train(bed, asking(job), managed)
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    assert all(map(on_host, pods))


@pytest.mark.long
def test_elastic_workers_on_one_node_keep_the_pod_network(
    bed: Testbed, managed: str, homes: tuple[str, str]
) -> None:
    pods = train(bed, asking(elastic(2), Worker=homes[0]), managed)
    assert {pod["spec"]["nodeName"] for pod in pods} == {homes[0]}
    assert not any(map(on_host, pods))


@pytest.mark.long
def test_a_tfjob_of_every_type_trains_on_the_host_network(bed: Testbed, managed: str) -> None:
    job = tf_job("all", arguments=("--steps", "40"))
    specs(job)["Evaluator"] = specs(job)["Worker"]
    pods = train(bed, asking(job), managed)
    assert pods
    assert all(map(on_host, pods))


def dynamic(name: str, *, steps: int) -> Any:
    """Return a TFJob whose workers may come and go: each is told of itself and the server only."""
    job = tf_job(name, workers=2, arguments=("--steps", str(steps)))
    del specs(job)["Chief"]
    job.spec.enable_dynamic_worker = True
    return job


@pytest.mark.long
def test_a_tfjob_with_dynamic_workers_trains_on_the_host_network(
    bed: Testbed, managed: str
) -> None:
    pods = train(bed, asking(dynamic("sparse", steps=40)), managed)
    assert pods
    assert all(map(on_host, pods))


def until_training(bed: Testbed, namespace: str, pod: str) -> None:
    """Wait until a pod has told of a step."""

    def stepped() -> bool:
        found = pods_of(bed, namespace).get(pod, {"status": {}})
        if found["status"].get("phase") != "Running":
            return False
        return "step=" in kubectl(bed, "logs", "-n", namespace, pod)

    until(stepped, what=f"{pod} trains", seconds=TRAINED_SECONDS)


REPLACED = {
    "PyTorchJob": (ddp("replaced", workers=2, steps=400), "replaced-master-0"),
    "TFJob": (dynamic("replaced", steps=1000), "replaced-worker-1"),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", REPLACED)
def test_a_job_trains_on_with_a_replaced_worker(bed: Testbed, managed: str, kind: str) -> None:
    job, observed = REPLACED[kind]
    sdk = submit(bed, asking(job), managed)
    until_training(bed, managed, observed)
    gone = pods_of(bed, managed)["replaced-worker-1"]
    kubectl(bed, "delete", "pod", "-n", managed, "replaced-worker-1", "--wait=false")

    def back() -> Any:
        found = pods_of(bed, managed).get("replaced-worker-1", gone)
        running = found["status"]["phase"] in {"Running", "Succeeded"}
        return found if found["metadata"]["uid"] != gone["metadata"]["uid"] and running else None

    new = until(back, what="another worker 1 runs", seconds=TRAINED_SECONDS)
    assert on_host(new)
    assert new["spec"]["nodeName"] == gone["spec"]["nodeName"]
    trained(sdk, job, managed)


@pytest.mark.long
def test_a_job_suspended_by_hand_and_resumed_trains_on_the_host_network(
    bed: Testbed, managed: str
) -> None:
    job = asking(ddp("paused", steps=100))
    sdk = submit(bed, job, managed)
    until_training(bed, managed, "paused-master-0")
    set_suspend(bed, job, managed, value=True)
    until(lambda: not pods_of(bed, managed), what="no pods", seconds=TRAINED_SECONDS)
    set_suspend(bed, job, managed, value=False)
    trained(sdk, job, managed)
    pods = pods_of(bed, managed)
    assert len(pods) == 2
    assert all(map(on_host, pods.values()))


@pytest.mark.long
def test_a_pytorchjob_of_which_the_webhook_missed_a_pod_trains_across_both_networks(
    bed: Testbed, managed: str
) -> None:
    webhook = ("deployment", "kfext-webhook", "-n", "kfext-system")
    of_it = ("-l", "app.kubernetes.io/component=webhook", "-n", "kfext-system")
    job = asking(ddp("missed", workers=2))
    bed.api.create(f"/api/v1/namespaces/{managed}/pods", squatter("missed-worker-1"))
    with policy(bed, managed, placement={"createTimeout": "10m"}):
        sdk = submit(bed, job, managed)
        until(lambda: len(pods_of(bed, managed, "missed")) == 2, what="two of its pods exist")
        kubectl(bed, "scale", *webhook, "--replicas=0")
        try:
            kubectl(bed, "rollout", "status", *webhook, "--timeout=120s")
            kubectl(bed, "wait", "pod", *of_it, "--for=delete", "--timeout=120s")
            kubectl(bed, "delete", "pod", "-n", managed, "missed-worker-1")
            # The operator backs off from a name that is taken; a change of the job wakes it.
            kubectl(bed, "label", "pytorchjob", "-n", managed, "missed", "seen=again")
            until(lambda: len(pods_of(bed, managed, "missed")) == 3, what="all of its pods exist")
        finally:
            kubectl(bed, "scale", *webhook, "--replicas=2")
            kubectl(bed, "rollout", "status", *webhook, "--timeout=120s")
    trained(sdk, job, managed)
    pods = pods_of(bed, managed, "missed")
    assert {name for name, pod in pods.items() if not on_host(pod)} == {"missed-worker-1"}
