"""Which bars on lines of their own count the training: others are of an evaluation, or of files."""

from kfext.core.progress.lines import Position


class Bars:
    """Follows the bars of a log. `last`: the one above the next measure, None if there is none."""

    def __init__(self) -> None:
        self.last: Position | None = None
        self._before: int | None = None
        self._trusted: int | None = None
        self._goes_on = True

    def trust(self, bar: Position, *, parts: bool) -> bool:
        """Return whether the bar above a measure counts the steps of that; it is used up then.

        The first one is not over yet, or has a title of a training, or the epoch is printed with a
        fraction (`parts`) as into a bar; then its end is the same.
        """
        before, self.last, self._before = self._before, None, bar.steps
        unfinished = bar.step is not None and bar.step < (bar.steps or 0)
        first = self._trusted is None and (bar.named or parts or unfinished)
        if not (bar.steps in {before, self._trusted} or first):
            return False
        self._trusted = bar.steps
        return True

    def measured(self) -> None:
        """Take in a line with a measure: the next bar may go on from its step."""
        self._goes_on = True

    def goes_on(self, bar: Position, *, since: int) -> bool:
        """Return whether a bar goes on from a step, and none with its end was drawn anew before."""
        if bar.step is None or bar.steps != self._trusted:
            return False
        self._goes_on &= bar.step >= since
        return self._goes_on
