"""Faults during a change of size: the change ends, and delays no other job."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kfext import names
from kfext.core.lifecycle.steps import RequestCheckpoint, RestartWorkers
from kfext.core.placement.gang import Member
from kfext.core.placement.place import place
from kfext.errors import Forbidden
from kfext.model.log_line import LogLine
from kfext.model.namespace import Namespace
from kfext.model.pod import ReplicaKey
from kfext.model.policy import Mode, PolicyChoice, TrainingPolicy
from kfext.model.verdict import Verdict
from kfext.sim.api import TEAM
from kfext.sim.jobs import JobSpec, Pace, Saving
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running import capacity_search
from kfext.state.running.capacity_search import CapacitySearch
from kfext.state.running.operation import Phase
from kfext.state.running.proposal import Cause
from kfext.state.running.running_job import RunningJob
from kfext.state.running.size import executor as size_executor
from kfext.state.running.size.executor import SizeExecutor
from kfext.state.running.size.record import record_of as size_record
from kfext.state.running.size.scale_policy import MAX_SEARCHED
from kfext.state.running.size.scale_search import ScaleSearch
from tests.builders import executor_of
from tests.unit.sim.bed import (
    ANEW,
    CONFLICT,
    GANG,
    LONG,
    PERIODIC,
    SERVERS,
    Bed,
    refuse,
    resizes,
    scaled_bed,
    sizes,
)


def sizes_of(bed: Bed) -> SizeExecutor:
    return executor_of(bed.planner, SizeExecutor)


def any_rescaled(bed: Bed) -> bool:
    return any(size_record(job).operation is not None for job in sizes_of(bed).jobs.values())


def followed(bed: Bed, name: str = "train") -> RunningJob:
    return sizes_of(bed).jobs[f"uid-{name}"]


def until_changed(bed: Bed, *, times: int = 1) -> Bed:
    """Run until the size of a job has changed this often."""
    while len(sizes(bed)) < times:
        bed.at(bed.clock.now + 1)
        assert bed.clock.now < 1000
    return bed


def test_during_a_change_of_size_the_next_turn_is_always_in_the_future() -> None:
    bed = scaled_bed(replace(LONG, answers=60.0), GANG)
    past: list[float] = []

    def check() -> None:
        if bed.planner.companion.next_look() <= bed.driver.moment.monotonic:
            past.append(bed.clock.now)

    bed.on_second.append(check)
    bed.at(300)
    assert sizes(bed) == [2]
    assert past == []


def test_a_job_that_starts_with_fewer_workers_was_not_edited_by_a_person() -> None:
    first = replace(GANG, name="first", arrives=1.0, steps=100)
    other = replace(GANG, workers=1, arrives=20.0, steps=400)
    bed = scaled_bed(replace(PERIODIC, bounds=(3, 4)), first, other).at(30)
    assert bed.job().job.suspend
    bed.at(100)
    assert bed.job().workers == 3
    bed.at(1500)
    assert sizes(bed) == [4]
    assert followed(bed).tracked.state.scale.disabled == ""


def test_two_jobs_never_scale_up_into_the_same_capacity() -> None:
    first = replace(GANG, name="first", arrives=1.0, workers=1, steps=300)
    early = replace(PERIODIC, name="one", every=10, steps=20000)
    two = replace(early, name="two", arrives=6.0)
    bed = scaled_bed(first, early, two, cpu=5000).at(900)
    assert sorted([sizes(bed, "one"), sizes(bed, "two")], key=len) == [[], [2, 3]]


PHASES = {
    "while a checkpoint is awaited": (replace(LONG, answers=20.0), Phase.SAVING),
    "while pods are added or removed": (LONG, Phase.SETTLING),
    "before the first step": (LONG, Phase.MEASURING),
}


def until_phase(bed: Bed, phase: Phase) -> Bed:
    bed.at(100)
    while size_record(followed(bed)).phase is not phase:
        bed.at(bed.clock.now + 0.5)
        assert bed.clock.now < 1000
    return bed


@pytest.mark.parametrize(("donor", "phase"), PHASES.values(), ids=PHASES)
def test_a_job_that_a_person_suspends_delays_no_growth(donor: JobSpec, phase: Phase) -> None:
    bed = until_phase(scaled_bed(donor, GANG), phase)
    bed.suspend()
    bed.at(bed.clock.now + 10)
    assert not any_rescaled(bed)


def test_an_autoscaler_added_while_a_checkpoint_is_awaited_takes_over_the_job() -> None:
    bed = until_phase(scaled_bed(replace(LONG, answers=20.0), GANG), Phase.SAVING)
    bed.write("train", "spec", "elasticPolicy", "metrics", value=[{"type": "Resource"}])
    bed.at(bed.clock.now + 200)
    assert sizes(bed) == []
    result = bed.driver.shown["train", names.SCALED]
    assert result is not None
    assert result.verdict.reason == names.REASON_STANDS_DOWN


def test_a_job_without_a_readable_log_delays_no_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = until_phase(scaled_bed(LONG, GANG), Phase.MEASURING)
    progress = bed.planner.progress
    why = Verdict(names.REASON_LOG_FORBIDDEN, "it may not be read")
    monkeypatch.setattr(progress, "read_lines", lambda read, _, now: progress.fail(read, why, now))
    bed.at(bed.clock.now + 500)
    assert size_record(followed(bed)).phase is not Phase.MEASURING
    assert not [write for write in bed.driver.written if isinstance(write.step, RestartWorkers)]


def test_nothing_is_shown_of_a_job_in_a_namespace_that_is_no_longer_managed() -> None:
    bed = until_changed(scaled_bed(LONG, GANG))
    bed.at(bed.clock.now + 60)
    bed.planner.settings.observe_namespace(TEAM, Namespace("team"))
    bed.at(bed.clock.now + 20)
    assert bed.driver.shown["train", names.SCALED] is None


def test_a_job_that_prints_rarely_delays_no_growth_of_others() -> None:
    other = replace(LONG, name="other", bounds=(2, 2), workers=2)
    bed = until_phase(scaled_bed(LONG, other, GANG, cpu=6000), Phase.MEASURING)
    bed.planner.progress.followed(bed.job().uid).pause = 36_000.0
    bed.job().training.hang()
    bed.at(bed.clock.now + 300)
    assert size_record(followed(bed)).phase is Phase.MEASURING
    assert bed.driver.moment.monotonic - sizes_of(bed)._scale._quiet_since >= 60


def test_jobs_that_save_too_rarely_do_not_prevent_a_rescue_by_other_jobs() -> None:
    """Four such jobs are chosen before the job that answers; each may take as long as an answer."""
    rare = replace(PERIODIC, bounds=(1, 4), every=4000, steps=20_000)
    rare_savers = [replace(rare, name=f"rare-{number}") for number in range(4)]
    answers = replace(LONG, name="answers", workers=2, bounds=(1, 2), steps=20_000)
    late = replace(GANG, workers=1, arrives=1050.0)
    bed = scaled_bed(*rare_savers, answers, late, cpu=18_000).at(1750)
    assert sizes(bed, "answers")[:1] == [1]
    assert not any(sizes(bed, spec.name) for spec in rare_savers)
    assert bed.job("gang").job.finished


def test_a_job_that_is_edited_again_and_again_does_not_prevent_others_from_regrowing() -> None:
    rigid = replace(GANG, name="rigid", arrives=5.0, workers=3, steps=20_000)
    loop = replace(GANG, name="loop", workers=5, arrives=160.0)
    bed = until_changed(scaled_bed(LONG, rigid, GANG, loop, cpu=8000)).at(170)
    for number in range(20):
        bed.at(bed.clock.now + 45)
        bed.scale(6 - number % 2, "loop")
    assert bed.job("gang").job.finished
    assert bed.job("loop").job.suspend
    assert bed.job().workers == LONG.workers


def test_a_job_that_loses_a_pod_before_its_first_step_does_not_count_as_hanging() -> None:
    bed = until_phase(scaled_bed(LONG, GANG), Phase.MEASURING)
    bed.faults.closed.add("a")
    bed.api.remove_pod(bed.job().pods[ReplicaKey("worker", 1)])
    bed.job().training.hang()
    bed.at(bed.clock.now + 500)
    assert not any_rescaled(bed)
    assert not [write for write in bed.driver.written if isinstance(write.step, RestartWorkers)]


LOST = {
    "the node of the workers that stay": (1, 0),
    "the node of the removed workers, where the waiting job is to start": (1, 3),
    "the node of the new workers": (2, 3),
}


def home_of(bed: Bed, index: int) -> str:
    """Return the node of a worker, or "" before it has a node."""
    live = bed.job().pods.get(ReplicaKey("worker", index))
    return live.pod.node_name if live else ""


@pytest.mark.parametrize(("change", "index"), LOST.values(), ids=LOST)
def test_after_the_loss_of_a_node_during_a_change_all_jobs_end_or_regain_their_size(
    change: int, index: int
) -> None:
    bed = until_changed(Bed(LONG, GANG, policy=None, a=2000, b=2000), times=change)
    while not (home := home_of(bed, index)):
        bed.at(bed.clock.now + 1)
    assert size_record(followed(bed)).phase is Phase.SETTLING
    bed.lose(home)
    bed.at(bed.clock.now + 400)
    assert home not in {home_of(bed, index) for index in range(LONG.workers)}
    assert not any_rescaled(bed)
    bed.regain(home)
    bed.at(1800)
    assert bed.job("gang").job.finished
    assert (bed.job().workers, bed.job().training.workers) == (4, 4)
    assert size_record(followed(bed)).operation is None
    assert not bed.job().job.released
    assert not bed.job().job.has("Failed")
    assert bed.job().training.lost_all == 0


def test_a_person_may_enable_a_disabled_policy_again() -> None:
    bed = until_changed(scaled_bed(LONG, replace(GANG, workers=1)))
    bed.at(bed.clock.now + 30)
    bed.scale(2)
    bed.at(bed.clock.now + 60)
    assert followed(bed).tracked.state.scale.disabled
    bed.annotate(names.ELASTIC, "off")
    bed.at(bed.clock.now + 10)
    bed.annotate(names.ELASTIC, "2-4")
    bed.at(bed.clock.now + 10)
    assert not followed(bed).tracked.state.scale.disabled


def test_an_edit_disables_the_policy_although_the_write_of_that_is_refused_at_first() -> None:
    bed = until_changed(scaled_bed(LONG, replace(GANG, workers=1)))
    bed.at(bed.clock.now + 30)
    refuse(bed, lambda uid, change: "~1state" in str(change))
    bed.scale(2)
    bed.at(bed.clock.now + 60)
    assert any(step.refused for step in bed.driver.written)
    assert followed(bed).tracked.state.scale.disabled


def test_a_donor_that_is_always_refused_costs_the_other_donor_at_most_four_changes() -> None:
    donor = replace(LONG, name="one", workers=2, bounds=(1, 2), steps=40_000)
    two = replace(donor, name="two", arrives=6.0)
    bed = scaled_bed(donor, two, GANG)
    denied = Forbidden(status=403, reason="Forbidden", message="denied by a policy")
    refuse(bed, lambda uid, change: uid == "uid-two" and resizes(change), denied, times=10**6)
    bed.at(3000)
    assert sizes(bed, "one").count(1) <= 4


def test_a_write_to_disable_a_policy_that_is_always_refused_has_a_back_off() -> None:
    bed = until_changed(scaled_bed(LONG, replace(GANG, workers=1)))
    bed.at(bed.clock.now + 30)
    denied = Forbidden(status=403, reason="Forbidden", message="denied by a policy")
    bed.faults.refusal = lambda _uid, change: denied if "rests" in str(change) else None
    bed.scale(2)
    bed.at(bed.clock.now + 650)
    assert sum(write.refused for write in bed.driver.written) == 3  # one every 300 s


def test_a_refused_checkpoint_request_is_repeated_every_few_seconds() -> None:
    bed = scaled_bed(LONG, GANG).at(100)
    bed.faults.refusal = lambda _uid, change: CONFLICT if "checkpoint" in str(change) else None
    bed.at(260)
    asked = [write for write in bed.driver.written if isinstance(write.step, RequestCheckpoint)]
    assert 1 < len(asked) < 30  # in 160 s


def test_a_job_released_while_it_waits_to_start_short_has_its_requested_size() -> None:
    bed = until_changed(scaled_bed(ANEW, GANG))
    bed.annotate(names.COLOCATION, "off")
    bed.at(bed.clock.now + 60)
    assert (bed.job().job.released, bed.job().workers) == (True, 3)


def test_a_new_controller_keeps_the_hold_of_a_job_that_was_stopped_for_its_size() -> None:
    small = replace(GANG, name="small", workers=1, arrives=101.0, steps=5000)
    bed = until_changed(scaled_bed(ANEW, GANG, small))
    bed.restart()
    bed.at(bed.clock.now + 30)
    assert not bed.job().job.suspend
    assert bed.job("small").job.suspend


def until_held(bed: Bed) -> Bed:
    while not bed.planner.cluster.holds.holders():
        bed.at(bed.clock.now + 0.5)
        assert bed.clock.now < 1000
    return bed


def test_a_refused_size_keeps_no_job_waiting_for_capacity_on_hold() -> None:
    two = replace(LONG, name="two", workers=2, bounds=(1, 2), arrives=6.0)
    bed = scaled_bed(replace(two, name="one", arrives=5.0), two, GANG).at(100)
    refuse(bed, lambda uid, change: uid == "uid-two" and resizes(change))
    bed.at(260)
    assert any(write.refused for write in bed.driver.written if write.job == "two")
    assert bed.job("gang").training.began is not None


def test_a_job_that_is_released_keeps_no_hold() -> None:
    bed = until_held(scaled_bed(replace(LONG, grace=60.0), GANG))
    bed.annotate(names.COLOCATION, "off", name="gang")
    bed.at(bed.clock.now + 10)
    assert bed.job("gang").job.released
    assert bed.planner.cluster.holds.holders() == ()


def test_a_job_that_now_needs_more_keeps_no_hold() -> None:
    bed = until_held(scaled_bed(replace(LONG, grace=20.0), GANG))
    bed.scale(3, "gang")
    bed.at(bed.clock.now + 60)
    assert bed.job("gang").job.suspend
    assert bed.planner.cluster.holds.holders() == ()


def test_new_workers_without_a_node_are_removed_without_a_checkpoint() -> None:
    bed = Bed(replace(LONG, answers=100.0), GANG, policy=None, a=3000, b=1000).at(101)
    while bed.job("gang").training.began is None:
        bed.at(bed.clock.now + 1)
    bed.faults.closed.add("b")
    bed.at(900)
    assert sizes(bed)[:3] == [2, 4, 3]
    assert not bed.job().job.released


def test_a_new_controller_does_not_count_its_absence_as_downtime_of_the_job() -> None:
    bed = until_changed(scaled_bed(PERIODIC, replace(GANG, steps=5000)))
    bed.at(bed.clock.now + 120)
    assert followed(bed).restart.downtime > 0
    bed.restart()
    bed.at(bed.clock.now + 60)
    running = followed(bed)
    assert 0 < running.restart.downtime == running.tracked.state.scale.pause


def test_a_pod_lost_before_growth_is_undone_ends_the_change() -> None:
    donor = replace(ANEW, workers=1, saving=Saving.ON_REQUEST, answers=40.0, grace=60.0)
    bed = scaled_bed(replace(donor, pace=Pace(0.1, 0.5, 0.05)))
    bed.at(100)
    while not (operation := size_record(followed(bed)).operation) or (
        operation.change.cause is not Cause.UNDO_GROWTH
    ):
        bed.at(bed.clock.now + 0.5)
        assert bed.clock.now < 1000
    bed.at(bed.clock.now + 38)
    bed.kubelets.delete(bed.job().pods[ReplicaKey("ps", 0)])
    bed.job().training.lines.append(LogLine(bed.clock.wall, "kfext.checkpoint 99"))
    bed.at(bed.clock.now + 1)
    # The lost server ends the job; a scan may already have removed it.
    assert [job for job in sizes_of(bed).jobs.values() if size_record(job).operation] == []


def test_capacity_is_not_searched_for_beyond_the_possible_growth_of_a_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    largest: list[int] = []

    def recording(members: Sequence[Member], *args: Any, **kwargs: Any) -> Any:
        largest.append(len(members))
        return place(members, *args, **kwargs)

    dynamic = replace(SERVERS, workers=3, steps=8000, saving=Saving.PERIODIC, every=20)
    bed = scaled_bed(dynamic, cpu=40000).at(20)
    bed.annotate(names.ELASTIC, "2-10000")
    monkeypatch.setattr(capacity_search, "place", recording)
    bed.at(100)
    assert sizes(bed) == [4]
    assert max(largest) <= 2 * 4 + 1


def test_a_scan_searches_capacity_for_a_few_jobs_in_a_dry_run_and_later_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = [
        replace(PERIODIC, name=f"job-{number}", workers=1, bounds=(1, 2), steps=100000)
        for number in range(40)
    ]
    bed = scaled_bed(*jobs, cpu=100_000)
    choice = PolicyChoice(Mode.OBSERVE)
    bed.planner.settings.observe_policy(TrainingPolicy("see", companion={"scale": choice}))
    bed.at(60)
    searched_at: list[float] = []
    search = CapacitySearch.more_places

    def recording(*args: Any, **kwargs: Any) -> Any:
        searched_at.append(bed.clock.now)
        return search(*args, **kwargs)

    monkeypatch.setattr(CapacitySearch, "more_places", recording)
    bed.at(120)
    assert max(Counter(searched_at).values()) <= MAX_SEARCHED
    for spec in jobs:
        shown = followed(bed, spec.name).shown[names.SCALED]
        assert shown is not None
        assert shown.verdict.reason == names.REASON_WOULD_SCALE


def failures_of(bed: Bed) -> list[tuple[str, Exception]]:
    """Return a list that will hold kfext's errors with the names of their jobs."""
    bed.driver.failures = []
    return bed.driver.failures


