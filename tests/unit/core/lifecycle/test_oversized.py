"""A job beyond a bound is left to plain Kubernetes at once, and nothing counts its replicas."""

from collections.abc import Callable

import pytest

from kfext.core.lifecycle.steps import Release, Wait
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from kfext.names import GATED, QUEUED, REASON_HANDS_OFF
from tests.builders import JobBuilder, job

from .cases import NOW, Case, decide, phase, plan, three, worker

HUGE = 2**31 - 1
TOLERATIONS = {"tolerations": [{"key": f"k{number}"} for number in range(65)]}


def huge() -> JobBuilder:
    return job().worker(HUGE, cpu="1")


def heavy() -> JobBuilder:
    return job().worker(3, cpu="1", spec=TOLERATIONS)


def handed_off(words: str) -> Callable[[Release], bool]:
    def check(step: Release) -> bool:
        return step.verdict.reason == REASON_HANDS_OFF and words in step.verdict.message

    return check


def waits(wanted: str) -> Callable[[Wait], bool]:
    def check(step: Wait) -> bool:
        assert step.verdict is not None
        said = "colocation is required, so it is never released" in step.verdict.message
        return said and phase(wanted, REASON_HANDS_OFF)(step)

    return check


REQUIRED = {"colocation": "required"}
CASES = {
    "a held job with 2^31-1 replicas is released at once": Case(
        Release, huge().held(), check=handed_off(f"{HUGE} pods, more than the 10000")
    ),
    "a held job with a template beyond a bound is released at once": Case(
        Release, heavy().held(), check=handed_off("the Worker template has 65 tolerations")
    ),
    "a required one waits and says so": Case(
        Wait, heavy().held(), more=REQUIRED, check=waits(QUEUED)
    ),
    "one that backs off does not wait for the end of it": Case(
        Release, huge().held(), state=JobState(retry_at=NOW + 60), check=handed_off("pods")
    ),
    "gated pods of a running one are let go": Case(
        Release, heavy().resumed(), [worker(0, gated=True)], check=handed_off("tolerations")
    ),
    "gated pods of a job edited to 2^31-1 replicas too": Case(
        Release, huge().resumed(), [worker(0, gated=True)], plan("a"), check=handed_off("pods")
    ),
    "a pod that admission made too large is let go with its gang": Case(
        Release,
        three().resumed(),
        [worker(0, gated=True, spec=TOLERATIONS), worker(1, gated=True)],
        plan("a", "a", "a"),
        check=handed_off("a pod has 65 tolerations"),
    ),
    "gated pods of a required one wait and say so": Case(
        Wait, heavy().resumed(), [worker(0, gated=True)], more=REQUIRED, check=waits(GATED)
    ),
    "one that runs already goes on": Case(
        Wait, huge().resumed(), [worker(0, bound="a")], plan("a"), check=lambda step: step.phase
    ),
    "one that kfext never placed is not looked at": Case(
        Wait, huge().resumed(), [worker(0, bound="a")], check=phase(None)
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_job_beyond_a_bound(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def count(self: TrainingJob) -> None:
        raise AssertionError("somebody counts its replicas one by one")

    monkeypatch.setattr(TrainingJob, "replicas", count)
    decide(case)
