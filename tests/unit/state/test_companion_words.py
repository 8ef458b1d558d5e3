"""What a job is shown of the companion; the most important comes first."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kfext import names
from kfext.core.companion.operation import Operation
from kfext.core.companion.policy import Shown
from kfext.core.companion.proposal import Rank
from kfext.model.cpu_state import AskedCpu, CpuState
from kfext.model.job_state import JobState
from kfext.model.policy import PolicyChoice
from kfext.model.verdict import Verdict
from kfext.state.companion_words import shown_of
from kfext.state.watched_job import WatchedJob
from tests.unit.core.companion.jobs import proposal
from tests.unit.state.two_workers import TwoWorkers

BOTH = {"resize": PolicyChoice(), "shift": PolicyChoice()}
REFUSED = Verdict(names.REASON_RESIZE_REFUSED, "beyond the quota")
OLD = Verdict(names.REASON_CPU_MOVED, "350m of 1400m")
RESIZED = CpuState(asked={"worker": AskedCpu(20, 1000)}, written={"worker-0": (400,)})


def bed_of(state: CpuState | None = None) -> TwoWorkers:
    bed = TwoWorkers()
    bed.measure(0.0)
    bed.watched.chosen = BOTH
    bed.watched.tracked.state = JobState(cpu=state or CpuState())
    return bed


def shown(
    bed: TwoWorkers, *, would: bool = False, decided: bool = True, paused: bool = False
) -> Shown | None:
    job, signals = bed.signals()
    proposed = proposal("uid-1", reason="it would move") if would else None
    return shown_of(bed.watched, job, signals, proposed, decided=decided, paused=paused)


def is_refused(one: WatchedJob) -> None:
    one.refused = REFUSED


def is_moved(one: WatchedJob) -> None:
    one.operation = Operation(proposal("uid-1"))


def is_restored(one: WatchedJob) -> None:
    one.operation = Operation(proposal("uid-1", rank=Rank.RESTORE))


def is_unfit(one: WatchedJob) -> None:
    one.unfit = "Kueue manages the job"


def rests(one: WatchedJob) -> None:
    one.tracked.state = JobState(cpu=CpuState(rests={"resize": "its budget", "shift": "by hand"}))


def one_rests(one: WatchedJob) -> None:
    one.tracked.state = JobState(cpu=CpuState(rests={"resize": "its budget"}))


def stands_down(one: WatchedJob) -> None:
    one.stood_down = {"resize": "not Burstable", "shift": "not Burstable"}


def one_stands_down(one: WatchedJob) -> None:
    one.stood_down = {"resize": "not Burstable", "shift": ""}


def is_unread(one: WatchedJob) -> None:
    one.stood_down = {"resize": "metrics is off"}
    one.unread = "metrics is off"


Change = Callable[[WatchedJob], None]
FIRST: dict[str, tuple[list[Change], str, str]] = {
    "what is refused, before what is under way": (
        [is_moved, is_refused],
        names.REASON_RESIZE_REFUSED,
        "beyond the quota",
    ),
    "what is moved": ([is_moved, rests], names.REASON_CPU_MOVED, "a reason"),
    "what is restored": ([is_restored, rests], names.REASON_CPU_RESTORED, "a reason"),
    "why no policy looks at it": ([is_unfit], names.REASON_STANDS_DOWN, "Kueue manages"),
    "all that rests": ([rests, stands_down], names.REASON_RESTS, "its budget; by hand"),
    "one policy that rests": ([one_rests], names.REASON_RESTS, "its budget"),
    "why all leave it alone, once": ([stands_down], names.REASON_STANDS_DOWN, "not Burstable"),
    "that its growth is not known": ([], names.REASON_TOO_EARLY, "its growth"),
    "why one leaves it alone that would need its growth": (
        [one_stands_down],
        names.REASON_NOTHING_TO_MOVE,
        "resize leaves it alone: not Burstable",
    ),
    "why its progress is not known": (
        [is_unread],
        names.REASON_NOTHING_TO_MOVE,
        "resize leaves it alone: metrics is off",
    ),
}


@pytest.mark.parametrize(("changes", "reason", "message"), FIRST.values(), ids=FIRST)
def test_a_job_is_shown(changes: list[Change], reason: str, message: str) -> None:
    bed = bed_of()
    for change in changes:
        change(bed.watched)
    found = shown(bed, paused=True)
    assert found is not None
    assert found.verdict.reason == reason
    assert message in found.verdict.message


@pytest.mark.parametrize(
    ("early", "want"),
    [
        pytest.param(True, names.REASON_TOO_EARLY, id="that it waits"),
        pytest.param(False, names.REASON_NOTHING_TO_MOVE, id="that nothing is to be done"),
    ],
)
def test_of_a_job_that_has_its_own_limits_it_is_shown(want: str, *, early: bool) -> None:
    bed = bed_of()
    bed.watched.early = early
    job, signals = bed.signals()
    known = replace(job, growth=0.5)
    found = shown_of(bed.watched, known, signals, None, decided=True, paused=False)
    assert found is not None
    assert (found.holds, found.verdict.reason) == (False, want)


def test_equal_reasons_are_shown_once() -> None:
    bed = bed_of()
    stands_down(bed.watched)
    found = shown(bed)
    assert found is not None
    assert found.verdict.message == "not Burstable"


def test_what_was_refused_is_shown_while_it_is_not_tried_again() -> None:
    bed = bed_of()
    is_refused(bed.watched)
    found = shown(bed, paused=False)
    assert found is not None
    assert found.verdict.reason != names.REASON_RESIZE_REFUSED


def test_what_would_be_done_is_shown_before_what_is_too_early() -> None:
    found = shown(bed_of(), would=True)
    assert found == Shown(holds=False, verdict=Verdict(names.REASON_WOULD_MOVE, "it would move"))


def test_a_use_that_is_not_known_is_shown() -> None:
    bed = bed_of()
    bed.uses.take({})
    found = shown(bed)
    assert found is not None
    assert "use of its pods is not known" in found.verdict.message
    is_unread(bed.watched)
    found = shown(bed)
    assert found is not None
    assert found.verdict == Verdict(names.REASON_STANDS_DOWN, "metrics is off")


def test_a_job_that_has_opted_out_is_shown_nothing() -> None:
    bed = bed_of()
    bed.watched.chosen = {}
    assert shown(bed) is None
    is_restored(bed.watched)
    assert shown(bed) is not None


@pytest.mark.parametrize(
    ("before", "state", "decided", "want"),
    [
        pytest.param(None, CpuState(), False, names.REASON_NOTHING_TO_MOVE, id="nothing at first"),
        pytest.param(OLD, CpuState(), False, names.REASON_CPU_MOVED, id="the last words between"),
        pytest.param(OLD, CpuState(), True, names.REASON_NOTHING_TO_MOVE, id="then nothing"),
        pytest.param(OLD, RESIZED, True, names.REASON_CPU_MOVED, id="what stands, as it stands"),
    ],
)
def test_where_nothing_new_is_known_a_job_is_shown(
    before: Verdict | None, state: CpuState, want: str, *, decided: bool
) -> None:
    bed = bed_of(state)
    bed.watched.shown = None if before is None else Shown(holds=False, verdict=before)
    job, signals = bed.signals()
    known = replace(job, growth=0.1)
    found = shown_of(bed.watched, known, signals, None, decided=decided, paused=False)
    assert found is not None
    assert found.verdict.reason == want
