"""Real training on the host network: real nodes, a real overlay, and every kind of rendezvous."""

import pytest
from kubernetes import client

from e2e.harness.training import (
    TRAINED_SECONDS,
    ddp,
    dynamic,
    elastic,
    on_host,
    pods_of,
    policy,
    replica_specs,
    submit,
    tf_job,
    totals,
    train,
    wait_trained,
    with_network,
    with_torchrun,
)
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from e2e.testbed.realnodes import Node


@pytest.mark.long
def test_C4_two_jobs_of_three_pods_train_on_one_node_on_the_host_network(
    bed: Testbed, managed: str, two_nodes: tuple[str, str]
) -> None:
    home = two_nodes[0]
    jobs = [with_network(ddp(name, workers=2), Master=home, Worker=home) for name in ("a", "b")]
    clients = [submit(bed, job, managed) for job in jobs]
    until(
        lambda: (
            sum(pod["status"]["phase"] == "Running" for pod in pods_of(bed, managed).values()) == 6
        ),
        what="all six pods run at once",
        seconds=TRAINED_SECONDS,
    )
    for sdk, job in zip(clients, jobs, strict=True):
        wait_trained(sdk, job, managed)
    pods = pods_of(bed, managed)
    assert len(pods) == 6
    assert all(map(on_host, pods.values()))
    assert {pod["spec"]["nodeName"] for pod in pods.values()} == {home}


def test_C4_the_same_without_kfext_stays_pending(
    bed: Testbed, plain: str, two_nodes: tuple[str, str]
) -> None:
    for name in ("a", "b"):
        job = with_network(ddp(name, workers=2), Master=two_nodes[0], Worker=two_nodes[0])
        for spec in replica_specs(job).values():
            spec.template.spec.host_network = True
        submit(bed, job, plain)

    def refused() -> bool:
        pods = pods_of(bed, plain)
        messages = [
            condition.get("message", "")
            for pod in pods.values()
            if not pod["spec"].get("nodeName")
            for condition in pod["status"].get("conditions", [])
        ]
        return len(pods) == 6 and sum("free ports" in message for message in messages) == 5

    until(refused, what="five of six pods are refused for the port of the first")


@pytest.mark.long
def test_C6_a_job_reaches_the_same_loss_on_every_placement_and_network(
    bed: Testbed, managed: str, members: tuple[Node, Node]
) -> None:
    """Each process exchanges 330 MB; far less than 100 MB is other traffic."""
    first, second = members
    losses, wire, overlay = {}, {}, {}
    for network in ("pod", "host"):
        for other in members:
            where = network, "apart" if other is second else "together"
            job = with_network(
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
def test_a_job_trains_on_nodes_with_names_for_loopback_if_a_policy_names_the_interface(
    bed: Testbed, managed: str, two_nodes: tuple[str, str]
) -> None:
    job = with_network(ddp("loopback"), Master=two_nodes[0], Worker=two_nodes[1])
    for spec in replica_specs(job).values():
        alias = client.V1HostAlias(ip="127.0.1.1", hostnames=list(two_nodes))
        spec.template.spec.host_aliases = [alias]
    with policy(bed, managed, network={"interfaces": ["eth0"]}):
        pods = train(bed, job, managed)
    assert {pod["spec"]["nodeName"] for pod in pods} == set(two_nodes)
    assert all(map(on_host, pods))


@pytest.mark.long
def test_a_job_of_one_replica_trains_on_the_host_network(bed: Testbed, managed: str) -> None:
    (pod,) = train(bed, with_network(ddp("single", workers=0)), managed)
    assert on_host(pod)


@pytest.mark.long
def test_two_torchrun_pods_train_on_one_node_on_the_host_network(
    bed: Testbed, managed: str, two_nodes: tuple[str, str]
) -> None:
    job = with_network(with_torchrun(ddp("torchrun")), Master=two_nodes[0], Worker=two_nodes[0])
    pods = train(bed, job, managed)
    assert len(pods) == 2
    assert all(map(on_host, pods))


@pytest.mark.long
def test_elastic_workers_with_a_node_each_train_on_the_host_network(
    bed: Testbed, managed: str, members: tuple[Node, Node]
) -> None:
    job = elastic(2)
    # More than half a node, so that no node holds both.
    (container,) = replica_specs(job)["Worker"].template.spec.containers
    cpu = f"{members[0].millicores // 2 + 50}m"
    container.resources.requests["cpu"] = container.resources.limits["cpu"] = cpu
    pods = train(bed, with_network(job), managed)
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    assert all(map(on_host, pods))


@pytest.mark.long
def test_elastic_workers_on_one_node_keep_the_pod_network(
    bed: Testbed, managed: str, two_nodes: tuple[str, str]
) -> None:
    pods = train(bed, with_network(elastic(2), Worker=two_nodes[0]), managed)
    assert {pod["spec"]["nodeName"] for pod in pods} == {two_nodes[0]}
    assert not any(map(on_host, pods))


@pytest.mark.long
def test_a_tfjob_with_every_type_trains_on_the_host_network(bed: Testbed, managed: str) -> None:
    job = tf_job("all", arguments=("--steps", "40"))
    replica_specs(job)["Evaluator"] = replica_specs(job)["Worker"]
    pods = train(bed, with_network(job), managed)
    assert pods
    assert all(map(on_host, pods))


@pytest.mark.long
def test_a_tfjob_with_dynamic_workers_trains_on_the_host_network(
    bed: Testbed, managed: str
) -> None:
    pods = train(bed, with_network(dynamic("sparse", steps=40)), managed)
    assert pods
    assert all(map(on_host, pods))
