"""What an elastic training has printed: when it went on, from what step, and what it saved."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_RESUMED = re.compile(r"^resumed at step (\d+)(?: with world (\d+))?$")
_STEP = re.compile(r"^step (\d+)/\d+ ")
_SAVED = re.compile(r"^saved checkpoint at step (\d+)$")
_ANSWER = re.compile(r"^kfext\.checkpoint (\d+)$")


@dataclass(frozen=True, slots=True)
class Resumed:
    """A start of the training, the first one or a later one.

    `step`: that it went on from. `world`: how many workers it had then, 0 if it did not say.
    `saved`: the last step that was saved before.
    """

    step: int
    world: int
    saved: int

    @property
    def kept(self) -> bool:
        """Whether nothing was lost of what had been saved."""
        return self.step >= self.saved


def resumes(lines: Iterable[str]) -> list[Resumed]:
    """Return the starts of a training, by all lines that it has printed."""
    found, saved = [], 0
    for line in lines:
        if match := _RESUMED.match(line):
            found.append(Resumed(int(match[1]), int(match[2] or 0), saved))
        elif match := _SAVED.match(line):
            saved = int(match[1])
    return found


def answers(lines: Iterable[str]) -> list[int]:
    """Return the numbers of the requests for a checkpoint that a training has answered."""
    return [int(match[1]) for line in lines if (match := _ANSWER.match(line)) and int(match[1])]


def worlds(lines: Iterable[str]) -> list[int]:
    """Return the numbers of workers that a training has had, one after the other."""
    return [start.world for start in resumes(lines)]


def redone(lines: Iterable[str]) -> int:
    """Return how many steps a training has done more than once, as it went on from before them."""
    reached = again = 0
    for line in lines:
        if match := _RESUMED.match(line):
            again += max(0, reached - int(match[1]))
            reached = int(match[1])
        elif match := _STEP.match(line):
            reached = int(match[1])
    return again
