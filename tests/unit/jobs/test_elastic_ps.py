"""Asynchronous training with workers that come and go: steps are shared, and saves are kept."""

from pathlib import Path

import numpy as np
import pytest

from e2e.harness.journal import answers, resumes
from e2e.jobs.elastic_ps import CLASSES, Array, Requests, Weights, Work, batch_of, newest, tasks


class Memory:
    """A parameter server; its only weight counts the steps."""

    def __init__(self, *, ends_at: int = 10**9) -> None:
        self.kept: Weights | None = None
        self.taken: list[int] = []
        self.steps = self._next = 0
        self._ends_at = ends_at
        self.waited: list[float] = []

    def filled(self) -> bool:
        return self.kept is not None

    def fill(self, weights: Weights, step: int) -> None:
        self.kept, self.steps, self._next = [array.copy() for array in weights], step, step

    def take(self) -> int:
        if self._next == self._ends_at:
            raise ConnectionError
        self._next += 1
        self.taken.append(self._next)
        return self._next

    def done(self) -> int:
        return self.steps

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)

    def weights(self) -> Weights:
        assert self.kept is not None
        return [array.copy() for array in self.kept]

    def apply(self, gradients: Weights) -> int:
        assert self.kept is not None
        self.kept = [weight + other for weight, other in zip(self.kept, gradients, strict=True)]
        self.steps += 1
        return self.steps


class Counting:
    """A model with the gradient 1."""

    def fresh(self) -> Weights:
        return [np.zeros(1)]

    def gradients(self, weights: Weights, inputs: Array, targets: Array) -> tuple[float, Weights]:
        return float(weights[0][0]), [np.ones(1)]


def run(server: Memory, folder: Path, *, first: bool = True, steps: int = 10) -> list[str]:
    """Train; return the journal."""
    requests = Requests(folder / "control")
    work = Work(server, Counting(), folder=folder, first=first, requests=requests)
    work.train(steps, batch=4, every=4, print_every=1, least=0.0)
    return (folder / "journal").read_text().splitlines() if first else []


def test_a_worker_that_comes_later_does_what_is_left(tmp_path: Path) -> None:
    server = Memory()
    server.fill([np.zeros(1)], 0)
    for _ in range(3):
        server.apply([np.ones(1)])
    run(server, tmp_path, first=False)
    assert server.steps == 10
    assert len(server.taken) == 7


def test_a_server_that_begins_anew_is_filled_from_the_last_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError):
        run(Memory(ends_at=7), tmp_path)
    again = Memory()
    lines = run(again, tmp_path)
    assert again.taken == [5, 6, 7, 8, 9, 10]
    assert again.weights()[0][0] == 10
    assert [(start.step, start.kept) for start in resumes(lines)] == [(0, True), (4, True)]


def test_a_first_worker_that_begins_anew_leaves_a_server_as_it_is(tmp_path: Path) -> None:
    server = Memory()
    server.fill([np.full(1, 6.0)], 6)
    lines = run(server, tmp_path)
    assert [start.step for start in resumes(lines)] == [6]
    assert server.weights()[0][0] == 10


def test_a_request_is_answered_once_after_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "control").write_text("3\n")
    lines = run(Memory(), tmp_path)
    assert answers(lines) == [3]
    assert lines.index("kfext.checkpoint 3") == lines.index("saved checkpoint at step 1") + 1


def test_only_the_newest_checkpoint_is_kept(tmp_path: Path) -> None:
    run(Memory(), tmp_path)
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-00000008"]
    assert newest(tmp_path) == 8


def test_only_the_first_worker_prints_and_saves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Memory()
    server.fill([np.zeros(1)], 0)
    run(server, tmp_path, first=False)
    assert capsys.readouterr().out == ""
    assert list(tmp_path.iterdir()) == []


TASKS = {
    "all of a type": (["a:1", "b:2"], {0: "a:1", 1: "b:2"}),
    "the task that a dynamic worker knows": ({"3": "d:4"}, {3: "d:4"}),
}


@pytest.mark.parametrize(("written", "known"), TASKS.values(), ids=TASKS)
def test_tf_config_is_read_in_both_forms(
    written: list[str] | dict[str, str], known: dict[int, str]
) -> None:
    assert tasks(written) == known


def test_the_batch_of_a_step_depends_on_the_step_alone() -> None:
    (first, targets), (again, _), (other, _) = (batch_of(step, 400) for step in (5, 5, 6))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert set(targets.tolist()) == set(range(CLASSES))
