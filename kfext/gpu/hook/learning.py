"""When a hook looks at all modules of a training, and when only at those that matter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

_PATIENCE_STEPS = 50
"""Steps without a module after which the job is taken to train another model; doubled each time."""


class Learning:
    """Counts what a training does; calls `settle` when that is enough, and `learn` to begin anew.

    `steps`: how many steps of optimizers are looked at; `most`: how many calls of `passed` without
    so many steps are enough, as a job that only infers makes none.
    """

    def __init__(
        self, *, steps: int, most: int, learn: Callable[[], None], settle: Callable[[], None]
    ) -> None:
        self._wanted = steps
        self._most = most
        self._learn = learn
        self._settle = settle
        self._patience = _PATIENCE_STEPS
        self._passed = False
        self._missed = 0
        self._models: dict[int, ref[Any]] = {}
        self.steps = 0
        self.passes = 0
        self.settled = False

    def meet(self, parameter: Any) -> None:
        """Take in a parameter that is trained: one not seen before means that another model is.

        Some modules of that may be known, such as a loss that a program makes once.
        """
        known = self._models.get(id(parameter))
        if known is None or known() is not parameter:
            self._models = {key: one for key, one in self._models.items() if one() is not None}
            self._models[id(parameter)] = ref(parameter)
            if self.settled:
                self._begin_again()

    def passed(self) -> None:
        """Take in that the job has come to one of the places that are looked at."""
        self._passed = True
        if not self.settled:
            self.passes += 1
            if self.passes == self._most:
                self._end()

    def stepped(self) -> None:
        """Take in a step of an optimizer.

        One without a place since the step before is one more optimizer of the same iteration, and
        counts for nothing; after many of them the job trains another model now.
        """
        if not self._passed:
            self._missed += 1
            if self.settled and self._missed >= self._patience:
                self._patience *= 2
                self._begin_again()
            return
        self._passed, self._missed = False, 0
        if not self.settled:
            self.steps += 1
            if self.steps == self._wanted:
                self._end()

    def _end(self) -> None:
        self.settled = True
        self._settle()

    def _begin_again(self) -> None:
        self._missed = self.steps = self.passes = 0
        self.settled = False
        self._learn()
