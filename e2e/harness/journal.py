"""Reads the lines that an elastic training printed: its starts, steps and checkpoints."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_RESUMED = re.compile(r"^resumed at step (\d+)(?: with world (\d+))?$")
_STEP = re.compile(r"^step (\d+)/\d+ ")
_SAVED = re.compile(r"^saved checkpoint at step (\d+)$")
_ANSWER = re.compile(r"^kfext\.checkpoint (\d+)$")


@dataclass(frozen=True, slots=True)
class Resumed:
    """A start of the training, the first or a later start.

    `step`: the step that it resumed from. `world`: its number of workers; 0 if it printed none.
    `saved`: the last step that was saved before this start.
    """

    step: int
    world: int
    saved: int

    @property
    def kept(self) -> bool:
        """Whether no saved step was lost."""
        return self.step >= self.saved


def resumes(lines: Iterable[str]) -> list[Resumed]:
    """Return the starts of a training, from all lines that it has printed."""
    starts, saved = [], 0
    for line in lines:
        if match := _RESUMED.match(line):
            starts.append(Resumed(int(match[1]), int(match[2] or 0), saved))
        elif match := _SAVED.match(line):
            saved = int(match[1])
    return starts


def answers(lines: Iterable[str]) -> list[int]:
    """Return the numbers of the checkpoint requests that a training has answered."""
    return [int(match[1]) for line in lines if (match := _ANSWER.match(line)) and int(match[1])]


def worlds(lines: Iterable[str]) -> list[int]:
    """Return the number of workers at each start of a training."""
    return [start.world for start in resumes(lines)]


def redone(lines: Iterable[str]) -> int:
    """Return the number of steps that a training has repeated after its restarts."""
    reached = repeated = 0
    for line in lines:
        if match := _RESUMED.match(line):
            repeated += max(0, reached - int(match[1]))
            reached = int(match[1])
        elif match := _STEP.match(line):
            reached = int(match[1])
    return repeated
