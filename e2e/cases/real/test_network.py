"""Real training on the host network: real nodes, a real overlay, and every kind of rendezvous."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from kubeflow.training import KubeflowOrgV1ElasticPolicy, TrainingClient
from kubernetes import client

from e2e.harness.install import kubectl
from e2e.harness.sdk_jobs import pytorch_job, tf_job
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed

_TRAINED_SECONDS = 600
_HOSTNAME = "kubernetes.io/hostname"
_FEW_STEPS = ("--model", "cnn", "--steps", "10")


@pytest.fixture
def homes(bed: Testbed) -> tuple[str, str]:
    """Return the names of the two nodes."""
    first, second = sorted(
        node["metadata"]["name"] for node in bed.api.get("/api/v1/nodes")["items"]
    )
    return first, second


def _specs(job: Any) -> Mapping[str, Any]:
    spec = job.spec
    return getattr(spec, "pytorch_replica_specs", None) or spec.tf_replica_specs


def _steered(job: Any, **nodes: str) -> Any:
    """Send the pods of each type to a node."""
    for type_, node in nodes.items():
        _specs(job)[type_].template.spec.node_selector = {_HOSTNAME: node}
    return job


def _submit(bed: Testbed, job: Any, namespace: str, *, network: str = "host") -> TrainingClient:
    job.metadata.annotations = {"kfext.dev/network": network}
    sdk = TrainingClient(config_file=str(bed.kubeconfig), namespace=namespace, job_kind=job.kind)
    sdk.create_job(job, namespace=namespace)
    return sdk


def _wait(sdk: TrainingClient, job: Any, namespace: str) -> None:
    sdk.wait_for_job_conditions(
        job.metadata.name,
        namespace=namespace,
        job_kind=job.kind,
        polling_interval=1,
        wait_timeout=_TRAINED_SECONDS,
    )


def _pods(bed: Testbed, namespace: str, job: str = "") -> list[Any]:
    selector = f"?labelSelector=training.kubeflow.org%2Fjob-name%3D{job}" if job else ""
    found: list[Any] = bed.api.get(f"/api/v1/namespaces/{namespace}/pods{selector}")["items"]
    return found


def _on_host(pod: Any) -> bool:
    return (
        pod["spec"].get("hostNetwork") is True and pod["status"]["podIP"] == pod["status"]["hostIP"]
    )


def _loss(bed: Testbed, namespace: str, pod: str) -> float:
    """Return the loss with which a job ended, from the last line of its first pod."""
    log = kubectl(bed, "logs", "-n", namespace, pod)
    loss: float = json.loads(log.strip().splitlines()[-1])["loss"]
    return loss


def _train(bed: Testbed, job: Any, namespace: str, *, network: str = "host") -> list[Any]:
    """Train a job to Succeeded; return its pods."""
    _wait(_submit(bed, job, namespace, network=network), job, namespace)
    return _pods(bed, namespace, job.metadata.name)


def test_three_jobs_of_three_train_on_one_node_on_the_host_network(
    bed: Testbed, managed: str, homes: tuple[str, str]
) -> None:
    jobs = [
        _steered(
            pytorch_job(name, workers=2, cpu="60m", memory="280Mi", arguments=_FEW_STEPS),
            Master=homes[0],
            Worker=homes[0],
        )
        for name in ("one", "two", "three")
    ]
    clients = [_submit(bed, job, managed) for job in jobs]
    until(
        lambda: sum(pod["status"]["phase"] == "Running" for pod in _pods(bed, managed)) == 9,
        what="all nine pods run at once",
        seconds=_TRAINED_SECONDS,
    )
    for sdk, job in zip(clients, jobs, strict=True):
        _wait(sdk, job, managed)
    pods = _pods(bed, managed)
    assert len(pods) == 9
    assert all(map(_on_host, pods))
    assert {pod["spec"]["nodeName"] for pod in pods} == {homes[0]}


def test_the_same_without_kfext_stays_pending(
    bed: Testbed, plain: str, homes: tuple[str, str]
) -> None:
    for name in ("one", "two", "three"):
        job = pytorch_job(name, workers=2, cpu="60m", memory="280Mi", arguments=_FEW_STEPS)
        for spec in _specs(_steered(job, Master=homes[0], Worker=homes[0])).values():
            spec.template.spec.host_network = True
        _submit(bed, job, plain)

    def refused() -> bool:
        pods = _pods(bed, plain)
        said = [
            condition.get("message", "")
            for pod in pods
            if not pod["spec"].get("nodeName")
            for condition in pod["status"].get("conditions", [])
        ]
        return len(pods) == 9 and sum("free ports" in one for one in said) == 8

    until(refused, what="eight of nine pods are refused for the port of the first")


def test_a_tfjob_with_a_parameter_server_trains_on_the_host_network(
    bed: Testbed, managed: str
) -> None:
    pods = _train(bed, tf_job("ps", arguments=("--steps", "40")), managed)
    assert pods
    assert all(map(_on_host, pods))


@pytest.mark.long
def test_a_job_on_two_nodes_comes_to_the_same_loss_on_either_network(
    bed: Testbed, managed: str, homes: tuple[str, str]
) -> None:
    losses = {}
    for network in ("pod", "host"):
        job = pytorch_job(network, arguments=("--model", "mlp", "--steps", "10"))
        pods = _train(
            bed, _steered(job, Master=homes[0], Worker=homes[1]), managed, network=network
        )
        assert {pod["spec"]["nodeName"] for pod in pods} == set(homes)
        assert {_on_host(pod) for pod in pods} == {network == "host"}
        losses[network] = _loss(bed, managed, f"{network}-master-0")
    assert losses["pod"] == losses["host"]


@pytest.mark.long
def test_nodes_whose_names_resolve_to_loopback_need_the_policys_interface(
    bed: Testbed, managed: str, homes: tuple[str, str]
) -> None:
    selector = {"matchLabels": {"kubernetes.io/metadata.name": managed}}
    policy = {
        "apiVersion": "kfext.dev/v1alpha1",
        "kind": "TrainingPolicy",
        "metadata": {"name": managed},
        "spec": {"namespaceSelector": selector, "network": {"interfaces": ["eth0"]}},
    }
    bed.api.apply(policy)
    job = pytorch_job("loopback", arguments=_FEW_STEPS)
    for spec in _specs(_steered(job, Master=homes[0], Worker=homes[1])).values():
        alias = client.V1HostAlias(ip="127.0.1.1", hostnames=list(homes))
        spec.template.spec.host_aliases = [alias]
    pods = _train(bed, job, managed)
    bed.api.delete(f"/apis/kfext.dev/v1alpha1/trainingpolicies/{managed}")
    assert {pod["spec"]["nodeName"] for pod in pods} == set(homes)
    assert all(map(_on_host, pods))


def _elastic(workers: int) -> Any:
    job = pytorch_job("elastic", workers=workers, cpu="300m", arguments=_FEW_STEPS)
    del job.spec.pytorch_replica_specs["Master"]
    (container,) = _specs(job)["Worker"].template.spec.containers
    container.command = ["torchrun", *container.command[1:]]
    job.spec.nproc_per_node = "1"
    job.spec.elastic_policy = KubeflowOrgV1ElasticPolicy(
        rdzv_backend="c10d", min_replicas=workers, max_replicas=workers, max_restarts=3
    )
    return job


@pytest.mark.long
def test_elastic_workers_on_one_node_keep_the_pod_network(
    bed: Testbed, managed: str, homes: tuple[str, str]
) -> None:
    pods = _train(bed, _steered(_elastic(2), Worker=homes[0]), managed)
    assert {pod["spec"]["nodeName"] for pod in pods} == {homes[0]}
    assert not any(map(_on_host, pods))
