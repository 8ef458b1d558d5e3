"""The path of a job: submitted, held, planned, gated, pinned, bound."""

import pytest

from e2e.cases.test_capacity import free
from e2e.harness.jobs import gated, job, pinned_to, workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.kube import Object
from e2e.harness.space import Space
from kfext import names

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}


@pytest.mark.parametrize(
    ("kind", "replicas"),
    [
        pytest.param("PyTorchJob", {"Master": 1, "Worker": 5}, id="a master and workers"),
        pytest.param("PyTorchJob", {"Worker": 3}, id="workers alone"),
        pytest.param("PyTorchJob", {"Master": 1}, id="one pod"),
        pytest.param("PyTorchJob", {"master": 1, "worker": 2}, id="types in lower case"),
        pytest.param("TFJob", {"Chief": 1, "PS": 2, "Worker": 2}, id="chief, servers, workers"),
        pytest.param("TFJob", {"PS": 1, "Worker": 2, "Evaluator": 1}, id="with an evaluator"),
        pytest.param("TFJob", {"Worker": 4}, id="TensorFlow workers alone"),
    ],
)
def test_a_job_that_fits_on_one_node_is_placed_on_one_node(
    space: Space, kind: str, replicas: dict[str, int]
) -> None:
    stored = space.submit(job("one", replicas, kind=kind, each=GPU))
    assert stored["spec"]["runPolicy"]["suspend"] is True
    nodes_by_pod = space.bound("one", sum(replicas.values()))
    assert len(set(nodes_by_pod.values())) == 1
    view = space.phase("one", "Placed", kind)
    assert view["nodes"] == [*set(nodes_by_pod.values())]
    # There is one write per pod and one for the job, and the pods are where the pins say.
    assert space.pins() == dict.fromkeys(nodes_by_pod, 1)
    assert space.starts() == 1
    for pod in space.pods("one"):
        assert not gated(pod)
        assert pinned_to(pod) == [pod["spec"]["nodeName"]]


@pytest.mark.parametrize(
    ("sizes", "pods", "used"),
    [
        pytest.param([4, 4, 4], 8, [4, 4], id="two nodes of three"),
        pytest.param([2, 6, 4], 6, [6], id="the only node that holds it"),
        pytest.param([2, 2, 2, 6], 8, [2, 2, 2, 2], id="four nodes of two pods, not two and six"),
        pytest.param([4, 4, 4], 10, [3, 3, 4], id="all three nodes"),
    ],
)
def test_a_job_uses_one_node_or_else_a_balanced_set_of_nodes(
    space: Space, sizes: list[int], pods: int, used: list[int]
) -> None:
    for size in sizes:
        space.nodes(1, cpu="32", memory="64Gi", gpu=str(size))
    space.submit(workers("set", pods, each=GPU))
    used_nodes = list(space.bound("set", pods).values())
    assert sorted(used_nodes.count(node) for node in set(used_nodes)) == used
    assert set(space.pins().values()) == {1}


def test_a_required_job_waits_for_one_node_and_starts_when_it_is_added(space: Space) -> None:
    space.nodes(2, cpu="32", memory="64Gi", gpu="2")
    required = {"kfext.dev/colocation": "required"}
    space.submit(workers("strict", 4, each=GPU, annotations=required))
    view = space.phase("strict", "Queued")
    assert view["reason"] == "TooBig"
    assert "4 pods need" in view["message"]
    assert "colocation is required, so it is never released" in view["message"]
    assert space.pods("strict") == []
    (big,) = space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    assert set(space.bound("strict", 4).values()) == {big}


def test_when_two_gangs_need_the_same_node_one_runs_and_the_other_has_no_pod(space: Space) -> None:
    space.nodes(1, cpu="32", memory="64Gi", gpu="8")
    space.submit(workers("first", 6, each=GPU))
    space.submit(workers("second", 6, each=GPU))
    space.bound("first", 6)
    view = space.phase("second", "Queued")
    assert view["reason"] == "NoRoom"
    assert "2 nvidia.com/gpu free, 4 nvidia.com/gpu short" in view["message"]
    assert space.pods("second") == []
    space.kube.delete(space.path("pytorchjobs", "first"))
    space.bound("second", 6)
    assert space.starts() == 2


def test_ten_gangs_at_once_fill_the_nodes_and_none_is_half_placed(space: Space) -> None:
    space.nodes(3, cpu="32", memory="64Gi", gpu="8")  # capacity for six gangs of four
    for number in range(10):
        space.submit(workers(f"gang-{number}", 4, each=GPU))
    space.until(lambda: len(space.pods()) == 24, "six gangs have their pods")
    space.until(lambda: all(p["spec"].get("nodeName") for p in space.pods()), "all are bound")
    per_job = [len(space.pods(f"gang-{number}")) for number in range(10)]
    assert sorted(per_job) == [0] * 4 + [4] * 6
    for number in (n for n in range(10) if per_job[n]):
        assert len({pod["spec"]["nodeName"] for pod in space.pods(f"gang-{number}")}) == 1
    assert space.starts() == 6


def test_an_idle_controller_writes_nothing_but_its_lease(space: Space, kfext: Kfext) -> None:
    space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("runs", 4, each=GPU))
    space.phase("runs", "Placed")
    space.submit(workers("waits", 4, each=GPU))
    space.phase("waits", "Queued")
    space.submit(workers("suspended-by-a-person", 2, each=GPU, policy={"suspend": True}))
    space.phase("suspended-by-a-person", "Suspended")

    def renewals() -> int:
        return len(kfext.proxy.writes(lambda exchange: "/leases/" in exchange.path))

    def written() -> list[str]:
        """Return the paths of the writes while the Lease is renewed three times."""
        before, first = len(kfext.proxy.log), renewals()
        space.until(lambda: renewals() >= first + 3, "the Lease is renewed three times")
        writes = (exchange.path for exchange in kfext.proxy.log[before:] if exchange.is_write)
        return [path for path in writes if "/leases/" not in path]

    def cpu_condition() -> list[Object]:
        conditions = space.view("runs")["conditions"]
        return [each for each in conditions if each["type"] == names.CPU_USE_KNOWN]

    space.until(lambda: [*free(space).values()] == [0], "kfext-capacity shows no free GPU")
    space.patiently(lambda: space.view("waits").get("expectedStart"), seconds=120)
    space.patiently(cpu_condition, seconds=120)
    assert written() == []
