"""Operations: stages, the wait for kubelets, trials, and the readiness of a job."""

from dataclasses import replace
from typing import Any

import pytest

from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.state.running.operation import (
    FRESH_SECONDS,
    KUBELET_SECONDS,
    Operation,
    Readiness,
    ResizeOperation,
    Trial,
    all_set,
    readiness,
    why_not_set,
)
from kfext.state.running.proposal import Measure, Rank, Size
from kfext.state.running.signals import JobSignal
from tests.unit.state.running.jobs import job, pod, proposal
from tests.unit.state.running.pods import running

FIRST = (Size("worker-0", 100), Size("worker-2", request=370))
SECOND = (Size("worker-1", 200),)
DEFERRED = Verdict("Deferred", "no room")


def operation(**fields: Any) -> ResizeOperation:
    return ResizeOperation(proposal(stages=(FIRST, SECOND)), **fields)


def test_an_operation_runs_through_its_stages() -> None:
    assert (operation().sizes, operation().last) == (FIRST, False)
    assert (operation(stage=1).sizes, operation(stage=1).last) == (SECOND, True)


def test_an_operation_that_only_disables_a_policy_has_no_sizes_and_no_last_write() -> None:
    empty = ResizeOperation(proposal(stages=()))
    assert (empty.sizes, empty.last) == ((), False)


@pytest.mark.parametrize("rank", Rank)
def test_an_operation_restores_only_with_the_rank_RESTORE(rank: Rank) -> None:
    assert Operation(proposal(rank=rank)).restores is (rank is Rank.RESTORE)


SET: dict[str, tuple[list[Pod], bool]] = {
    "the kubelet has set it": ([running(0, 100, given=100)], True),
    "the kubelet has the size before": ([running(0, 100, given=1400)], False),
    "its status has no limit": ([running(0, 100)], False),
    "the kubelet has the previous request": (
        [running(0, 100, given=100), running(2, request=370, allocated=20)],
        False,
    ),
    "the kubelet has the new request": (
        [running(0, 100, given=100), running(2, request=370, allocated=370)],
        True,
    ),
    "the pod was deleted": ([], True),
    "a pod of another stage is not set": ([running(0, 100, given=100), running(1, 200)], True),
    "its training container is no longer known": ([replace(running(0), trainer=None)], False),
}


@pytest.mark.parametrize(("pods", "want"), SET.values(), ids=SET)
def test_a_stage_is_set_once_the_pods_have_its_sizes(pods: list[Pod], *, want: bool) -> None:
    assert all_set(operation(), pods) is want


NOT_SET: dict[str, tuple[list[Pod], float, str]] = {
    "no reason while the kubelet has time": ([running(0, 100)], KUBELET_SECONDS - 1, ""),
    "NotSet after that time": ([running(0, 100)], KUBELET_SECONDS, "NotSet"),
    "the kubelet's reason at once": ([running(0, 100, resize_problem=DEFERRED)], 0.0, "Deferred"),
    "no reason for a pod of a later stage": ([running(1, 200, resize_problem=DEFERRED)], 0.0, ""),
}


@pytest.mark.parametrize(("pods", "after", "want"), NOT_SET.values(), ids=NOT_SET)
def test_why_a_kubelet_is_no_longer_awaited(pods: list[Pod], after: float, want: str) -> None:
    why = why_not_set(operation(since=1000.0), pods, now=1000.0 + after)
    assert (why.reason if why else "") == want


UNKNOWN, GAINED, FAILED = None, True, False


def using(use: int | None) -> JobSignal:
    return job("j", pod("j-0", limit=500, user_limit=400, use=use))


