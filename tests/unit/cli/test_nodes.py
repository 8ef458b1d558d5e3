"""`kubectl kfext nodes`: the capacity of each node, its gangs, and suspect nodes."""

import json
from typing import cast

import pytest

from kfext import names
from kfext.cli.nodes import NodeRow, _suspects, node_rows, render_nodes
from kfext.errors import ApiError, Forbidden, NotFound
from kfext.kube.client import Client
from kfext.model.node import Node
from kfext.model.snapshot import Snapshot
from tests.builders import Raw, job, node, pod
from tests.unit.cli.test_plan import NOW, runs, snapshot, waits

WHY = "3 jobs of 2 series failed here"
DRAINED = [{"key": names.DRAIN, "effect": "PreferNoSchedule"}]
NODES = (
    node("b", cpu="4", gpus=8),
    node("a", cpu="4", memory="8Gi", gpus=8, cordoned=True, taints=DRAINED),
)


def cluster() -> Snapshot:
    """A planned gang on b beside a foreign pod, and a job that waits."""
    foreign = job(name="other", uid="not-known").worker(1, cpu="500m").build()
    jobs = (runs("train", "b", workers=2), waits("queued", workers=9))
    return snapshot(*NODES, jobs=jobs, pods=(pod(foreign, "worker", 0, bound="b"),))


def rows(suspects: dict[str, str] | None = None) -> tuple[NodeRow, ...]:
    return node_rows(cluster(), suspects, now=NOW)


def test_a_node_shows_the_claims_of_gangs_before_their_pods_exist_and_other_claims() -> None:
    a, b = rows({})
    assert (a.node, a.taken, a.suspicion) == (NODES[1], {}, "")
    assert b.taken == {
        "": {"cpu": 500, "pods": 1},
        "PyTorchJob team/train": {"cpu": 2000, "pods": 2},
    }


def test_the_rows_are_a_table_of_used_and_allocatable_amounts() -> None:
    lines = render_nodes(rows({"a": WHY}), output="text").splitlines()
    assert [line.split() for line in lines] == [
        ["NODE", "CPU", "MEMORY", "NVIDIA.COM/GPU", "GANGS", "STATE"],
        ["a", "0/4", "0/8Gi", "0/8", *f"cordoned, drained, suspect: {WHY}".split()],
        ["b", "2.5/4", "0/256Gi", "0/8", "PyTorchJob", "team/train"],
    ]


def test_a_cluster_without_nodes_is_an_empty_table() -> None:
    assert render_nodes((), output="text").split() == ["NODE", "CPU", "MEMORY", "GANGS", "STATE"]
    assert json.loads(render_nodes((), output="json")) == []


def test_json_has_all_fields_of_a_row() -> None:
    first, _ = json.loads(render_nodes(rows(), output="json"))
    assert (first["node"]["name"], first["taken"], first["suspicion"]) == ("a", {}, None)
    assert render_nodes(rows(), output="text").count("not known whether it is suspect") == 2


class FakeApi:
    """An API server that has the Lease of a controller, or answers with an error."""

    def __init__(self, answer: Raw | ApiError) -> None:
        self.answer = answer

    async def get(self, path: str) -> Raw:
        assert path.endswith("/namespaces/kfext-system/leases/kfext-controller")
        if isinstance(self.answer, ApiError):
            raise self.answer
        return self.answer


def lease(**annotations: str) -> Raw:
    return {"metadata": {"annotations": annotations}}


LEASES: dict[str, tuple[Raw | ApiError, dict[str, str] | None]] = {
    "it names a suspect node": (lease(**{names.SUSPECTS: json.dumps({"a": WHY})}), {"a": WHY}),
    "no node is suspect": (lease(**{names.SUSPECTS: "{}"}), {}),
    "an edit made it malformed": (lease(**{names.SUSPECTS: "[1"}), {}),
    "the controller is older": (lease(), None),
    "the caller may not read it": (Forbidden(status=403, reason="Forbidden", message=""), None),
    "there is no lease": (NotFound(status=404, reason="NotFound", message=""), None),
}


@pytest.mark.parametrize(("answer", "want"), LEASES.values(), ids=LEASES)
async def test_suspect_nodes_from_the_lease(
    answer: Raw | ApiError, want: dict[str, str] | None
) -> None:
    assert await _suspects(cast(Client, FakeApi(answer))) == want


def test_each_scarce_resource_has_a_column() -> None:
    other = Node("n", allocatable={"cpu": 1000, "memory": 2**30, "amd.com/gpu": 4})
    result = node_rows(Snapshot(nodes=(other,)), {}, now=NOW)
    head, line = render_nodes(result, output="text").splitlines()
    assert (head.split()[3], line.split()) == ("AMD.COM/GPU", ["n", "0/1", "0/1Gi", "0/4"])
