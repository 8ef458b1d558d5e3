"""All pods of a gang are released from the gate together, or the gang is stopped."""

import json
from collections.abc import Callable

import pytest

from e2e.harness import nodes
from e2e.harness.faults import Delay, pod_patch
from e2e.harness.jobs import conditions, gated, job, suspended, workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.pods import end_now, end_slowly, occupy, occupying_pod, refusing, succeed
from e2e.harness.space import Space

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}
REQUIRED = {"kfext.dev/colocation": "required"}


def half_created(space: Space) -> list[str]:
    """Submit a gang of four pods; block the names of two. Return the paths of the blocking pods."""
    space.policy(placement={"createTimeout": "10m"})
    occupants = [space.path("pods", f"gang-worker-{index}") for index in (1, 2)]
    for path in occupants:
        occupy(space, path)
    space.submit(workers("gang", 4, each=GPU, annotations=REQUIRED))
    space.until(lambda: len(space.pods("gang")) == 2, "half of the pods exist")
    return occupants


def create_rest(space: Space, occupants: list[str]) -> None:
    for path in occupants:
        space.kube.delete(path, grace=0)
    # an edit makes the operator retry now, without its back-off
    space.patch_job("gang", {"metadata": {"labels": {"seen": "again"}}})


def test_the_gated_half_of_a_gang_follows_the_half_without_a_gate(
    new_space: Callable[..., Space], kfext: Kfext
) -> None:
    space = new_space()
    planned, other = space.nodes(2, cpu="32", memory="64Gi", gpu="4")
    # For two pods alone kfext would choose this node; kube-scheduler prefers to avoid it.
    (tight,) = space.nodes(1, cpu="32", memory="64Gi", gpu="2")
    nodes.taint(space.kfext, tight, "PreferNoSchedule")
    occupants = half_created(space)
    assert space.plan("gang")["nodes"] == [planned]  # type: ignore[index]
    new_space().take_gpus("thief", planned, 4)
    kfext.configure_webhooks(unreachable=("pods.kfext.dev",))
    kfext.wait_webhooks(job="held", pod="untouched")
    create_rest(space, occupants)
    assert set(space.bound("gang", 4).values()) == {other}
    assert sorted(space.pins().values()) == [1, 1]
    assert space.starts() == 1


@pytest.mark.long
def test_a_gang_is_not_split_if_the_lease_is_stale_when_its_second_half_is_created(
    space: Space, kfext: Kfext
) -> None:
    space.nodes(3, cpu="32", memory="64Gi", gpu="4")
    occupants = half_created(space)
    kfext.kill_controller()
    kfext.wait_controller_dead()
    kfext.wait_webhooks(job="seen", pod="untouched")
    create_rest(space, occupants)
    space.until(lambda: any(space.nodes_by_pod("gang").values()), "part of it runs")
    assert any(gated(pod) for pod in space.pods("gang"))
    kfext.ensure()
    assert len(set(space.bound("gang", 4).values())) == 1
    assert sorted(space.pins().values()) == [1, 1]
    space.phase("gang", "Placed")


def all_but_one_bound(space: Space, kfext: Kfext, last: str) -> Delay:
    """Wait until all pods except `last` are bound; let another pod use the capacity for `last`.

    Returns the fault that delays the pin of `last` until its event is set.
    """
    late = Delay(
        lambda exchange: pod_patch(space.name)(exchange) and exchange.path.endswith(f"/{last}")
    )
    kfext.proxy.arm(late)

    def used_nodes() -> list[str] | None:
        used = [node for node in space.nodes_by_pod("gang").values() if node]
        return used if len(used) >= 3 else None

    bound = space.until(used_nodes, "three are bound")
    space.until(lambda: late.seen, "the last pin is on its way")
    space.take_gpus("thief", bound[2], 1)
    return late


def test_a_tfjob_with_required_colocation_is_stopped_and_resumed_once_its_pods_have_ended(
    space: Space, kfext: Kfext
) -> None:
    """A TFJob fails permanently if running pods end while it is not suspended."""
    (node,) = space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.policy(placement={"bindTimeout": "1s"})
    manifest = job("gang", {"PS": 1, "Worker": 3}, kind="TFJob", each=GPU, annotations=REQUIRED)
    space.submit(manifest)
    late = all_but_one_bound(space, kfext, "gang-worker-2")
    running = [name for name, node in space.nodes_by_pod("gang").items() if node]
    space.until(lambda: _running(space) == 3, "three pods run")
    end_slowly(space, running)
    late.go.set()
    space.until(lambda: suspended(space.job("gang", "TFJob")), "the gang is stopped")
    state = json.loads(space.job("gang", "TFJob")["metadata"]["annotations"]["kfext.dev/state"])
    assert (state["strikes"], state["reason"]) == (1, "NoRoom")
    # From now on there is capacity, and no back-off.
    space.kube.delete(space.path("pods", "thief"), grace=0)
    written = json.dumps({**state, "retryAt": 0})
    annotations = {"metadata": {"annotations": {"kfext.dev/state": written}}}
    space.patch_job("gang", annotations, "TFJob")
    view = space.until(
        lambda: "still terminating" in (v := space.view("gang", "TFJob")).get("message", "") and v,
        "kfext shows why the job waits",
    )
    assert view["reason"] == "WaitingForSuspend"
    space.submit(workers("quick", 1, each=GPU))  # kfext places this job, and not the gang
    space.until(lambda: space.starts() == 2, "another job was planned")
    assert suspended(space.job("gang", "TFJob"))
    space.kube.delete(space.path("pytorchjobs", "quick"))
    end_now(space, running)
    assert set(running) < set(space.bound("gang", 4))
    assert set(space.nodes_by_pod("gang").values()) == {node}
    assert "Failed" not in conditions(space.job("gang", "TFJob"))
    assert space.starts() == 3  # two starts of the gang, one of the other job


def _running(space: Space) -> int:
    return sum(pod["status"].get("phase") == "Running" for pod in space.pods("gang"))


def test_a_lost_member_is_recreated_even_if_the_recreation_of_another_is_refused(
    space: Space,
) -> None:
    space.submit(workers("gang", 4, each=GPU))
    space.bound("gang", 4)
    space.phase("gang", "Placed")
    space.policy(placement={"createTimeout": "1s"})
    unless = "!object.metadata.name.endsWith('-worker-1')"
    with refusing(space, unless=unless, message="not again", probe=occupying_pod("any-worker-1")):
        # The pod that is refused is deleted first, so that the gang cannot become whole too early.
        for name in ("gang-worker-1", "gang-worker-0"):
            space.kube.delete(space.path("pods", name), grace=0)
        space.phase("gang", "Released")
        nodes_by_pod = space.bound("gang", 3)
    assert set(nodes_by_pod) == {"gang-master-0", "gang-worker-0", "gang-worker-2"}
    assert not suspended(space.job("gang"))


def test_workers_that_outlive_their_job_still_count_as_used_capacity(space: Space) -> None:
    (node,) = space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("done", 4, each=GPU, policy={"cleanPodPolicy": "None"}))
    space.bound("done", 4)
    space.phase("done", "Placed")
    succeed(space, "done-master-0")
    space.phase("done", "Finished")
    assert len(space.pods("done")) == 4
    space.submit(workers("next", 2, each=GPU))
    view = space.phase("next", "Queued")
    assert view["reason"] == "NoRoom"
    assert "1 nvidia.com/gpu free, 1 nvidia.com/gpu short" in view["message"]
    assert space.pods("next") == []
    space.kube.delete(space.path("pytorchjobs", "done"))
    assert set(space.bound("next", 2).values()) == {node}
