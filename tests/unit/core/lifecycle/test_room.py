"""Where there is room for a queued job, and where not."""

from collections.abc import Mapping

import pytest

from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.situation import Situation
from kfext.core.lifecycle.steps import Start, Wait
from kfext.core.settings.values import Range
from kfext.model.state import JobState
from kfext.names import QUEUED, REASON_NO_ELIGIBLE_NODE, REASON_NO_ROOM, REASON_TOO_BIG
from tests.builders import job, ledger, node, situation_of
from tests.unit.core.lifecycle.cases import NOW, Case, decide, moved_to, phase, three

ROOM: dict[str, Case] = {
    "required waits where preferred takes two nodes": Case(
        Wait,
        three().held(),
        on=ledger(node("a", cpu="2"), node("b", cpu="4"), used={"b": {"cpu": "2"}}),
        more={"colocation": "required"},
        check=phase(QUEUED, REASON_NO_ROOM),
    ),
    "preferred takes two nodes": Case(
        Start,
        three().held(),
        on=ledger(node("a", cpu="2"), node("b", cpu="4"), used={"b": {"cpu": "2"}}),
        check=lambda step: step.plan.nodes == ("a", "b"),
    ),
    "no node is possible": Case(
        Wait,
        job().worker(3, spec={"nodeSelector": {"zone": "x"}}).held(),
        check=phase(QUEUED, REASON_NO_ELIGIBLE_NODE),
    ),
    "more replicas than can ever be planned: answered at once": Case(
        Wait,
        job().worker(2**31 - 1, cpu="1").held(),
        check=lambda step: (
            phase(QUEUED, REASON_TOO_BIG)(step) and "2147483647" in step.verdict.message
        ),
    ),
    "a node that did not take the pods is avoided": Case(
        Start,
        three().held(),
        state=JobState(excluded={"a": NOW + 1}),
        check=moved_to("b", "b", "b"),
    ),
    "a node is tried again after its time": Case(
        Start, three().held(), state=JobState(excluded={"a": NOW}), check=moved_to("a", "a", "a")
    ),
}


@pytest.mark.parametrize("case", ROOM.values(), ids=ROOM.keys())
def test_where_there_is_room(case: Case) -> None:
    decide(case)


def test_C2_a_start_on_more_nodes_than_it_must_says_why() -> None:
    room = ledger(node("a", cpu="7"), node("b", cpu="5"), node("c", cpu="4"), node("d", cpu="4"))
    held = job().worker(12, cpu="1").held().build()
    step = next_step(Situation(held, (), None, JobState(), NOW), room)
    assert isinstance(step, Start)
    assert len(step.plan.nodes) == 3
    assert "instead of 2 with" in step.verdict.message


STARTS: Mapping[str, tuple[int, Range | None, int]] = {
    "all workers if they fit": (8, Range(2, 8), 8),
    "the most that fits": (5, Range(2, 8), 5),
    "its minimum": (2, Range(2, 8), 2),
    "not at all below its minimum": (1, Range(2, 8), 0),
    "not at all without the setting": (5, None, 0),
}


@pytest.mark.parametrize(("cpus", "allowed", "want"), STARTS.values(), ids=STARTS.keys())
def test_an_elastic_job_starts_with(cpus: int, allowed: Range | None, want: int) -> None:
    of = job().worker(8, cpu="1").held().elastic().build()
    situation = situation_of(of, (), None, JobState(), NOW, elastic=allowed)
    step = next_step(situation, ledger(node("a", cpu=str(cpus))))
    if want:
        assert isinstance(step, Start)
        assert len(step.plan.assignment) == want
        assert ("fewer than asked for" in step.verdict.message) is (want < 8)
    else:
        assert isinstance(step, Wait)
