"""The elastic DDP program: its samples, slices, checkpoints, and answers to requests."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.harness.journal import answers, resumes
from e2e.jobs.elastic_ddp import (
    SAMPLES,
    Array,
    Requests,
    newest,
    samples,
    share,
    train,
)
from kfext.core.progress.lines import read_line


@dataclass
class Counting:
    """A rank that only records its samples."""

    rank: int = 0
    world: int = 1
    ends_at: int = 10**9
    seen: list[int] = field(default_factory=list)
    owned: list[Array] = field(default_factory=list)
    waited: float = 0.0

    def agreed(self, step: int) -> int:
        return step

    def wait(self, seconds: float) -> None:
        self.waited += seconds

    def step(self, own: Array, batch: int, asked: int) -> tuple[float, int]:
        if len(self.seen) == self.ends_at:
            raise KeyboardInterrupt
        self.seen.append(len(self.seen))
        self.owned.append(own)
        return 1 / len(self.seen), asked

    def loss(self) -> float:
        return 0.5

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(self.seen))

    def load(self, path: Path) -> None:
        self.seen = json.loads(path.read_text())


def run(training: Counting, folder: Path, *, steps: int = 10, every: int = 4) -> list[str]:
    """Train; return the journal."""
    requests = Requests(folder / "control")
    options = {"batch": 8, "every": every, "print_every": 1}
    train(training, steps=steps, folder=folder, requests=requests, **options)
    return (folder / "journal").read_text().splitlines() if training.rank == 0 else []


@given(batch=st.integers(1, 300), world=st.integers(1, 20))
def test_the_slices_of_all_ranks_are_the_batch(batch: int, world: int) -> None:
    every = list(range(batch))
    parts = [every[share(batch, rank=rank, world=world)] for rank in range(world)]
    assert [sample for part in parts for sample in part] == every
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(step=st.integers(1, 10**6), batch=st.integers(1, 2 * SAMPLES))
def test_a_step_has_the_same_samples_at_any_time(step: int, batch: int) -> None:
    result = samples(step, batch)
    assert len(result) == batch
    assert np.array_equal(result, samples(step, batch))


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_all_ranks_together_train_on_the_samples_of_each_step(tmp_path: Path, world: int) -> None:
    ranks = [Counting(rank, world) for rank in range(world)]
    for training in ranks:
        run(
            training,
            tmp_path / str(world) if training.rank else _create(tmp_path / str(world)),
            every=100,
        )
    for step in range(10):
        own = np.concatenate([rank.owned[step] for rank in ranks])
        assert np.array_equal(own, samples(step + 1, 8))


def _create(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_killed_program_continues_from_its_last_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(Counting(ends_at=7), tmp_path)
    resumed = Counting(world=3)
    lines = run(resumed, tmp_path)
    assert resumed.seen == list(range(10))
    assert [(start.step, start.world, start.kept) for start in resumes(lines)] == [
        (0, 1, True),
        (4, 3, True),
    ]


def test_a_request_is_answered_once_after_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "control").write_text("5")
    lines = run(Counting(), tmp_path, every=100)
    assert answers(lines) == [5]
    assert lines.index("kfext.checkpoint 5") == lines.index("saved checkpoint at step 1") + 1
    assert newest(tmp_path) == 1


def test_every_step_is_printed_in_a_recognised_form(tmp_path: Path) -> None:
    read = [read_line(line) for line in run(Counting(), tmp_path, steps=3, every=100)]
    # The totals at the end are one more line, which repeats the last step.
    result = [line for line in read if line and line.measures][:-1]
    assert [(line.position.step, line.position.steps) for line in result] == [
        (1, 3),
        (2, 3),
        (3, 3),
    ]
