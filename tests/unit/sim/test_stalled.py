"""Stalled jobs that are restarted: which jobs, on which nodes, and after faults."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from kfext import names
from kfext.core.lifecycle.steps import Suspend
from kfext.core.progress import stall
from kfext.model.cpu_use import CpuUse
from kfext.sim.jobs import JobSpec, Saving, Style
from kfext.sim.objects import LivePod
from kfext.sim.training import Doing
from tests.unit.sim.bed import Bed, refuse
from tests.unit.sim.test_drain import MOVES, bed, nodes_of, trains
from tests.unit.sim.test_preempt import URGENT, PreemptBed, until
from tests.unit.sim.test_preempt import stops as stopped

FACTOR = 0.1
"""The scale of all times of the rule: two hours are twelve minutes."""
SAVES = replace(MOVES, saving=Saving.PERIODIC, every=60)
OLD = 1000.0
"""The second of the hang: the job is no new job by then."""
LATER = 4000.0

stops = partial(stopped, reason=names.REASON_STALLED)
"""Returns the names of the jobs that were stopped because they were stalled, in order."""


@pytest.fixture(autouse=True)
def scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EARLY_SECONDS", "SETTLED_SECONDS"):
        monkeypatch.setattr(stall, name, getattr(stall, name) * FACTOR)
    for name in ("REPORT", "RESTART"):
        rule: stall.Rule = getattr(stall, name)
        times = (FACTOR * seconds for seconds in (rule.least, rule.early, rule.first))
        monkeypatch.setattr(stall, name, stall.Rule(rule.times, *times))


def stalls(bed: Bed, *, setting: str = "restart", name: str = "train") -> Bed:
    """Let the training hang at OLD; all pods continue to run."""
    bed.annotate(names.STALLED, setting, name)
    return hang(bed.at(OLD), name)


def hang(bed: Bed, name: str = "train") -> Bed:
    bed.job(name).training._become(Doing.IDLE)
    return bed


def restarted(bed: Bed, name: str = "train") -> bool:
    """Whether a job was stopped and trains again."""
    return bool(stops(bed)) and trains(bed, name)


def check(bed: Bed) -> None:
    assert bed.planner.cluster.holds.holders() == ()
    assert not bed.operator.failed


KINDS: dict[str, dict[str, Any]] = {
    "a PyTorchJob": {},
    "a TFJob": {"kind": "TFJob", "leaders": 0, "workers": 4},
    "a TrainJob": {"kind": "TrainJob", "leaders": 0, "workers": 4},
    "an elastic job": {"style": Style.TORCHRUN, "leaders": 0, "workers": 4, "bounds": (2, 4)},
    "a job that saves on request": {"saving": Saving.ON_REQUEST},
    "a job that may be preempted too": {"preempt": "checkpoint"},
}


@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)
def test_a_stalled_job_that_opted_in_starts_again_from_its_checkpoint(
    changes: dict[str, Any],
) -> None:
    cluster = bed(replace(SAVES, **changes)).at(100)
    if cluster.job().spec.saving is Saving.ON_REQUEST:
        cluster.job().training.request(1)
        until(cluster, lambda cluster: cluster.job().training.saved)
    saved = stalls(cluster).job().training.saved
    until(cluster, restarted, most=LATER)
    assert (stops(cluster), cluster.job().training.lost_all) == (["train"], 0)
    assert cluster.job().training.done >= saved > 0
    check(cluster.after(60))
    assert cluster.job().job.suspend is False


def restarts_at(bed: Bed) -> float:
    (at,) = [w.at for w in bed.driver.written if isinstance(w.step, Suspend) and w.at > OLD]
    return at


def test_a_stall_is_shown_first_and_the_job_restarted_after_half_an_hour() -> None:
    cluster = stalls(bed(SAVES).at(100))
    until(cluster, lambda cluster: cluster.planner.progress.stalled, most=LATER)
    shown = cluster.clock.now
    until(cluster, restarted, most=LATER)
    late = 30  # a read each 10 s, before and after the silence
    assert 90 <= shown - OLD <= 90 + late
    assert 180 <= restarts_at(cluster) - OLD <= 180 + late


STAYS: dict[str, tuple[dict[str, Any], str]] = {
    "only asks for a report": ({}, "report"),
    "does not state that it resumes": ({"migrate": ""}, "restart"),
    "has shown no checkpoint": ({"saving": Saving.NEVER}, "restart"),
}


@pytest.mark.parametrize(("changes", "setting"), STAYS.values(), ids=STAYS)
def test_a_stalled_job_is_only_reported(changes: dict[str, Any], setting: str) -> None:
    cluster = stalls(bed(replace(SAVES, **changes)).at(100), setting=setting)
    assert (stops(cluster.at(OLD + 900)), cluster.planner.progress.stalled) == ([], 1)


def test_a_job_that_Kueue_manages_is_only_reported() -> None:
    cluster = bed(SAVES).at(100)
    cluster.write("train", "metadata", "labels", value={names.KUEUE_QUEUE: "queue"})
    stalls(cluster)
    assert (stops(cluster.at(OLD + 900)), cluster.planner.progress.stalled) == ([], 1)


def test_a_job_with_a_pod_that_has_ended_is_only_reported() -> None:
    cluster = stalls(bed(SAVES).at(100))
    (live,) = [live for live in cluster.job().pods.values() if is_third(live)]
    cluster.api.set_phase(live, "Succeeded")
    assert (stops(cluster.at(OLD + 900)), cluster.planner.progress.stalled) == ([], 1)


def stops_for_another(cluster: Bed) -> None:
    cluster.submit(replace(URGENT, arrives=cluster.clock.now))
    until(cluster, lambda cluster: stopped(cluster) and not trains(cluster), most=LATER)


BETWEEN: dict[str, Callable[[Bed], None]] = {
    "it continues to train": lambda cluster: None,
    "it stops for a job of higher priority": stops_for_another,
}


@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_a_job_is_restarted_twice_at_most(between: Callable[[Bed], None]) -> None:
    cluster = PreemptBed(replace(SAVES, preempt="checkpoint"))
    stalls(cluster.at(100))
    until(cluster, restarted, most=LATER)
    hang(cluster.after(60))
    until(cluster, lambda cluster: len(stops(cluster)) == 2 and trains(cluster), most=LATER)
    between(cluster.after(60))
    until(cluster, trains, most=LATER)
    hang(cluster.after(60)).after(2000)
    assert stops(cluster) == ["train", "train"]
    assert cluster.planner.progress.stalled == 1


# --- the next nodes -------------------------------------------------------------------------------


def uses(bed: Bed, odd: Callable[[LivePod], bool]) -> None:
    """Let some pods use half of the CPU of the others."""

    def use(live: LivePod) -> CpuUse:
        return CpuUse(0.5 if odd(live) else 1.0, at=bed.clock.wall, window=30.0)

    bed.driver.measure = use


def is_third(live: LivePod) -> bool:
    return live.key.type == "worker" and live.key.index == 2


def third(bed: Bed) -> str:
    (live,) = [live for live in bed.job().pods.values() if is_third(live)]
    return live.pod.node_name


LARGE = replace(SAVES, cpu=2000, uses=2000)


def test_a_job_restarts_without_the_node_of_the_pod_that_differs() -> None:
    cluster = bed(LARGE, a=4000, b=4000, c=4000).at(100)
    before = third(cluster)
    uses(cluster, is_third)
    until(stalls(cluster), restarted, most=LATER)
    assert (stops(cluster), before in nodes_of(cluster)) == (["train"], False)
    (state,) = [w.step.state for w in cluster.driver.written if isinstance(w.step, Suspend)][-1:]
    assert f"train-worker-2 on {before} uses 0.5 CPUs" in state.message
    assert "it continues from step" in state.message
    check(cluster)


def test_a_job_restarts_on_its_nodes_if_there_is_no_other_capacity() -> None:
    cluster = bed(LARGE, a=4000, b=4000).at(100)
    before = nodes_of(cluster)
    uses(cluster, is_third)
    until(stalls(cluster), restarted, most=LATER)
    assert (stops(cluster), nodes_of(cluster)) == (["train"], before)


def test_no_other_job_takes_the_capacity_of_a_stalled_job_while_its_pods_end() -> None:
    cluster = bed(replace(SAVES, grace=60.0), a=4000).at(100)
    until(stalls(cluster), stops, most=LATER)
    cluster.submit(replace(URGENT, name="late", arrives=cluster.clock.now, priority=""))
    until(cluster, restarted, most=LATER)
    assert cluster.job("late").job.suspend


# --- faults ---------------------------------------------------------------------------------------


def dies(bed: Bed) -> None:
    """Replace the controller; the next one reads the last lines of the log once more."""
    training = bed.job().training
    bed.restart()
    training._print(OLD, training._progress(training.done))
    training._print(OLD, f"saved checkpoint to out/step-{training.saved}.pt")


def is_stop(_uid: str, change: Any) -> bool:
    writes = [operation for operation in change or () if operation["op"] != "test"]
    return any(write["path"].endswith("/suspend") and write["value"] for write in writes)


FAULTS: dict[str, tuple[Callable[[Bed], Any], Callable[[Bed], Any]]] = {
    "the controller dies while the job hangs": (lambda cluster: cluster.clock.now > OLD + 60, dies),
    "the controller dies after the stop": (stops, dies),
    "the controller dies in the stop": (
        lambda cluster: cluster.clock.now > OLD + 60,
        lambda cluster: setattr(cluster.faults, "dies", True),
    ),
    "the node is lost after the stop": (stops, lambda cluster: cluster.lose(nodes_of(cluster)[0])),
    "the write is refused once": (
        lambda cluster: cluster.clock.now > OLD + 60,
        lambda cluster: refuse(cluster, is_stop),
    ),
}


@pytest.mark.parametrize(("when", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_restart_survives_a_fault(
    when: Callable[[Bed], Any], fault: Callable[[Bed], Any]
) -> None:
    cluster = stalls(bed(SAVES).at(100))
    until(cluster, when, most=LATER)
    fault(cluster)
    until(cluster, restarted, most=LATER)
    assert stops(cluster.after(300)) == ["train"]
    check(cluster)


def user_suspends(bed: Bed) -> None:
    bed.annotate(names.HELD, None)


def test_the_capacity_is_free_once_the_user_takes_over() -> None:
    cluster = bed(replace(SAVES, grace=30.0)).at(100)
    until(stalls(cluster), stops, most=LATER)
    assert cluster.planner.cluster.holds.holders()
    user_suspends(cluster)
    assert cluster.after(60).planner.cluster.holds.holders() == ()


def test_a_job_that_trains_again_before_the_restart_is_left_alone() -> None:
    cluster = stalls(bed(SAVES).at(100)).at(OLD + 150)
    training = cluster.job().training
    training._become(Doing.TRAINS)
    training._print_at = cluster.clock.now
    assert stops(cluster.after(400)) == []


OTHER: JobSpec = replace(SAVES, name="other", cpu=500, uses=500)


def test_a_job_beside_a_stalled_job_continues() -> None:
    cluster = bed(replace(SAVES, cpu=500, uses=500), OTHER).at(100)
    until(stalls(cluster), restarted, most=LATER)
    assert (stops(cluster), cluster.job("other").training.lost) == (["train"], 0)