def test_an_error_in_the_search_for_a_waiting_job_ends_at_most_the_change_of_its_donor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting_places = CapacitySearch.waiting_places

    def broken(search: CapacitySearch, tracked: TrackedJob, *args: Any, **kwargs: Any) -> Any:
        if bed.clock.now > broken_from:
            raise ZeroDivisionError
        return waiting_places(search, tracked, *args, **kwargs)

    broken_from = 103.0
    bed = scaled_bed(replace(LONG, answers=30.0), GANG)
    monkeypatch.setattr(CapacitySearch, "waiting_places", broken)
    failures = failures_of(bed)
    bed.at(115)
    assert {name for name, _ in failures} == {"gang"}
    broken_from = 1000.0
    bed.at(125)
    failures.clear()
    assert size_record(followed(bed)).phase is Phase.SAVING
    broken_from = 125.0
    bed.at(175)
    assert ({name for name, _ in failures}, size_record(followed(bed)).phase) == ({"train"}, None)


BROKEN = {
    "when it is enrolled": (SizeExecutor, "follows"),
    "when it scales up": (ScaleSearch, "size"),
    "when it is shown": (size_executor, "size_shown"),
}


@pytest.mark.parametrize(("where", "broken"), BROKEN.values(), ids=BROKEN)
def test_an_error_about_one_job_keeps_no_other_job_from_scaling_up(
    monkeypatch: pytest.MonkeyPatch, where: object, broken: str
) -> None:
    unbroken = getattr(where, broken)

    def fails(*args: Any, **kwargs: Any) -> Any:
        about = [item.tracked if isinstance(item, RunningJob) else item for item in args]
        if any(isinstance(item, TrackedJob) and item.job.uid == "uid-train" for item in about):
            raise ZeroDivisionError
        return unbroken(*args, **kwargs)

    monkeypatch.setattr(where, broken, fails)
    dynamic = replace(SERVERS, steps=8000)
    bed = scaled_bed(dynamic, replace(dynamic, name="other", arrives=6.0), cpu=12_000)
    failures = failures_of(bed)
    bed.at(300)
    assert {name for name, _ in failures} == {"train"}
    assert sizes(bed, "other")


