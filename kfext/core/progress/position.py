"""The position of a line of a training log."""

from dataclasses import dataclass

MOST = 10**15
"""The largest count that a job may print, so that it can be written as int64."""


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a line in the training; a field that the line does not show is None.

    `step`, `steps`: the step and the number of steps.
    `whole`: True if they count over the run, False if they count within an epoch.
    `epoch`, `epochs`: the epoch and the number of epochs, as printed.
    `first`: the number of the first epoch, 0 or 1.
    `parts`: whether the epoch has a fraction, so that it measures the progress of the training.
    `bar`: whether the step is on a progress bar.
    `named`: whether the step has a name, or its bar a title.
    `doubt`: whether a count that the line calls a total may be the steps so far. It is in `steps`,
        or in `step` if the line has no other step.
    `anew`: whether all counts begin again, as in the next fold, which `epoch` then counts.
    `ended`: whether the line announces the end of its epoch, and has no step.
    """

    step: int | None = None
    steps: int | None = None
    whole: bool | None = None
    epoch: float | None = None
    epochs: int | None = None
    first: int | None = None
    parts: bool = False
    bar: bool = False
    named: bool = False
    doubt: bool = False
    anew: bool = False
    ended: bool = False

    @property
    def known(self) -> bool:
        """Whether the line shows a position."""
        counts = (self.step, self.steps, self.epoch, self.epochs)
        return self.anew or any(count is not None for count in counts)
