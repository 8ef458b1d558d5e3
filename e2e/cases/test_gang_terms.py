"""Gangs with required affinity or anti-affinity to the pods of their own job."""

import pytest

from e2e.harness.jobs import held, job, template, workers
from e2e.harness.kube import Object
from e2e.harness.nodes import cordon
from e2e.harness.space import Space
from kfext.names import HOSTNAME, JOB_NAME, REPLICA_TYPE

CPU = {"cpu": "1"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def apart(**labels: str) -> Object:
    """Return pod fields that keep two pods with these labels off the same node."""
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": labels}}
    return {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}


def gang(name: str, count: int, **options: object) -> Object:
    return workers(name, count, each=CPU, pod=apart(**{JOB_NAME: name}), **options)


@pytest.fixture
def nodes(space: Space) -> list[str]:
    """Three nodes; each has capacity for a whole job."""
    return space.nodes(3, cpu="16", memory="64Gi")


def test_each_pod_of_a_gang_with_anti_affinity_is_pinned_to_a_different_node(
    space: Space, nodes: list[str]
) -> None:
    answer = space.try_submit(gang("apart", 3))
    assert held(answer.body)
    assert sorted(space.bound("apart", 3).values()) == nodes
    space.phase("apart", "Placed")
    assert set(space.pins().values()) == {1}
    assert space.starts() == 1


@pytest.mark.usefixtures("nodes")
def test_replicas_without_anti_affinity_share_nodes_with_others(space: Space) -> None:
    manifest = job("mixed", {"PS": 4, "Worker": 2}, kind="TFJob", each=CPU)
    own = {JOB_NAME: "mixed", REPLICA_TYPE: "worker"}
    template(manifest, "Worker")["spec"] |= apart(**own)
    space.submit(manifest)
    nodes_by_pod = space.bound("mixed", 6)
    space.phase("mixed", "Placed", "TFJob")
    assert nodes_by_pod["mixed-worker-0"] != nodes_by_pod["mixed-worker-1"]
    assert len(set(nodes_by_pod.values())) == 2
    assert set(space.pins().values()) == {1}


@pytest.mark.usefixtures("nodes")
def test_a_gang_with_more_pods_than_nodes_starts_when_a_node_is_added(space: Space) -> None:
    space.submit(gang("apart", 4))
    view = space.phase("apart", "Queued")
    assert view["reason"] == "TooBig"
    assert "4 of its pods need a node each" in view["message"]
    assert space.pods("apart") == []
    space.nodes(1, cpu="16", memory="64Gi")
    assert len(set(space.bound("apart", 4).values())) == 4
    space.phase("apart", "Placed")
    assert set(space.pins().values()) == {1}


def test_a_lost_pod_is_pinned_to_a_node_without_another_pod_of_its_gang(
    space: Space, nodes: list[str]
) -> None:
    space.submit(gang("apart", 2))
    first = space.bound("apart", 2)
    space.phase("apart", "Placed")
    (spare,) = set(nodes) - set(first.values())
    cordon(space.kfext, first["apart-worker-0"])
    space.kube.delete(space.path("pods", "apart-worker-0"), grace=0)
    space.until(
        lambda: space.nodes_by_pod("apart") == {**first, "apart-worker-0": spare},
        "the lost pod is bound to the free node",
    )
    assert space.pins() == {"apart-master-0": 1, "apart-worker-0": 2}


@pytest.mark.usefixtures("nodes")
def test_a_resubmitted_job_avoids_nodes_with_pods_of_the_deleted_job(space: Space) -> None:
    space.submit(gang("apart", 3))
    space.bound("apart", 3)
    space.phase("apart", "Placed")
    space.kube.delete(space.path("pytorchjobs", "apart"))
    space.submit(gang("apart", 3))
    assert len(set(space.bound("apart", 3).values())) == 3
    space.phase("apart", "Placed")


@pytest.mark.usefixtures("nodes")
def test_a_gang_with_anti_affinity_that_requires_one_node_is_warned(space: Space) -> None:
    annotations = {"kfext.dev/colocation": "required"}
    answer = space.try_submit(gang("never", 3, annotations=annotations))
    assert any("3 of its pods cannot share a node" in warning for warning in answer.warnings)
    view = space.phase("never", "Queued")
    assert view["reason"] == "TooBig"
    assert "3 of its pods need a node each" in view["message"]


def together(name: str, count: int) -> Object:
    """Return a job with required affinity to its own pods."""
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {JOB_NAME: name}}}
    pod = {"affinity": {"podAffinity": {REQUIRED: [term]}}}
    return workers(name, count, each=CPU, pod=pod)


def test_a_gang_with_affinity_to_its_own_pods_waits_for_one_node_and_starts_there(
    space: Space,
) -> None:
    space.nodes(2, cpu="3", memory="64Gi")
    space.submit(together("close", 4))
    view = space.phase("close", "Queued")
    assert "on one node" in view["message"]
    assert space.pods("close") == []
    (large,) = space.nodes(1, cpu="8", memory="64Gi")
    assert set(space.bound("close", 4).values()) == {large}
    space.phase("close", "Placed")
    assert set(space.pins().values()) == {1}
    assert space.starts() == 1


def test_a_lost_pod_with_affinity_to_the_others_is_pinned_to_their_node(
    space: Space,
) -> None:
    space.nodes(2, cpu="16", memory="64Gi")
    space.submit(together("close", 3))
    first = space.bound("close", 3)
    space.phase("close", "Placed")
    lost = {pod["metadata"]["uid"] for pod in space.pods("close")}
    space.kube.delete(space.path("pods", "close-worker-0"), grace=0)
    space.until(
        lambda: (
            {pod["metadata"]["uid"] for pod in space.pods("close")} != lost
            and space.nodes_by_pod("close") == first
        ),
        "the replacement is on the node of the others",
    )
    assert space.pins() == {"close-master-0": 1, "close-worker-0": 2, "close-worker-1": 1}
