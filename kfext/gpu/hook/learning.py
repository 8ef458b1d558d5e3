"""When a hook watches all modules of a training, and when only the modules that matter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

_PATIENCE_STEPS = 50
"""Steps without a watched module after which the job counts as training another model; doubled each
time."""


class Learning:
    """Counts what a training does; calls `settle` when that is enough, and `learn` to begin again.

    `steps`: how many steps of optimizers are watched. `most`: how many calls of `passed` are enough
    without that many steps, since a job that only infers makes no steps.
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
        """Record a trained parameter: an unknown parameter means another model.

        The watched modules do not show that: some may be shared, such as a loss made only once.
        """
        known = self._models.get(id(parameter))
        if known is None or known() is not parameter:
            self._models = {
                key: reference for key, reference in self._models.items() if reference() is not None
            }
            self._models[id(parameter)] = ref(parameter)
            if self.settled:
                self._begin_again()

    def passed(self) -> None:
        """Record that the job has come to a watched place."""
        self._passed = True
        if not self.settled:
            self.passes += 1
            if self.passes == self._most:
                self._end()

    def stepped(self) -> None:
        """Record a step of an optimizer.

        A step without a watched place since the last step is of another optimizer in the same
        iteration, and does not count. After many such steps the job trains another model.
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
