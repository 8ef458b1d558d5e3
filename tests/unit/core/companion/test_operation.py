"""An operation: its stages, and whether the kubelets have set the sizes of one."""

from dataclasses import replace
from typing import Any

import pytest

from kfext.core.companion.operation import KUBELET_SECONDS, Operation, all_set, why_not_set
from kfext.core.companion.proposal import Rank, Size
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from tests.unit.core.companion.jobs import proposal
from tests.unit.core.companion.pods import running

FIRST, SECOND = (Size("worker-0", 100),), (Size("worker-1", 200),)
DEFERRED = Verdict("Deferred", "no room")


def operation(**fields: Any) -> Operation:
    return Operation(proposal(stages=(FIRST, SECOND)), **fields)


def test_it_goes_through_its_stages() -> None:
    assert (operation().sizes, operation().last) == (FIRST, False)
    assert (operation(stage=1).sizes, operation(stage=1).last) == (SECOND, True)


def test_one_that_only_makes_a_policy_rest_has_no_sizes() -> None:
    empty = Operation(proposal(stages=()))
    assert (empty.sizes, empty.last) == ((), True)


@pytest.mark.parametrize("rank", Rank)
def test_only_what_is_safe_gives_back(rank: Rank) -> None:
    assert Operation(proposal(rank=rank)).restores is (rank is Rank.RESTORE)


SET: dict[str, tuple[list[Pod], bool]] = {
    "the kubelet has set it": ([running(0, 100, given=100)], True),
    "the kubelet has the size before": ([running(0, 100, given=1400)], False),
    "its status states no limit": ([running(0, 100)], False),
    "the pod has gone": ([], True),
    "a pod of another stage is not set": ([running(0, 100, given=100), running(1, 200)], True),
    "nobody knows any more what trains": ([replace(running(0), trainer=None)], False),
}


@pytest.mark.parametrize(("pods", "want"), SET.values(), ids=SET)
def test_a_stage_is_set_when_the_status_of_its_pods_says_so(pods: list[Pod], *, want: bool) -> None:
    assert all_set(operation(), pods) is want


NOT_SET: dict[str, tuple[list[Pod], float, str]] = {
    "while the kubelet may": ([running(0, 100)], KUBELET_SECONDS - 1, ""),
    "after too long": ([running(0, 100)], KUBELET_SECONDS, "NotSet"),
    "at once if it states why not": ([running(0, 100, resize_problem=DEFERRED)], 0.0, "Deferred"),
    "whatever becomes of other pods": ([running(1, 200, resize_problem=DEFERRED)], 0.0, ""),
}


@pytest.mark.parametrize(("pods", "after", "want"), NOT_SET.values(), ids=NOT_SET)
def test_a_kubelet_is_waited_for_until_it_states_a_problem_or_takes_too_long(
    pods: list[Pod], after: float, want: str
) -> None:
    why = why_not_set(operation(since=1000.0), pods, now=1000.0 + after)
    assert (why.reason if why else "") == want
