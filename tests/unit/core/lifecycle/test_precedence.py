"""Members of different priority are pinned in turn, so that none preempts another."""

import pytest

from kfext.core.lifecycle.steps import DeleteUnbound, Pin, Wait
from kfext.model.pod import Pod
from kfext.names import BINDING
from tests.unit.core.lifecycle.cases import Case, decide, phase, plan, three, worker

HIGH = {"priority": 100}


def high(index: int, **more: object) -> Pod:
    return worker(index, spec=HIGH, **more)


TURNS: dict[str, Case] = {
    "equal members are pinned at once": Case(
        Pin,
        three().resumed(),
        [worker(number, gated=True) for number in range(3)],
        plan("a", "a", "a"),
        check=lambda step: len(step.pins) == 3,
    ),
    "members of the highest priority are pinned first": Case(
        Pin,
        three().resumed(),
        [worker(0, gated=True), high(1, gated=True), high(2, gated=True)],
        plan("a", "a", "a"),
        check=lambda step: (
            [pod.name for pod, _ in step.pins] == ["train-worker-1", "train-worker-2"]
        ),
    ),
    "the others wait until those are bound": Case(
        Wait,
        three().resumed(),
        [worker(0, gated=True), high(1, bound="a"), high(2, pinned="a")],
        plan("a", "a", "a"),
        check=lambda step: phase(BINDING)(step) and step.again == 60.0,
    ),
    "and are pinned then": Case(
        Pin,
        three().resumed(),
        [worker(0, gated=True), high(1, bound="a"), high(2, bound="a")],
        plan("a", "a", "a"),
        check=lambda step: [pod.name for pod, _ in step.pins] == ["train-worker-0"],
    ),
    "one of lower priority that is not bound keeps none waiting": Case(
        Pin,
        three().resumed(),
        [high(0, gated=True), worker(1, pinned="a"), worker(2, bound="a")],
        plan("a", "a", "a"),
        check=lambda step: [pod.name for pod, _ in step.pins] == ["train-worker-0"],
    ),
    "those that are not bound in time are planned again": Case(
        DeleteUnbound,
        three().resumed(),
        [worker(0, gated=True), high(1, bound="a"), high(2, pinned="a")],
        plan("a", "a", "a"),
        check=lambda step: [pod.name for pod in step.pods] == ["train-worker-2"],
        more={"waited": 60.0},
    ),
}


@pytest.mark.parametrize("case", TURNS.values(), ids=TURNS)
def test_turns(case: Case) -> None:
    decide(case)
