"""Jobs that stop for a job of higher priority: when, which jobs, also after faults."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfext import names
from kfext.core.lifecycle.steps import RequestCheckpoint, Suspend, Unsuspend
from kfext.errors import Forbidden
from kfext.model.parameters import Placement
from kfext.model.plan import Places
from kfext.model.pod import Pod
from kfext.model.policy import Mode, PolicyChoice, TrainingPolicy
from kfext.model.priority import PriorityClass
from kfext.model.quantity import CPU
from kfext.sim.jobs import JobSpec, Pace, Saving, Style
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.stop.search import StopSearch
from tests.unit.sim.bed import Bed, refuse
from tests.unit.sim.test_moves import limited

CLASSES = (
    PriorityClass("low", -10),
    PriorityClass("urgent", 100),
    PriorityClass("calm", 100, preempts=False),
)
ACT = TrainingPolicy(
    "act",
    placement=Placement(release_after=86_400.0),
    companion={"preempt": PolicyChoice(Mode.ACT)},
)
"""Jobs are never released: a gang of higher priority would go to plain Kubernetes after 60 s."""

VICTIM = JobSpec(
    "train", "PyTorchJob", Style.GANG, 5.0, 3, Pace(1.0, 0.0, 0.0), 20_000, leaders=1,
    saving=Saving.ON_REQUEST, preempt="checkpoint",
)  # fmt: skip
URGENT = replace(
    VICTIM,
    name="urgent",
    arrives=100.0,
    steps=200,
    saving=Saving.NEVER,
    preempt="",
    priority="urgent",
)
WAIT = 30.0
FOREIGN = Pod("other", "foreign", uid="foreign", node_name="a", requests={CPU: 500})
LATER = 1500.0


class PreemptBed(Bed):
    """A cluster with classes of priority that may preempt."""

    def __init__(self, *jobs: JobSpec, policy: TrainingPolicy | None = ACT, **nodes: int) -> None:
        sizes = nodes or {"a": 4000}
        super().__init__(*jobs, policy=policy, late_writes=True, **sizes)
        self.api.priorities = {class_.name: class_.value for class_ in CLASSES}

    def _show_world(self) -> None:
        super()._show_world()
        for class_ in CLASSES:
            self.planner.queue.observe_class(None, class_)


def until(bed: Bed, when: Callable[[Bed], Any], *, most: float = LATER) -> Bed:
    while not when(bed):
        bed.after(1)
        assert bed.clock.now < most, "it never happened"
    return bed


def stops(bed: Bed, reason: str = names.REASON_STOPPED) -> list[str]:
    """The names of the jobs stopped for a reason, in order; by default for another job."""
    return [
        write.job
        for write in bed.driver.written
        if isinstance(write.step, Suspend) and write.step.state.reason == reason
        if not write.refused
    ]


def asks(bed: Bed) -> list[str]:
    return [write.job for write in bed.driver.written if isinstance(write.step, RequestCheckpoint)]


def shown(bed: Bed, name: str = "train") -> str:
    status = bed.driver.shown.get((name, names.STOPPED))
    return status.verdict.reason if status else ""


def runs(bed: Bed, name: str) -> bool:
    return f"uid-{name}" in bed.api.jobs and not bed.job(name).job.suspend


def check(bed: Bed) -> None:
    """Check that no hold remains and no job failed."""
    assert bed.planner.cluster.holds.holders() == ()
    assert not bed.operator.failed


def test_a_job_of_higher_priority_starts_once_another_has_saved_its_work_and_stopped() -> None:
    bed = PreemptBed(VICTIM, URGENT).at(100 + WAIT - 5)
    assert (stops(bed), shown(bed)) == ([], names.REASON_MAY_STOP)
    until(bed, lambda bed: runs(bed, "urgent"))
    assert (stops(bed), asks(bed)) == (["train"], ["train"])
    assert bed.clock.now <= 100 + WAIT + 30
    status = bed.driver.shown["train", names.STOPPED]
    assert status is not None
    assert (status.holds, status.verdict.reason) == (True, names.REASON_STOPPED)
    assert "it continues from step" in status.verdict.message
    bed.at(600)
    assert (runs(bed, "train"), shown(bed)) == (True, names.REASON_RESTS)
    bed.run()
    assert (stops(bed), bed.job().training.lost <= 10.0) == (["train"], True)
    check(bed)


OBSERVES = replace(ACT, companion={})
OFF = replace(ACT, companion={"preempt": PolicyChoice(Mode.OFF)})
OTHER = replace(VICTIM, name="other", arrives=6.0, preempt="")
HALF = replace(VICTIM, workers=1, leaders=1)

Case = tuple[tuple[JobSpec, ...], TrainingPolicy, dict[str, int], str]
STAYS: dict[str, Case] = {
    "of the same priority": ((VICTIM, replace(URGENT, priority="")), ACT, {}, "MayBeStopped"),
    "of a higher priority": ((VICTIM, replace(URGENT, priority="low")), ACT, {}, "MayBeStopped"),
    "for a class that does not preempt": (
        (VICTIM, replace(URGENT, priority="calm")),
        ACT,
        {},
        "MayBeStopped",
    ),
    "without the annotation": ((replace(VICTIM, preempt=""), URGENT), ACT, {}, ""),
    "that allows moves alone": (
        (replace(VICTIM, preempt="", migrate="checkpointed"), URGENT),
        ACT,
        {},
        "",
    ),
    "where the policy is off": ((VICTIM, URGENT), OFF, {}, ""),
    "where no policy lets kfext act": ((VICTIM, URGENT), OBSERVES, {}, "WouldStop"),
    "that has shown no checkpoint": (
        (replace(VICTIM, saving=Saving.NEVER), URGENT),
        ACT,
        {},
        "NoCheckpointSeen",
    ),
    "if the waiting job would not fit even then": (
        (replace(VICTIM, workers=1), OTHER, replace(URGENT, workers=3, leaders=1)),
        ACT,
        {"a": 6000},
        "MayBeStopped",
    ),
    "if there would be enough capacity, but on the wrong nodes": (
        (
            *(replace(HALF, name=name) for name in ("train", "train-b")),
            *(replace(HALF, name=name, preempt="", arrives=6.0) for name in ("other", "other-b")),
            replace(URGENT, workers=0, leaders=1, cpu=4000, uses=4000),
        ),
        ACT,
        {"a": 4000, "b": 4000},
        "MayBeStopped",
    ),
    "for a job that fits": ((VICTIM, URGENT), ACT, {"a": 4000, "b": 4000}, "MayBeStopped"),
}


@pytest.mark.parametrize(("jobs", "policy", "nodes", "reason"), STAYS.values(), ids=STAYS)
def test_no_job_is_stopped(
    jobs: tuple[JobSpec, ...], policy: TrainingPolicy, nodes: dict[str, int], reason: str
) -> None:
    bed = PreemptBed(*jobs, policy=policy, **nodes).at(250)
    assert (stops(bed), asks(bed), shown(bed)) == ([], [], reason)


def test_no_job_is_stopped_for_pods_of_its_own_priority_whatever_their_leader_has() -> None:
    bed = PreemptBed(VICTIM, URGENT)
    bed.at(101)
    edit_class("", "Worker")(bed)
    bed.at(400)
    assert (stops(bed), runs(bed, "urgent")) == ([], False)


def test_the_first_of_the_queue_is_checked_however_many_jobs_wait() -> None:
    fills = replace(VICTIM, name="fills", arrives=1.0, preempt="", saving=Saving.NEVER)
    small = replace(URGENT, arrives=60.0, workers=0, priority="")
    many = [replace(small, name=f"small{number}", cpu=900 + number % 9) for number in range(100)]
    bed = PreemptBed(fills, VICTIM, *many, URGENT, a=4000, b=4000)
    until(bed.at(100), asks)
    assert bed.clock.now <= 100 + WAIT + 10


def test_jobs_of_one_shape_are_searched_for_once_until_capacity_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = replace(HALF, name="other", preempt="")
    many = (replace(URGENT, name=f"urgent{number}") for number in range(12))
    bed = PreemptBed(HALF, other, *many)
    bed.at(100 + WAIT + 30)
    searches: list[str] = []
    search = StopSearch.places

    def counted(found: StopSearch, waiting: TrackedJob, *rest: Any, now: float) -> Places | None:
        searches.append(waiting.job.name)
        return search(found, waiting, *rest, now=now)

    monkeypatch.setattr(StopSearch, "places", counted)
    bed.after(60)
    assert (searches, stops(bed)) == ([], [])


def test_a_stopped_job_is_never_released_however_long_it_waits() -> None:
    policy = replace(ACT, placement=Placement(release_after=300.0))
    bed = PreemptBed(VICTIM, replace(URGENT, steps=2400), policy=policy)
    until(bed, stops)
    bed.after(500)
    assert (runs(bed, "train"), bed.job().job.released) == (False, False)


def test_no_job_is_stopped_for_a_job_that_a_quota_blocks() -> None:
    bed = PreemptBed(VICTIM, URGENT)
    limited(bed, pods=4)
    assert stops(bed.at(250)) == []


def two(first: dict[str, Any], second: dict[str, Any], **urgent: Any) -> PreemptBed:
    """Two jobs that each have half of a node, and a job that needs the whole node."""
    return PreemptBed(
        replace(HALF, name="first", **first),
        replace(HALF, name="second", **second),
        replace(URGENT, **urgent),
    )


CHOICES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "lower priority first": ({}, {"priority": "low"}, ["second"]),
    "a job with a checkpoint before a job of lower priority without one": (
        {"preempt": "always", "saving": Saving.NEVER, "priority": "low"},
        {},
        ["second"],
    ),
    "less unsaved work first": (
        {"saving": Saving.PERIODIC, "every": 2500},
        {"saving": Saving.ON_REQUEST},
        ["second"],
    ),
    "the cheapest set, without a job that can be spared": (
        {"workers": 0, "priority": "low"},
        {"workers": 2},
        ["second"],
    ),
}


@pytest.mark.parametrize(("first", "second", "chosen"), CHOICES.values(), ids=CHOICES)
def test_the_cheapest_jobs_stop(
    first: dict[str, Any], second: dict[str, Any], chosen: list[str]
) -> None:
    bed = two(first, second, arrives=3000.0, workers=second.get("workers", 1), leaders=1)
    until(bed, lambda bed: runs(bed, "urgent"), most=3200)
    assert stops(bed) == chosen


def test_jobs_that_answer_at_different_speeds_save_at_the_same_time() -> None:
    each = [
        replace(VICTIM, name=f"v{number}", leaders=1, workers=workers, answers=answers)
        for number, (answers, workers) in enumerate(((5.0, 0), (60.0, 0), (110.0, 1)))
    ]
    bed = PreemptBed(*each, URGENT)
    until(bed, stops)
    until(bed, lambda bed: runs(bed, "urgent"))
    assert (sorted(stops(bed)), len(asks(bed))) == (["v0", "v1", "v2"], 6)
    assert max(bed.job(spec.name).training.lost for spec in each) <= 20


def test_two_jobs_stop_together_after_the_slower_has_saved() -> None:
    bed = two({"answers": 3.0}, {"answers": 40.0})
    until(bed, stops)
    pair, written = {"first", "second"}, bed.driver.written
    suspended = [w for w in written if w.job in pair and isinstance(w.step, Suspend)]
    assert sorted(stops(bed.after(3))) == ["first", "second"]
    assert max(w.at for w in suspended) - min(w.at for w in suspended) <= 3
    assert asks(bed).count("first") == 2, "it trained for 40 s more, and is asked again"
    until(bed, lambda bed: runs(bed, "urgent"))
    assert bed.job("first").training.lost <= 10.0
    check(bed)


def test_a_job_that_saves_by_itself_is_awaited() -> None:
    bed = PreemptBed(replace(VICTIM, saving=Saving.PERIODIC, every=240), URGENT)
    until(bed, stops)
    assert asks(bed) == []
    assert bed.job().training.done - bed.job().training.saved <= 40
    counts = bed.planner.companion.preempted
    assert (dict(counts.asked), counts.work <= 10.0) == ({"answered": 1}, True)


def test_a_job_without_any_checkpoint_stops_only_if_it_allows_that() -> None:
    bed = PreemptBed(replace(VICTIM, saving=Saving.NEVER, preempt="always"), URGENT)
    until(bed, stops)
    counts = bed.planner.companion.preempted
    assert (dict(counts.asked), asks(bed), counts.work > 100) == ({"none": 1}, [], True)
    until(bed, lambda bed: runs(bed, "urgent"))


LATE: dict[str, tuple[str, list[str], dict[str, int]]] = {
    "a job that answers too late stays": ("checkpoint", [], {}),
    "a job that may lose its work stops without the answer": ("always", ["train"], {"late": 1}),
}


@pytest.mark.parametrize(("opted", "stopped", "counted"), LATE.values(), ids=LATE)
def test_an_answer_is_late(opted: str, stopped: list[str], counted: dict[str, int]) -> None:
    bed = PreemptBed(replace(VICTIM, answers=200.0, preempt=opted), URGENT).at(290)
    assert (stops(bed), dict(bed.planner.companion.preempted.asked)) == (stopped, counted)
    assert runs(bed, "urgent") is bool(stopped)
    check(bed)


def test_the_next_jobs_are_asked_if_the_first_do_not_answer() -> None:
    bed = two({"answers": 500.0, "priority": "low"}, {}, workers=1, leaders=1)
    until(bed, lambda bed: runs(bed, "urgent"))
    assert (asks(bed)[0], stops(bed)) == ("first", ["second"])
    check(bed)


def test_an_answer_before_the_request_counts_for_no_later_request() -> None:
    bed = PreemptBed(VICTIM, URGENT).at(60)
    bed.ask(7)
    until(bed, stops)
    assert bed.job().training.done - bed.job().training.saved <= 15
    assert asks(bed) == ["train"]


def test_no_third_job_takes_the_capacity_while_two_jobs_end_60_s_apart() -> None:
    bed = two({"grace": 60.0}, {})
    third = replace(URGENT, name="third", arrives=140.0, workers=1, leaders=1)
    bed.clock.after(140.0, lambda: bed.submit(third))
    until(bed, lambda bed: runs(bed, "urgent"))
    assert (sorted(stops(bed)), runs(bed, "third")) == (["first", "second"], False)
    check(bed)


def test_jobs_never_stop_for_two_jobs_in_the_same_capacity() -> None:
    bed = two({}, {}, workers=1, leaders=1)
    bed.clock.after(101.0, lambda: bed.submit(replace(URGENT, name="also", workers=1, leaders=1)))
    until(bed, lambda bed: runs(bed, "urgent") and runs(bed, "also"))
    assert sorted(stops(bed)) == ["first", "second"]
    check(bed)


def test_a_job_has_a_pause_after_each_stop_and_longer_each_time() -> None:
    urgent = (replace(URGENT, name=f"urgent-{n}", arrives=100.0 + 300 * n) for n in range(10))
    written = PreemptBed(VICTIM, *urgent).at(3300).driver.written
    at = [write.at for write in written if isinstance(write.step, Suspend)]
    assert len(at) == 3
    assert at[1] - at[0] >= 600
    assert at[2] - at[1] >= 1200


def finish(bed: Bed) -> None:
    bed.operator.end(bed.job())


def delete_urgent(bed: Bed) -> None:
    bed.api.delete_job(bed.job("urgent"))


def grow_urgent(bed: Bed) -> None:
    bed.scale(30, "urgent")


def add_rival(bed: Bed) -> None:
    """Bind a foreign pod to the node."""
    bed.planner.cluster.observe_pod(None, FOREIGN)


def lose_class(bed: Bed) -> None:
    bed.planner.queue.observe_class(CLASSES[1], None)


def edit_class(name: str, *groups: str) -> Callable[[Bed], None]:
    """Give the pods of the waiting job another class."""

    def edit(bed: Bed) -> None:
        for group in groups or ("Master", "Worker"):
            spec = "spec", "pytorchReplicaSpecs", group, "template", "spec"
            bed.write("urgent", *spec, "priorityClassName", value=name)

    return edit


def keep_back(bed: Bed) -> None:
    limited(bed, pods=2)


def lack_volume(bed: Bed) -> None:
    """Let the workers of the waiting job mount a volume claim that does not exist."""
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]
    spec = "spec", "pytorchReplicaSpecs", "Worker", "template", "spec"
    bed.write("urgent", *spec, "volumes", value=volumes)


AFTER: dict[str, tuple[Callable[[Bed], None], Callable[[Bed], Any], list[str], str]] = {
    "a victim that ends while it is asked": (finish, asks, [], "urgent"),
    "the waiting job is deleted while others are asked": (delete_urgent, asks, [], "train"),
    "the waiting job is edited larger while others are asked": (grow_urgent, asks, [], "train"),
    "a foreign pod takes the capacity while others are asked": (add_rival, asks, [], "train"),
    "its class is deleted while others are asked": (lose_class, asks, [], "train"),
    "its class is lowered while others are asked": (edit_class("low"), asks, [], "train"),
    "its workers get a lower class meanwhile": (edit_class("", "Worker"), asks, [], "train"),
    "its class stops preempting while others are asked": (edit_class("calm"), asks, [], "train"),
    "a quota blocks it while others are asked": (keep_back, asks, [], "train"),
    "it lacks a volume while others are asked": (lack_volume, asks, [], "train"),
    "Kueue takes a victim over while it is asked": (
        lambda bed: bed.write("train", "metadata", "labels", value={names.KUEUE_QUEUE: "queue"}),
        asks,
        [],
        "train",
    ),
    "a quota blocks it after the stop": (keep_back, stops, ["train"], ""),
    "the node of a victim is lost while it is asked": (lambda bed: bed.lose("a"), asks, [], ""),
    "the waiting job is deleted after the stop": (delete_urgent, stops, ["train"], "train"),
    "a foreign pod takes the capacity after the stop": (add_rival, stops, ["train"], ""),
}


@pytest.mark.parametrize(("event", "when", "stopped", "runner"), AFTER.values(), ids=AFTER)
def test_an_event_during_a_preemption(
    event: Callable[[Bed], None], when: Callable[[Bed], Any], stopped: list[str], runner: str
) -> None:
    bed = PreemptBed(VICTIM, URGENT)
    until(bed, when)
    event(bed)
    bed.after(60)
    assert (stops(bed), not runner or runs(bed, runner)) == (stopped, True)
    check(bed)


@pytest.mark.parametrize("kind", ["PyTorchJob", "TrainJob", "TFJob"])
@pytest.mark.parametrize("write", [1, 2])
def test_a_controller_dies_after_each_write(kind: str, write: int) -> None:
    bed = two({"kind": kind, "leaders": 0, "workers": 2}, {"grace": 30.0})
    until(bed, lambda bed: len(asks(bed)) == 2)
    for _ in range(write):
        known = len(stops(bed))
        bed.faults.dies = True
        while len(stops(bed)) == known:
            bed.after(1)
            assert bed.clock.now < LATER
    until(bed, lambda bed: runs(bed, "urgent"))
    assert sorted(set(stops(bed))) == ["first", "second"]
    bed.run()
    check(bed)


def test_a_new_controller_keeps_the_hold_from_its_first_decision_on() -> None:
    bed = two({}, {"grace": 60.0})
    until(bed, lambda bed: len(stops(bed)) == 2 and not bed.job("first").pods)
    bed.submit(replace(URGENT, name="third", workers=1, priority="", arrives=bed.clock.now))
    bed.restart()
    until(bed, lambda bed: runs(bed, "urgent"))
    assert not runs(bed, "third")


def test_elastic_jobs_give_workers_before_a_job_stops_however_long_their_save() -> None:
    train = replace(VICTIM, leaders=0, workers=2)
    elastic = replace(train, name="elastic", style=Style.TORCHRUN, bounds=(1, 2), answers=60.0)
    elastic = replace(elastic, preempt="")
    bed = PreemptBed(train, elastic, replace(URGENT, workers=0, deadline=600))
    until(bed, lambda bed: runs(bed, "urgent"))
    assert (stops(bed), bed.job("elastic").workers) == ([], 1)


def test_a_refused_stop_is_shown_and_the_next_jobs_stop() -> None:
    bed = two({"priority": "low"}, {}, workers=1, leaders=1)
    until(bed, asks)
    refuse(bed, lambda uid, _: uid == "uid-first", Forbidden(status=403, reason="F", message="no"))
    until(bed, lambda bed: runs(bed, "urgent"))
    assert (shown(bed, "first"), stops(bed)) == (names.REASON_STOP_REFUSED, ["second"])
    check(bed)


def test_the_waiting_job_shows_which_jobs_of_its_namespace_stop_for_it() -> None:
    bed = PreemptBed(VICTIM, URGENT)
    until(bed, asks)
    bed.after(1)
    sentence = bed.planner.queue.shown_verdict(bed.planner.cluster.jobs["uid-urgent"])
    assert sentence is not None
    assert sentence.reason == names.REASON_PREEMPTING
    assert sentence.message.startswith("PyTorchJob team/train has to save and stop for it; ")


# --- random clusters ------------------------------------------------------------------------------


@dataclass
class Watch:
    """Watches the stops of a cluster; `broken`: the broken rules, as sentences."""

    bed: PreemptBed
    broken: list[str] = field(default_factory=list)
    count: int = 0
    last: dict[str, float] = field(default_factory=dict)
    times: Counter[str] = field(default_factory=Counter)
    _seen: int = 0

    def __post_init__(self) -> None:
        self.bed.on_second.append(self.check)

    def check(self) -> None:
        written = self.bed.driver.written
        for write in written[self._seen :]:
            if isinstance(write.step, Suspend) and write.step.state.stop.waiting:
                self._judge(write.job, write.step.state.stop.waiting, write.at)
        self._seen = len(written)

    def _judge(self, job: str, waiting: str, at: float) -> None:
        priority = {
            live.uid: self.bed.api.priorities.get(live.spec.priority, 0) for live in self.bed.jobs
        }
        self.count += 1
        if priority[f"uid-{job}"] >= priority[waiting]:
            self.broken.append(f"{job} was stopped for {waiting}")
        rest = 600 * 2 ** (self.times[job] - 1) if job in self.last else 0
        if at - self.last.get(job, -math.inf) < rest:
            self.broken.append(f"{job} was stopped again after {at - self.last[job]:g} s")
        self.last[job], self.times[job] = at, self.times[job] + 1
        self.bed.clock.after(200, lambda: self._has_started(waiting, at))

    def _has_started(self, waiting: str, at: float) -> None:
        job = self.bed.api.jobs[waiting].spec.name
        started = (
            write.job == job and isinstance(write.step, Unsuspend) and write.at >= at
            for write in self.bed.driver.written
        )
        if not any(started):  # it may have stopped again, for a third job
            self.broken.append(f"{waiting} did not start after the stops at {at:g} s")


@st.composite
def worlds(draw: st.DrawFn) -> tuple[JobSpec, ...]:
    number = draw(st.integers(3, 10))
    return tuple(
        replace(
            VICTIM,
            name=f"job-{at}",
            kind=draw(st.sampled_from(["PyTorchJob", "TFJob", "TrainJob"])),
            arrives=float(draw(st.integers(1, 900))),
            leaders=0,
            workers=draw(st.integers(1, 6)),
            steps=draw(st.integers(300, 4000)),
            saving=draw(st.sampled_from(Saving)),
            every=draw(st.integers(20, 600)),
            answers=float(draw(st.integers(1, 140))),
            grace=float(draw(st.sampled_from([2, 30]))),
            preempt=draw(st.sampled_from(["", "checkpoint", "checkpoint", "always"])),
            priority=draw(st.sampled_from(["low", "", "urgent"])),
        )
        for at in range(number)
    )


@given(jobs=worlds())
@settings(max_examples=15)
def test_the_rules_of_preemption_hold_in_random_clusters(jobs: tuple[JobSpec, ...]) -> None:
    bed = PreemptBed(*jobs, a=4000, b=4000)
    watch = Watch(bed)
    bed.run()
    assert (watch.broken, bed.operator.failed, bed.over) == ([], {}, True)
    assert bed.planner.cluster.holds.holders() == ()
