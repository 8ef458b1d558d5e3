"""The step of the whole training, from lines that count within an epoch or state it elsewhere."""

from dataclasses import dataclass, replace

from kfext.core.progress.lines import MOST, Position


@dataclass(frozen=True, slots=True)
class Step:
    """How far a training is: `number` of `total`, None if that is not known."""

    number: int
    total: int | None = None


class Steps:
    """Follows the positions of a log. `restarts` counts how often it went back."""

    def __init__(self) -> None:
        self.restarts = 0
        self._context = Position()
        self._from_zero = False
        self._in_parts = False
        self._over_epochs = False
        self._epoch = 0
        self._in_epoch = 0
        self._before = 0
        self._last: Step | None = None

    def count_anew(self) -> None:
        """Take in that lines of another measure are counted from now on: a lower step is new."""
        self._last = None

    def note(self, position: Position) -> None:
        """Take in the position of a line without a measure: a heading, or a bar above it."""
        # What a bar said before a heading belongs to the epoch before it.
        heading = position.epoch is not None and position.step is None
        around = Position() if heading else self._context
        self._context = position.within(around)

    def take(self, position: Position) -> Step | None:
        """Take in the position of a line with a measure; return its step, None if not stated."""
        found = self._step(position)
        if position.step is not None:
            # Further lines about this step may state none.
            around = self._context
            self._context = replace(position, epoch=around.epoch, epochs=around.epochs)
        before = self._last
        if found is None:
            return None
        if before is not None:
            if found.number < before.number:
                self.restarts += 1
            elif found.number == before.number and found.total is None:
                found = before  # a summary of the last step, say
        self._last = found
        return found

    def _step(self, position: Position) -> Step | None:
        at = position.within(self._context)
        epoch, epochs, step, steps = at.epoch, at.epochs, at.step, at.steps
        # Where epochs are counted in parts, steps are those of the training, at a whole one too.
        self._in_parts |= epoch is not None and not epoch.is_integer()
        if epoch is not None and not self._in_parts:
            self._from_zero |= epoch == 0
            passed = int(epoch) if self._from_zero else int(epoch) - 1
        else:
            passed = None
        if step is None:
            if epoch is None:
                return None
            return Step(int(epoch) + (1 if self._from_zero else 0), epochs)
        if at.whole or passed is None or passed < 0:
            return Step(step, steps)
        return self._within(passed, step, steps, epochs)

    def _within(self, passed: int, step: int, steps: int | None, epochs: int | None) -> Step:
        """Return the step of the training for a step that may count within its epoch."""
        before, in_epoch = self._epoch, self._in_epoch
        self._epoch, self._in_epoch = passed, step
        if steps:
            if passed > before and epochs is None:
                self._judge(0 < step * (before + 1) == in_epoch * (passed + 1))
            if self._over_epochs:
                return Step(step, steps)
            total = min(epochs * steps, MOST) if epochs else None
            return Step(min(passed * steps + step, MOST), total)
        if passed > before and step <= in_epoch:
            self._before = min(self._before + in_epoch, MOST)  # it began anew with the epoch
        elif passed < before:
            self._before = 0
        return Step(min(self._before + step, MOST))

    def _judge(self, in_proportion: bool) -> None:
        """Take in whether the steps of a bar are in proportion to the epochs: 10/30, then 20/30.

        If they are, it counts over all epochs. It may have been read otherwise until here.
        """
        if in_proportion and not self._over_epochs:
            self.count_anew()
        self._over_epochs = in_proportion
