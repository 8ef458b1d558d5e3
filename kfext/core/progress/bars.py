"""The progress bars of a log that count its training, and the place of a line in the training."""

from dataclasses import dataclass

from kfext.core.progress.position import Position


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a line: step `step` of `end`, in an epoch; for `whole` see Position."""

    epoch: float
    step: int
    end: int | None
    whole: bool | None

    @property
    def order(self) -> tuple[float, int]:
        """The epoch and the step, to compare places within epochs."""
        return (self.epoch, self.step)

    def is_before(self, other: "Place") -> bool:
        """Return whether this place is earlier; if the two cannot be compared, it is not."""
        if self.whole is True and other.whole is True:
            return self.step < other.step
        comparable = self.whole is not True and other.whole is not True
        return comparable and self.order < other.order


class Bars:
    """Follows the bars of a log; only some of the bars on separate lines count the training.

    Other bars count an evaluation, or files. `last`: the bar above the next line with a measure.
    """

    def __init__(self) -> None:
        self.last: Position | None = None
        self._open: int | None = None  # the end of a bar that is not complete
        self._trusted: int | None = None  # the end of the bars of the training
        self._continuous = True

    def trust(self, bar: Position) -> bool:
        """Return whether the bar above a measure counts the steps of the training; forget the bar.

        The first such bar is unfinished, or has the title of a training. Later bars share its end.
        """
        self.last = None
        unfinished = bar.step is not None and bar.step < (bar.steps or 0)
        if not (bar.steps == self._trusted or bar.named or unfinished):
            return False
        self._trusted = bar.steps
        return True

    def add(self, bar: Position) -> None:
        """Add a bar without a measure: until it is complete, it may contain other bars."""
        self.last = bar
        if bar.step == bar.steps:
            self._open = None if bar.steps == self._open else self._open
        elif bar.whole is not None or not bar.step:
            self._open = bar.steps

    def is_nested(self, bar: Position, place: Place | None) -> bool:
        """Return whether a bar with a measure is inside an open bar not of `place`."""
        ends = {self._open, place.end if place else 0}
        return self._open is not None and not bar.whole and bar.steps not in ends

    def continues(self, bar: Position, *, since: int) -> bool:
        """Return whether a bar has reached the step `since`, as all earlier bars have."""
        self._continuous &= bar.step is not None and bar.step >= since
        return self._continuous
