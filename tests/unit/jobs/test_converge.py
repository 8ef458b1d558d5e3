"""The training jobs of the companion's benchmark: their end is known, and they resume."""

import json
from pathlib import Path

import numpy as np
import pytest

from e2e.jobs.converge import CLASSES, MODELS, Array, Batch, images, train
from kfext.core.progress.lines import read_line


class Counting:
    """A model; its loss is the sum of the steps that it has seen."""

    def __init__(self, ends_at: int = 10**9) -> None:
        self.seen: list[float] = []
        self._ends_at = ends_at

    def step(self, inputs: Array, targets: Array) -> float:
        if len(self.seen) == self._ends_at:
            raise KeyboardInterrupt
        self.seen.append(float(inputs[0]))
        return sum(self.seen)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(self.seen))

    def load(self, path: Path) -> None:
        self.seen = json.loads(path.read_text())


def feed(step: int) -> Batch:
    return np.array([step]), np.array([step])


def test_every_step_is_printed_in_a_recognised_form(
    capsys: pytest.CaptureFixture[str],
) -> None:
    train(Counting(), feed, steps=3)
    read = [read_line(line) for line in capsys.readouterr().out.splitlines()]
    assert [dict(line.measures) for line in read if line] == [
        {"loss": 1.0},
        {"loss": 3.0},
        {"loss": 6.0},
    ]
    assert [(line.position.step, line.position.steps) for line in read if line] == [
        (1, 3),
        (2, 3),
        (3, 3),
    ]


def test_a_killed_program_continues_from_its_last_checkpoint(tmp_path: Path) -> None:
    killed = Counting(ends_at=7)
    with pytest.raises(KeyboardInterrupt):
        train(killed, feed, steps=10, checkpoints=tmp_path, every=3)
    assert killed.seen == [1, 2, 3, 4, 5, 6, 7]
    resumed = Counting()
    totals = train(resumed, feed, steps=10, checkpoints=tmp_path, every=3)
    assert resumed.seen == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert totals["steps"] == 4


@pytest.mark.parametrize("model", MODELS)
def test_the_batch_of_a_step_depends_on_the_step_alone(model: str) -> None:
    (first, targets), (again, _), (other, _) = (MODELS[model](step, 8) for step in (5, 5, 6))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len(first) == len(targets) == 8


def test_the_class_of_an_image_can_be_learned() -> None:
    inputs, labels = images(1, 400)
    shapes = np.stack([inputs[labels == label].mean(axis=0) for label in range(CLASSES)])
    fresh, expected = images(2, 400)
    nearest = ((fresh[:, None] - shapes) ** 2).sum(axis=(2, 3, 4)).argmin(axis=1)
    assert (nearest == expected).mean() > 0.9
