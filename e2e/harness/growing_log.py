"""A log that grows as that of a pod does, for fake kubelets to serve."""

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from e2e.harness.background import in_background

LINES_PER_SECOND = 5
_FIRST_LINES = 400
"""In the log before anybody reads it."""


class GrowingLog:
    """The log of every pod, as containerd writes it: a falling loss, and steps that are lines.

    `saves_every`: after so many of them a checkpoint is printed; never if it is 0. `lines` and
    `saves` count what was printed.
    """

    def __init__(self, path: Path, *, saves_every: int = 0) -> None:
        self.path = path
        self.lines = self.saves = 0
        self._saves_every = saves_every
        with path.open("w") as file:
            for _ in range(_FIRST_LINES):
                file.write(self._next())

    def grow(self, ending: threading.Event) -> None:
        """Add lines until the end."""
        with self.path.open("a") as file:
            while not ending.wait(1 / LINES_PER_SECOND):
                file.write(self._next())
                file.flush()

    def _next(self) -> str:
        self.lines += 1
        found = _stamped(f"step={self.lines} loss={math.exp(-self.lines / 1000):.6f}")
        if self._saves_every and self.lines % self._saves_every == 0:
            self.saves += 1
            found += _stamped(f"saved checkpoint at step {self.lines}")
        return found


@contextmanager
def growing(path: Path, *, saves_every: int = 0) -> Iterator[GrowingLog]:
    """Have a log in a file to which lines are added for the time of a `with` block."""
    log = GrowingLog(path, saves_every=saves_every)
    with in_background(log.grow, name="growing-log"):
        yield log


def _stamped(line: str) -> str:
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"
    return f"{stamp} stdout F {line}\n"
