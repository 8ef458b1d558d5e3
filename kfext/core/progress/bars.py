"""Which of the bars of a log count its training, and the place of a line in it."""

from dataclasses import dataclass

from kfext.core.progress.position import Position


@dataclass(frozen=True, slots=True)
class Place:
    """Where a line was: at a step of `end`, in an epoch; `whole` as in Position."""

    epoch: float
    step: int
    end: int | None
    whole: bool | None

    @property
    def order(self) -> tuple[float, int]:
        """The epoch and the step, to compare places within epochs."""
        return (self.epoch, self.step)

    def is_before(self, other: "Place") -> bool:
        """Return whether this place is earlier, False if the two do not compare."""
        if self.whole is True and other.whole is True:
            return self.step < other.step
        compare = self.whole is not True and other.whole is not True
        return compare and self.order < other.order


class Bars:
    """Follows the bars of a log; only some of the bars on lines of their own count the training.

    Other bars count an evaluation, or files. `last`: the bar above the next measure, None without
    one.
    """

    def __init__(self) -> None:
        self.last: Position | None = None
        self._open: int | None = None
        self._trusted: int | None = None
        self._goes_on = True

    def trust(self, bar: Position) -> bool:
        """Return whether the bar above a measure counts its steps, and use the bar up.

        The first bar is not over yet, or has the title of a training. Later bars have the same end.
        """
        self.last = None
        unfinished = bar.step is not None and bar.step < (bar.steps or 0)
        if not (bar.steps == self._trusted or bar.named or unfinished):
            return False
        self._trusted = bar.steps
        return True

    def see(self, bar: Position) -> None:
        """Register a bar without a measure: a bar that is open may hold other bars."""
        self.last = bar
        if bar.step == bar.steps:
            self._open = None if bar.steps == self._open else self._open
        elif bar.whole is not None or not bar.step:
            self._open = bar.steps

    def hold(self, bar: Position, place: Place | None) -> bool:
        """Return whether a bar with a measure is within an open bar, unless it led to `place`."""
        own = {self._open, place.end if place else 0}
        return self._open is not None and not bar.whole and bar.steps not in own

    def goes_on(self, bar: Position, *, since: int) -> bool:
        """Return whether a bar goes on from a step, and no bar with its end began again before."""
        self._goes_on &= bar.step is not None and bar.step >= since
        return self._goes_on
