"""Whether what was done has helped the job that it was to serve."""

from dataclasses import replace

import pytest

from kfext.core.companion.proposal import Measure, Rank, Size
from kfext.core.companion.signals import Signals
from kfext.core.companion.trial import Outcome, Trial, begin_trial, measure_for
from tests.unit.core.companion.jobs import job, pod, proposal, signals

RUNNING, GAINED, FAILED = Outcome.RUNNING, Outcome.GAINED, Outcome.FAILED


def seen(use: int | None) -> Signals:
    capped = job("j", pod("j-0", limit=100, user_limit=400))
    return signals(capped, job("k", pod("k-0", use=use)))


TRIALS: dict[str, tuple[list[float | None], list[int | None], Outcome]] = {
    "nothing measured yet": ([400, 400], [], RUNNING),
    "a clear gain at once": ([400, 400], [500], GAINED),
    "a gain that comes late": ([400, 400], [400, 600, 600, 600], GAINED),
    "no gain in all windows": ([400, 400], [400, 401, 399, 400], FAILED),
    "no gain, but windows are to come": ([400, 400], [400, 400, 400], RUNNING),
    "a loss": ([400, 400], [300, 300, 300, 300], FAILED),
    "a gain within the scatter before": ([300, 500, 350, 450], [440, 440, 440, 440], FAILED),
    "a gain within the scatter after": ([400, 400], [200, 700, 250, 650], FAILED),
    "a gain too small to mean anything": ([400, 400], [404, 404, 404, 404], FAILED),
    "windows without a value count for nothing": ([400], [None, 400, None, 400], RUNNING),
    "a history without a value shows no gain": ([None], [500, 500, 500, 500], FAILED),
    "a gain, but for a window with a pause": ([400, 400, 400, 400], [120, 600, 600, 600], GAINED),
    "no gain, but for a pause before": ([400, 120, 400, 400], [400, 400, 400, 400], FAILED),
    "no gain, and a pause": ([400, 400, 400, 400], [120, 401, 400, 400], FAILED),
    "only the last windows before count": ([900, 400, 400, 400, 400], [500], GAINED),
}


@pytest.mark.parametrize(("before", "after", "want"), TRIALS.values(), ids=TRIALS)
def test_a_gain_is_one_beyond_the_noise(
    before: list[float | None], after: list[int | None], want: Outcome
) -> None:
    trial = begin_trial(proposal("j", serves="k"), before)
    assert trial is not None
    for use in after:
        trial = trial.with_window(seen(use))
    assert trial.outcome(seen(None)) is want


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param([], 500, GAINED, id="more than expected"),
        pytest.param([None], 404, RUNNING, id="hardly more than expected"),
        pytest.param([490], 495, RUNNING, id="more than expected, but no more than before"),
    ],
)
def test_without_windows_before_it_compares_with_what_is_expected(
    before: list[float | None], after: int, want: Outcome
) -> None:
    trial = begin_trial(replace(proposal("j", serves="k"), expected=400.0), before)
    assert trial is not None
    assert trial.with_window(seen(after)).outcome(seen(None)) is want


def test_the_measure_of_the_proposal_counts() -> None:
    trial = begin_trial(proposal("j", serves="k", measure=Measure.RATE), [1.0, 1.0])
    assert trial is not None
    faster = signals(job("j"), job("k", pod("k-0", use=1), rate=2.0))
    assert trial.with_window(faster).outcome(faster) is GAINED


@pytest.mark.parametrize("stays", ["j", "k"])
def test_a_trial_is_moot_when_one_of_the_jobs_has_gone(stays: str) -> None:
    trial = Trial(proposal("j", serves="k"), before=(1.0,))
    assert trial.outcome(signals(job(stays))) is Outcome.MOOT
    assert trial.with_window(signals(job("j"))) == trial


def test_what_only_gives_back_has_nothing_to_show() -> None:
    assert begin_trial(proposal(measure=None), [1.0]) is None


def test_what_has_failed_is_undone_and_the_policy_rests() -> None:
    back = Trial(proposal("j", serves="k"), before=(1.0,)).undo(seen(400))
    assert back is not None
    assert (back.job, back.policy, back.rank, back.rests) == ("j", "resize", Rank.RESTORE, True)
    assert back.stages == ((Size("j-0", 400),),)
    assert Trial(proposal("j"), before=()).undo(signals(job("k"))) is None


def test_the_measure_is_the_rate_where_a_job_reports_one() -> None:
    assert measure_for(1.0) is Measure.RATE
    assert measure_for(None) is Measure.USE