TRIALS: dict[str, tuple[tuple[float, ...], list[int | None], bool | None]] = {
    "nothing measured yet": ((400, 400), [], UNKNOWN),
    "a clear gain at once": ((400, 400), [500], GAINED),
    "a gain that comes late": ((400, 400), [400, 600, 600, 600], GAINED),
    "no gain in all windows": ((400, 400), [400, 401, 399, 400], FAILED),
    "no gain, but further windows follow": ((400, 400), [400, 400, 400], UNKNOWN),
    "a loss": ((400, 400), [300, 300, 300, 300], FAILED),
    "a gain within the noise before": ((300, 500, 350, 450), [440, 440, 440, 440], FAILED),
    "a gain within the noise after": ((400, 400), [200, 700, 250, 650], FAILED),
    "a gain of less than 2 %": ((400, 400), [404, 404, 404, 404], FAILED),
    "windows without a value do not count": ((400,), [None, 400, None, 400], UNKNOWN),
    "a history without a value shows no gain": ((), [500, 500, 500, 500], FAILED),
    "a gain, except in a window with a pause": ((400, 400, 400, 400), [120, 600, 600, 600], GAINED),
    "no gain, except over a pause": ((400, 120, 400, 400), [400, 400, 400, 400], FAILED),
    "no gain, and a pause": ((400, 400, 400, 400), [120, 401, 400, 400], FAILED),
}


@pytest.mark.parametrize(("before", "after", "want"), TRIALS.values(), ids=TRIALS)
def test_a_gain_must_exceed_the_noise(
    before: tuple[float, ...], after: list[int | None], want: bool | None
) -> None:
    trial = Trial(proposal("j"), before)
    for use in after:
        trial = trial.with_window(using(use))
    assert trial.gained() is want


def test_a_trial_compares_the_measure_of_its_proposal() -> None:
    trial = Trial(proposal("j", measure=Measure.RATE), (1.0, 1.0))
    assert trial.with_window(job("j", pod("j-0", use=1), rate=2.0)).gained()


def test_a_failed_change_is_undone_and_the_policy_is_disabled() -> None:
    undo = Trial(proposal("j"), before=(1.0,)).undo(using(400))
    assert undo is not None
    assert (undo.job, undo.policy, undo.rank) == ("j", "resize", Rank.RESTORE)
    assert undo.disabled == {"resize"}
    assert undo.stages == ((Size("j-0", 400),),)


NOW = 1000.0
CASES: dict[str, tuple[dict[str, Any], Readiness]] = {
    "it loses nothing anyway": ({"interrupts": False}, Readiness.READY),
    "it has reported no checkpoint": ({}, Readiness.NEVER),
    "it has reported none, even after a request": ({"request_number": 1}, Readiness.NEVER),
    "a checkpoint is fresh": ({"saved": NOW - FRESH_SECONDS}, Readiness.READY),
    "a fresh one is outdated": ({"saved": NOW - 1.0, "outdated": NOW - 1.0}, Readiness.AWAIT),
    "a later checkpoint counts": ({"saved": NOW, "outdated": NOW - 1.0}, Readiness.READY),
    "the next checkpoint is awaited": ({"saved": NOW - FRESH_SECONDS - 0.1}, Readiness.AWAIT),
    "a checkpoint far in the future": ({"saved": NOW + 60.0}, Readiness.AWAIT),
    "a checkpoint hardly in the future": ({"saved": NOW + 1.0}, Readiness.READY),
    "it answers requests and was not asked": ({"answered": 0}, Readiness.ASK),
    "it answers requests and has saved": ({"answered": 3, "saved": NOW - 60}, Readiness.ASK),
    "it has not answered this request": ({"answered": 1, "request_number": 2}, Readiness.ASK),
    "it has answered": ({"answered": 2, "request_number": 2, "saved": NOW - 60}, Readiness.READY),
    "it has answered a later request": ({"answered": 3, "request_number": 2}, Readiness.READY),
    "an answer without an open request": ({"answered": 3, "request_number": 0}, Readiness.ASK),
}


@pytest.mark.parametrize(("more", "want"), CASES.values(), ids=CASES)
def test_whether_a_job_is_ready_to_be_interrupted(more: dict[str, Any], want: Readiness) -> None:
    given = {
        "saved": None,
        "outdated": None,
        "answered": None,
        "request_number": 0,
        "interrupts": True,
    }
    assert readiness(**(given | more), now=NOW) is want