@pytest.mark.parametrize("answers", range(1, 11))
def test_no_other_job_starts_in_the_capacity_of_a_job_that_changes_its_size(answers: int) -> None:
    # In some of these cases the size is written in the second of a scan.
    anew = replace(ANEW, saving=Saving.ON_REQUEST, answers=float(answers))
    bed = scaled_bed(anew, GANG, replace(GANG, name="late", arrives=110.0))
    while not sizes(bed):
        bed.at(bed.clock.now + 1)
    bed.at(bed.clock.now + 40)
    assert bed.job("gang").training.began is not None
    assert not bed.job().job.suspend
    assert bed.job("late").job.suspend


def test_of_two_donors_the_job_that_saved_first_saves_again() -> None:
    quick = replace(LONG, name="quick", answers=2.0)
    slow = replace(LONG, name="slow", arrives=6.0, answers=80.0)
    bed = scaled_bed(quick, slow, replace(GANG, workers=4, steps=1000), cpu=8000).at(400)
    assert (sizes(bed, "quick"), sizes(bed, "slow")) == ([2], [2])
    written = bed.driver.written
    asked = Counter(write.job for write in written if isinstance(write.step, RequestCheckpoint))
    assert asked == {"quick": 2, "slow": 1}
    assert bed.job("quick").training.lost < 30  # at a step a second and worker


def test_a_rescue_is_tried_again_once_a_node_is_no_longer_excluded() -> None:
    other = replace(GANG, name="other", arrives=6.0, steps=8000)
    bed = Bed(PERIODIC, other, GANG, policy=None, a=4000, b=2000).at(104)
    gang = bed.planner.cluster.jobs["uid-gang"]
    until = bed.clock.wall + 60
    state = replace(gang.state, excluded={"a": until}).encode(job_uid="uid-gang")
    bed.annotate(names.STATE, state, name="gang")
    bed.at(150)
    assert sizes(bed) == []
    bed.at(220)
    assert sizes(bed) == [2]
