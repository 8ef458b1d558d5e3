"""Nodes that are drained: which gangs leave, where they go, also after faults."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from kfext import names
from kfext.model.node import Taint
from kfext.sim.jobs import JobSpec, Saving
from kfext.sim.nodes import node
from kfext.sim.training import Doing
from tests.unit.sim.bed import Bed
from tests.unit.sim.test_preempt import ACT, URGENT, VICTIM, until
from tests.unit.sim.test_preempt import stops as stopped

MOVES = replace(VICTIM, preempt="", migrate="checkpointed")


def bed(*jobs: JobSpec, **nodes: int) -> Bed:
    return Bed(
        *(jobs or (MOVES,)), policy=ACT, late_writes=True, **(nodes or {"a": 4000, "b": 4000})
    )


def drain(
    bed: Bed, name: str, *, by_force: bool = False, off: bool = False, cordons: bool = True
) -> None:
    """Set the marks of the command on a node, or remove them."""
    before = node(name, bed.world.nodes[name])
    taint = Taint(names.DRAIN, names.DRAIN_BY_FORCE if by_force else "", "PreferNoSchedule")
    after = before if off else replace(before, unschedulable=cordons, taints=(taint,))
    bed.planner.cluster.observe_node(before, after)


def nodes_of(bed: Bed, name: str = "train") -> list[str]:
    return sorted({live.pod.node_name for live in bed.job(name).pods.values()})


def home(bed: Bed, name: str = "train") -> str:
    (result,) = nodes_of(bed, name)
    return result


stops = partial(stopped, reason=names.REASON_DRAINED)
"""Returns the names of the jobs that were stopped by a drain, in order."""


def shown(bed: Bed, name: str = "train") -> str:
    status = bed.driver.shown.get((name, names.STOPPED))
    return f"{status.verdict.reason}: {status.verdict.message}" if status else ""


def trains(bed: Bed, name: str = "train") -> bool:
    return bed.job(name).training.doing is Doing.TRAINS


def trains_away(bed: Bed, before: str, name: str = "train") -> bool:
    """Whether a job trains again, away from a node."""
    return bool(stops(bed)) and trains(bed, name) and before not in nodes_of(bed, name)


LEAVE: dict[str, dict[str, Any]] = {
    "saves on request": {},
    "saves by itself": {"saving": Saving.PERIODIC, "every": 400},
    "may be preempted": {"migrate": "", "preempt": "checkpoint"},
    "may lose its work": {"migrate": "", "preempt": "always", "saving": Saving.NEVER},
    "is a TFJob": {"kind": "TFJob", "leaders": 0, "workers": 4},
    "is a TrainJob": {"kind": "TrainJob", "leaders": 0, "workers": 4},
}


@pytest.mark.parametrize("changes", LEAVE.values(), ids=LEAVE)
def test_a_gang_leaves_a_drained_node_as_a_whole_for_another(changes: dict[str, Any]) -> None:
    cluster = bed(replace(MOVES, **changes)).at(100)
    before = home(cluster)
    drain(cluster, before)
    until(cluster, lambda cluster: trains_away(cluster, before), most=360)
    assert (stops(cluster), len(nodes_of(cluster))) == (["train"], 1)
    assert cluster.planner.cluster.holds.holders() == ()
    assert not cluster.operator.failed
    if cluster.job().spec.saving is not Saving.NEVER:
        assert cluster.job().training.lost <= 40


def test_a_gang_saves_again_if_it_saved_shortly_before_the_drain() -> None:
    cluster = bed(replace(MOVES, saving=Saving.PERIODIC, every=60)).at(100)
    training, before = cluster.job().training, cluster.job().training.saved
    until(cluster, lambda cluster: training.saved > before)
    before = training.saved
    drain(cluster, home(cluster))
    until(cluster, stops)
    assert training.saved == before + 60


def test_a_gang_without_capacity_elsewhere_waits_until_the_node_is_back() -> None:
    cluster = bed(a=4000).at(100)
    drain(cluster, "a")
    until(cluster, stops)
    assert (cluster.after(400).job().job.suspend, cluster.job().pods) == (True, {})
    assert shown(cluster).startswith("Drained: a is drained; it continues from step")
    drain(cluster, "a", off=True)
    until(cluster, trains)
    assert (stops(cluster), home(cluster)) == (["train"], "a")


def test_a_gang_on_two_nodes_leaves_the_drained_node_as_a_whole() -> None:
    cluster = bed(replace(MOVES, cpu=2000, uses=2000), a=4000, b=4000, c=4000).at(100)
    first, _ = nodes_of(cluster)
    drain(cluster, first)
    until(cluster, lambda cluster: trains_away(cluster, first))
    assert nodes_of(cluster) == sorted({"a", "b", "c"} - {first})


def test_the_taint_alone_keeps_pods_of_kfext_off_a_node() -> None:
    cluster = bed().at(100)
    before = home(cluster)
    drain(cluster, before, cordons=False)
    until(cluster, lambda cluster: trains_away(cluster, before))


STAYS: dict[str, tuple[dict[str, Any], str]] = {
    "did not opt in": (
        {"migrate": ""},
        "it set neither kfext.dev/migrate nor kfext.dev/preempt: set either, or drain with --force",
    ),
    "has shown no checkpoint": (
        {"saving": Saving.NEVER},
        "it has shown no checkpoint yet: drain with --force",
    ),
}


@pytest.mark.parametrize(("changes", "why"), STAYS.values(), ids=STAYS)
def test_a_gang_stays_with_a_shown_reason_until_the_drain_is_forced(
    changes: dict[str, Any], why: str
) -> None:
    cluster = bed(replace(MOVES, **changes)).at(100)
    before = home(cluster)
    drain(cluster, before)
    assert (stops(cluster.at(200)), nodes_of(cluster)) == ([], [before])
    assert shown(cluster) == f"OnDrainedNode: {before} is being drained: {why}"
    drain(cluster, before, by_force=True)
    until(cluster, lambda cluster: trains_away(cluster, before))


def test_a_job_that_Kueue_manages_is_only_reported() -> None:
    cluster = bed().at(100)
    cluster.write("train", "metadata", "labels", value={names.KUEUE_QUEUE: "queue"})
    drain(cluster, home(cluster), by_force=True)
    assert stops(cluster.at(300)) == []
    assert "Kueue manages it: stop it there" in shown(cluster)


def test_a_drain_that_is_undone_before_the_answer_changes_nothing() -> None:
    cluster = bed(replace(MOVES, answers=60.0)).at(100)
    before = home(cluster)
    drain(cluster, before)
    cluster.after(30)
    drain(cluster, before, off=True)
    assert (stops(cluster.at(300)), nodes_of(cluster)) == ([], [before])
    assert cluster.job().training.lost == 0


def user_releases(bed: Bed) -> None:
    bed.annotate(names.RELEASED, "a person")


def user_takes_over(bed: Bed) -> None:
    bed.annotate(names.HELD, None)


@pytest.mark.parametrize("event", [user_releases, user_takes_over])
def test_the_capacity_elsewhere_is_free_once_the_user_decides_on_the_job(
    event: Callable[[Bed], None],
) -> None:
    cluster = bed(replace(MOVES, grace=30.0)).at(100)
    drain(cluster, home(cluster))
    until(cluster, stops)
    assert cluster.planner.cluster.holds.holders()
    event(cluster)
    assert cluster.after(60).planner.cluster.holds.holders() == ()


def test_a_gang_with_a_pod_that_has_ended_leaves_by_force() -> None:
    cluster = bed().at(100)
    before, pods = home(cluster), cluster.job().pods
    cluster.api.set_phase(pods[max(pods, key=str)], "Succeeded")
    drain(cluster.after(3), before, by_force=False)
    assert "not all of its pods run" in shown(cluster.after(10))
    drain(cluster, before, by_force=True)
    until(cluster, lambda cluster: trains_away(cluster, before))


def test_a_gang_that_waits_for_drained_nodes_is_not_released() -> None:
    bed = Bed(MOVES, replace(URGENT, priority="", arrives=50.0), policy=None, a=4000).at(60)
    drain(bed, "a")
    bed.after(300)
    for name in ("train", "urgent"):
        assert bed.job(name).job.suspend, name
        assert not bed.job(name).job.released, name
    drain(bed, "a", off=True)
    until(bed, trains)


def restart(bed: Bed) -> None:
    """Replace the controller; the node is still drained."""
    bed.restart()
    drain(bed, "a")


FAULTS: dict[str, tuple[Callable[[Bed], Any], Callable[[Bed], None]]] = {
    "the controller dies before the answer": (lambda cluster: cluster.clock.now >= 107, restart),
    "the controller dies after the stop": (stops, restart),
    "the other node is lost after the stop": (stops, lambda cluster: cluster.lose("b")),
}


@pytest.mark.parametrize(("when", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_drain_survives_a_fault(when: Callable[[Bed], Any], fault: Callable[[Bed], None]) -> None:
    cluster = bed(a=4000, b=4000, c=4000).at(100)
    assert home(cluster) == "a"
    drain(cluster, "a")
    until(cluster, when)
    fault(cluster)
    until(cluster, lambda cluster: trains_away(cluster, "a"))
    assert cluster.planner.cluster.holds.holders() == ()
    assert not cluster.operator.failed


def test_no_job_takes_the_capacity_that_a_leaving_job_moves_to() -> None:
    cluster = bed(replace(MOVES, grace=60.0)).at(100)
    before = home(cluster)
    drain(cluster, before)
    until(cluster, stops)
    cluster.submit(replace(URGENT, name="late", arrives=cluster.clock.now, priority=""))
    until(cluster, lambda cluster: trains_away(cluster, before))
    assert cluster.job("late").job.suspend
