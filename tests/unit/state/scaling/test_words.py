"""What a job is shown of its size, the most important first."""

from dataclasses import replace

import pytest

from kfext import names
from kfext.core.companion.operation import Readiness
from kfext.core.companion.scale import Cause, Change, Phase, Sizes
from kfext.model.job_state import JobState
from kfext.model.policy import PolicyChoice
from kfext.model.scale_state import ScaleState
from kfext.model.verdict import Verdict
from kfext.state.scaling.scaled_job import ScaledJob
from kfext.state.scaling.words import shown_of
from kfext.state.tracked_job import TrackedJob
from tests.builders import job


def scaled(*, now: int = 4, state: JobState | None = None) -> ScaledJob:
    made = job().worker(now)
    tracked = TrackedJob(made.raw, made.build(), None, state or JobState())
    asked = tracked.state.asked or now
    return ScaledJob(tracked, PolicyChoice(), Sizes(now, 1, 8, asked), expected=now)


def changing(phase: Phase) -> ScaledJob:
    one = scaled()
    one.begin(Change(Cause.GUARD, 2, "a job waits"), phase, at=10.0)
    return one


def refused(*, until: float) -> ScaledJob:
    one = scaled()
    one.refused = Verdict(names.REASON_SCALE_REFUSED, "quota")
    one.not_before = until
    return one


def unfit(one: ScaledJob) -> ScaledJob:
    one.unfit = "Kueue manages it"
    return one


RESTING = JobState(scale=ScaleState(rests="somebody set 4"))
CASES: dict[str, tuple[ScaledJob, Readiness, str, bool, str]] = {
    "it has what it asked for": (scaled(), Readiness.READY, "", False, names.REASON_AS_ASKED),
    "it has fewer": (
        scaled(now=2, state=JobState(asked=4, admitted=2)),
        Readiness.READY,
        "",
        True,
        names.REASON_SHRUNK,
    ),
    "it has more": (
        scaled(now=6, state=JobState(asked=4, admitted=6)),
        Readiness.READY,
        "",
        True,
        names.REASON_GROWN,
    ),
    "a checkpoint is awaited": (
        changing(Phase.SAVING),
        Readiness.ASK,
        "",
        False,
        names.REASON_AWAITS_CHECKPOINT,
    ),
    "its pods come or go": (
        changing(Phase.SETTLING),
        Readiness.ASK,
        "",
        False,
        names.REASON_RESCALING,
    ),
    "a trial is nothing to wait for": (
        changing(Phase.TRIAL),
        Readiness.READY,
        "",
        False,
        names.REASON_AS_ASKED,
    ),
    "it was refused a moment ago": (
        refused(until=60.0),
        Readiness.READY,
        "",
        False,
        names.REASON_SCALE_REFUSED,
    ),
    "it was refused long ago": (
        refused(until=30.0),
        Readiness.READY,
        "",
        False,
        names.REASON_AS_ASKED,
    ),
    "the policy rests": (scaled(state=RESTING), Readiness.READY, "", False, names.REASON_RESTS),
    "it cannot be scaled": (
        unfit(scaled()),
        Readiness.NEVER,
        "",
        False,
        names.REASON_STANDS_DOWN,
    ),
    "it cannot be scaled any more, and was refused a moment ago": (
        unfit(refused(until=60.0)),
        Readiness.READY,
        "",
        False,
        names.REASON_STANDS_DOWN,
    ),
    "it would be": (scaled(), Readiness.READY, "to 5", False, names.REASON_WOULD_SCALE),
    "it has saved nothing": (scaled(), Readiness.NEVER, "", False, names.REASON_NO_CHECKPOINT),
    "it would be if it had saved": (
        scaled(),
        Readiness.NEVER,
        "to 5",
        False,
        names.REASON_NO_CHECKPOINT,
    ),
}


@pytest.mark.parametrize(
    ("one", "ready", "would", "holds", "reason"), CASES.values(), ids=CASES.keys()
)
def test_what_is_shown(
    one: ScaledJob, ready: Readiness, would: str, *, holds: bool, reason: str
) -> None:
    found = shown_of(one, ready, would=would, now=40.0)
    assert (found.holds, found.verdict.reason) == (holds, reason)
    assert reason in names.REASONS_SCALED


def test_the_words_give_both_numbers() -> None:
    one = scaled(now=2, state=JobState(asked=4, admitted=2))
    found = shown_of(one, Readiness.READY, would="", now=0.0)
    assert found.verdict.message.endswith(
        "2 of the 4 workers that it asked for; it gets the others once there is room"
    )
    one.hindered = "quota q allows 2 pods"
    found = shown_of(one, Readiness.READY, would="", now=0.0)
    assert found.verdict.message.endswith("it asked for; quota q allows 2 pods")
    one.sizes = replace(one.sizes, asked=2)
    assert "2 workers" in shown_of(one, Readiness.READY, would="", now=0.0).verdict.message


AUTOSCALER = {
    "it could grow": (
        4,
        True,
        "; it may have 1 to 8, but gets no more than it asked for while the cluster has an "
        "autoscaler",
    ),
    "it has all that it may have": (8, True, "; it may have 1 to 8"),
    "the cluster has none": (4, False, "; it may have 1 to 8"),
}


@pytest.mark.parametrize(("now", "present", "says"), AUTOSCALER.values(), ids=AUTOSCALER)
def test_the_words_say_that_an_autoscaler_keeps_a_job_from_growing(
    now: int, says: str, *, present: bool
) -> None:
    found = shown_of(scaled(now=now), Readiness.READY, would="", now=0.0, autoscaler=present)
    assert found.verdict.message.endswith(says)
