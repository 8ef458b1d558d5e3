"""What is made up for fake nodes reads like the log of a training that really runs."""

import re

import pytest

from e2e.harness.fake_kubelet import FakeProgram
from e2e.harness.journal import answers, resumes, worlds
from kfext.core.progress.lines import read_line

ONE, TWO = ["a"], ["a", "b"]


def test_it_does_as_many_steps_as_it_has_workers() -> None:
    alone, both = FakeProgram(), FakeProgram()
    alone.advance(10, ONE, 0)
    both.advance(10, TWO, 0)
    assert both.step == 2 * alone.step > 0


def test_without_workers_nothing_is_printed() -> None:
    assert FakeProgram().advance(10, [], 0) == []


def test_its_steps_are_recognised() -> None:
    last = read_line(FakeProgram(total=3).advance(60, ONE, 0)[-1])
    assert last is not None
    assert (last.position.step, last.position.steps) == (3, 3)
    assert [name for name, _ in last.measures] == ["loss"]


def test_it_says_at_each_start_that_it_answers_requests() -> None:
    program = FakeProgram()
    for team in (ONE, TWO):
        assert program.advance(1, team, 0)[:2] == [
            f"resumed at step 0 with world {len(team)}",
            "kfext.checkpoint 0",
        ]


def test_a_request_is_answered_once_with_what_was_done_until_then() -> None:
    program = FakeProgram()
    lines = [line for _ in range(3) for line in program.advance(10, ONE, 7)]
    assert answers(lines) == [7]
    program.advance(10, ONE, 7)
    (last,) = resumes(program.advance(1, TWO, 7))
    assert (last.step, last.world) == (program.saved, 2)
    assert 0 < last.step < program.step + 1


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(FakeProgram(silent=True), id="one that does not answer"),
        pytest.param(FakeProgram(saves=False), id="one that cannot save"),
    ],
)
def test_a_request_may_stay_unanswered(program: FakeProgram) -> None:
    lines = [line for _ in range(3) for line in program.advance(10, ONE, 7)]
    assert answers(lines) == []
    assert ("kfext.checkpoint 0" in lines) is program.saves


def test_a_training_whose_workers_do_not_know_each_other_goes_on() -> None:
    program = FakeProgram(restarts=False)
    lines = [*program.advance(10, TWO, 0), *program.advance(10, ONE, 0)]
    assert worlds(lines) == [2]
    steps = [int(match[1]) for line in lines if (match := re.match(r"step (\d+)/", line))]
    assert steps == list(range(1, program.step + 1))
