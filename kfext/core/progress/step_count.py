"""The step of the whole training, from lines that each show only part of it.

A line seldom shows whether its step counts over the run or an epoch: the agreement of many lines
decides. Until they agree, the step or its total is unknown, because a wrong value would mislead the
decisions about the order and the end of jobs.
"""

import math
from dataclasses import dataclass, replace

from kfext.core.progress.bars import Bars, Place
from kfext.core.progress.position import MOST, Position

_PERSISTS = 5
"""So many lines in a row must count to a new end before the training has that end."""
_LAST_DIGIT = 9
"""A number of epochs seldom ends in this digit: `8/299` counts from 0."""
_ALIKE = 2
"""The end of the steps changes at most by this factor when a job restarts with a new size."""


@dataclass(frozen=True, slots=True)
class Step:
    """The progress of a training: step `number` of `total`, or None for an unknown total.

    `coarse`: whether these count epochs or folds, although the training also has steps.
    """

    number: int
    total: int | None = None
    coarse: bool = False


class Steps:
    """Follows the positions of the lines of a log.

    `restarts`: the number of times that the steps went back. `moved`: whether they ever advanced.
    `last`: the last known step, or None.
    `unrelated`: whether the last line with a measure was not about the training but about something
        with similar lines, such as an evaluation.
    `evaluating`: whether an evaluation may be running, so that steps that go back may be its steps.
    """

    def __init__(self) -> None:
        self.restarts = 0
        self.last: Step | None = None
        self.unrelated = False
        self._context = Position()  # what the last lines showed
        self._bars = Bars()
        self._first: int | None = None  # the number of the first epoch
        self._epochs_end: int | None = None  # the number of epochs that count from 0
        self._fractions = False  # whether epochs are printed as fractions
        self._whole: bool | None = None  # whether steps count over the run
        self._place: Place | None = None  # of the last line
        self._abandoned: Place | None = None  # before the last restart
        self._stride = 0  # the steps between the last two lines
        self._lines_apart = 0  # lines in a row with a different end
        self.evaluating = False
        self._begins_anew = False  # whether steps began again without an epoch
        self._has_steps = self.moved = False
        self._several_epochs = False
        self._doubtful: int | None = None  # the last count that may be no total
        self._doubtful_varies = False
        self._within_other = False  # whether steps count within an outer count
        self._epoch_summed = False
        self._outer: Position | None = None
        self._heading: tuple[int, Step | None] | None = None  # its step, and the last step then
        self._totals = Position()  # from lines that state only totals
        self._epoch_ended = self._has_measures = False

    def count_anew(self) -> None:
        """Forget the last line: the next lines are about a different measure."""
        self.last = self._place = None

    def add_position(self, position: Position, *, evaluation: bool = False) -> None:
        """Add the position of a line without a measure: a heading, or a bar above a measure.

        Of a line of an `evaluation`, only a count that contains the other counts is read.
        """
        if self._may_contain(position):
            self._follow_heading(position)
            return
        if evaluation:
            return
        if position.anew:
            self._count_within(position)
            return
        around = self._context
        if position.epoch is not None:
            self._epoch_summed = self._epoch_ended = position.ended
        if position.step is None and position.epoch is None:
            self._several_epochs |= (position.epochs or 0) > 1
            self._totals = replace(
                self._totals,
                steps=position.steps or self._totals.steps,
                epochs=position.epochs or self._totals.epochs,
            )
            return
        if position.bar:
            self._bars.add(position)
            self._follow_bar(position)
            position = _without_step(position)
            if position.epoch is None:
                return
        else:
            self._bars.last = None
            if position.step is None:
                around = Position()  # the last position was in the epoch before this heading
            elif not self.evaluating and self._continues(position):
                merged = _within(position, around)
                step = self._count(merged, self._whole if merged.whole is None else merged.whole)
                last = self.last or (step if self._has_measures else None)
                if step and last and step.number >= last.number:
                    self.last = _step(step.number, step.total or last.total)
        self._context = _within(position, around)

    def _may_contain(self, position: Position) -> bool:
        """Return whether a heading may be a count that contains all epochs: `round 3/200`."""
        if not position.named or position.bar or position.step is None or position.steps is None:
            return False
        if self._outer and self._outer.epochs:
            return position.steps == self._outer.epochs
        last = self.last
        return bool(last and last.total and not last.coarse and last.total < position.steps)

    def _follow_heading(self, heading: Position) -> None:
        """Follow a heading that may advance while the steps below it have ended, or stay."""
        last, step = self.last, heading.step or 0
        before, self._heading = self._heading, (step, last)
        over = last is not None and last.number == last.total
        if self._outer or over or (before and before[0] < step and before[1] == last):
            self._count_within(replace(heading, epoch=heading.step, epochs=heading.steps))

    def _continues(self, position: Position) -> bool:
        """Return whether a step without the followed measure counts like the last step."""
        alike = self.last and position.steps == self.last.total and not self._several_epochs
        return position.named or bool(alike and position.epoch is None and not position.bar)

    def read_summary(self, position: Position) -> None:
        """Read a line with a measure; if it has an epoch and no step, it may sum up the epoch."""
        if position.step is None and position.epoch is not None:
            self._epoch_summed = True

    def _drop_summed_epoch(self, position: Position) -> None:
        """Drop the epoch of a summary if the steps after it begin again without a heading."""
        place, step = self._place, position.step
        if step is None:
            return
        over = self._epoch_summed and position.epoch is None and position.whole is not True
        if over and place and step < place.step and step <= max(self._stride, 1):
            self._context, self._place, self._begins_anew = Position(), None, True
        self._epoch_summed = False

    def _follow_bar(self, bar: Position) -> None:
        last = self.last
        if last is None or last.total != bar.steps or bar.step is None or self.evaluating:
            return
        if self._bars.continues(bar, since=last.number):
            self.last = Step(bar.step, last.total)

    def step_at(self, position: Position, *, evaluation: bool = False) -> Step | None:
        """Return the step of a line with a measure, or None for an unknown step.

        `evaluation`: whether the measure, and any untitled bar above it, are of an evaluation.
        """
        if position.anew:
            self._count_within(position)
            self.last = self._coarse(position)
            return self.last
        if position.bar and self._bars.is_nested(position, self._place):
            position = Position()
        if evaluation and self._bars.last and not self._bars.last.named:
            self._bars.last, self._has_steps = None, True
        self._has_measures = True
        self._drop_summed_epoch(position)
        merged = self._around(position)
        self._learn(merged)
        begun = position.step is not None and self._began_anew(merged)
        self.unrelated = not begun and self._is_unrelated(merged)
        if self.unrelated:
            return None
        if position.step is not None:
            # Later lines about this step may omit it.
            self._context = merged
        if not merged.known:
            return None
        whole = self._scope(merged)
        self._go_to(merged, whole)
        over = self._epoch_ended and position.epoch is None and position.step is None
        step, before = None if over else self._count(merged, whole), self.last
        if step is None and not evaluation and not over:
            step = self._coarse(merged)
        if step and before and step.number == before.number and step.total is None:
            step = before  # such as a summary of the last step
        self.moved |= bool(step and before and step.number > before.number)
        self.last = step
        return step

    def _coarse(self, position: Position) -> Step | None:
        """Return the fold or epoch as the step; for a fraction of an epoch, the step there."""
        if self._outer and self._outer.epoch and self._outer.epochs:
            return _step(int(self._outer.epoch), self._outer.epochs, coarse=True)
        if position.epoch is None:
            return None
        if self._fractions:
            share = position.epoch / self._totals.epochs if self._totals.epochs else math.inf
            steps = self._totals.steps
            return _step(round(share * steps), steps) if steps and share <= 1 else None
        return _step(int(position.epoch) + (self._first == 0), self._epochs(position), coarse=True)

    def _count_within(self, outer: Position | None = None) -> None:
        """Follow steps that count within an `outer` count, and so not over the run."""
        self.count_anew()
        self._outer = outer or self._outer or Position()
        self.unrelated, self._within_other, self._context = False, True, Position()

    def _around(self, position: Position) -> Position:
        """Return a position merged with the lines before it, and with a bar that agrees."""
        if position.step is None and not position.bar and (bar := self._bars.last) is not None:
            if self._bars.trust(bar):
                self._context = _within(replace(bar, epoch=None), self._context)
            else:
                self._has_steps, self._context = True, _without_step(self._context)
        return _within(position, self._context)

    def _learn(self, position: Position) -> None:
        """Learn the first number of the epochs, and whether a doubtful count is an end."""
        if position.doubt:
            count = position.step if position.steps is None else position.steps
            self._doubtful_varies |= self._doubtful is not None and count != self._doubtful
            self._doubtful = count
        if position.epoch is None:
            return
        self._fractions |= position.parts
        if position.epoch == 0:
            self._first = 0
        elif position.first == 0 and position.epoch == position.epochs:
            self._first = 1
        elif self._first is None:
            begins = position.step is None or (position.steps or 0) >= 10 * position.step
            if position.first == 0 or (position.epochs or 0) % 10 == _LAST_DIGIT:
                self._first = 0
            elif (position.epoch == 1 and begins) or (
                position.first == 1 and (position.epoch == 1 or position.epochs)
            ):
                self._first = 1
        if self._first == 0 and position.first != 0 and position.epoch == position.epochs:
            self._epochs_end = position.epochs + 1

    def _began_anew(self, position: Position) -> bool:
        """Return whether an unfinished epoch is at its beginning again, perhaps with a new end.

        A job that restarts with more workers has fewer steps in an epoch.
        """
        place, end, stride = self._place, position.steps, max(self._stride, 1)
        if self.evaluating or position.bar or place is None or position.step is None:
            return False
        if not (end and place.end):
            return False
        epoch = -1 if position.epoch is None else position.epoch
        if position.step > stride or epoch > place.epoch:
            return False
        alike = position.whole is False or place.end <= _ALIKE * end <= _ALIKE**2 * place.end
        return epoch < place.epoch or (alike and 1 < place.step < place.end - self._stride)

    def _is_unrelated(self, position: Position) -> bool:
        """Return whether a line is not about the training but about something with similar lines.

        Such a line goes back after an evaluation was announced, or its steps have a different end.
        """
        place = self._place
        if place is None or position.step is None:
            return False
        other = bool(position.steps and place.end and position.steps != place.end)
        ahead = position.step > place.step and not (other and position.bar)
        epoch = position.epoch
        if position.whole is not True and epoch is not None and epoch != place.epoch:
            ahead = epoch > place.epoch
        if ahead:
            self.evaluating, self._lines_apart = False, 0
            return False
        again = place.end == position.steps and position.step < place.step < (place.end or 0)
        if self.evaluating and not again:
            self.evaluating = position.step != position.steps
            return True
        if not other:
            self._lines_apart = 0
            return False
        if position.step == place.step and position.epoch is None:
            self._begins_anew = True  # the printed end moves with the step, so it is no end
            return False
        self._lines_apart = 0 if position.step == position.steps else self._lines_apart + 1
        return self._lines_apart < _PERSISTS

    def _scope(self, position: Position) -> bool | None:
        """Return whether a step counts over the run, or None before that is known.

        A step within an epoch begins again with the next epoch, or step/end differs from
        epoch/epochs. In the first epoch of several, only a bar may count over the run.
        """
        if position.step is None or position.whole is not None:
            return position.whole
        if position.epoch is None or self._fractions:
            return None if position.epoch is None else True
        place = self._place
        if place and min(place.order) >= 0 and position.epoch > place.epoch:
            # The step may be larger by chance if lines in between were not read.
            self._whole = self._whole is not False and position.step > place.step
        if self._whole is None and position.steps and position.epochs and self._first is not None:
            passed = position.epoch - self._first
            share = position.step * position.epochs / position.steps
            if not passed - 0.5 <= share <= passed + 1.5:
                self._whole = False
            elif passed == 0 and not position.bar:
                return False
        return self._whole

    def _go_to(self, position: Position, whole: bool | None) -> None:
        """Compare a line with the line before it: steps that go back are a restart.

        A count that goes from its end to its beginning begins a new epoch and is no restart.
        """
        before, step = self._place, position.step
        epoch = -1 if position.epoch is None else position.epoch
        place = Place(epoch, -1 if step is None else step, position.steps, whole)
        self._place = place
        if before is None:
            return
        abandoned, self._abandoned = self._abandoned, None
        if not place.is_before(before):
            self._stride = max(place.step - before.step, 0)
            self.restarts -= bool(abandoned and abandoned.is_before(place))  # no restart after all
            return
        end, stride = before.end or 0, self._stride
        ended = before.step == end and 2 * place.step <= end
        ended |= before.step + stride >= end and place.step <= stride
        ended &= end > 0 and end == place.end
        of_epoch = ended and before.epoch == position.epoch
        again = before.epoch == position.epochs if step is None else of_epoch
        if position.bar and again:
            self._count_within()  # a bar that repeats within an epoch counts parts of a step
        elif ended and position.epoch is None:
            self._begins_anew = True
        else:
            self.restarts, self._abandoned = self.restarts + 1, before

    def _count(self, position: Position, whole: bool | None) -> Step | None:
        """Return the step of the whole training at a position, or None for an unknown step."""
        if position.step is None or self._within_other:
            return None if self._within_other else self._in_epochs(position)
        self._has_steps = True
        step, steps, epoch = position.step, position.steps, position.epoch
        if position.doubt and (steps is None or steps <= step or self._doubtful_varies):
            if steps is None and not self._doubtful_varies:
                return None
            steps = None
        if whole is True:
            return _step(step, steps)
        if epoch is None:
            known = not self._begins_anew and (position.named or whole is None)
            alone = whole is None and not self._several_epochs
            return _step(step, steps if alone else None) if known else None
        passed = -1 if self._first is None else int(epoch) - self._first
        epochs = self._epochs(position)
        total = epochs * steps if steps and epochs and whole is False else None
        if passed > 0 and steps and whole is False:
            step += passed * steps
        elif passed != 0:
            return None
        return _step(step, total)

    def _in_epochs(self, position: Position) -> Step | None:
        """Return the epoch as the step if the log counts only epochs, or None."""
        if position.epoch is None or self._first is None or self._has_steps or self._fractions:
            return None
        return _step(int(position.epoch) + 1 - self._first, self._epochs(position))

    def _epochs(self, position: Position) -> int | None:
        """Return the number of epochs. Epoch 0 of 9 may be the first of 9, or of 10."""
        return position.epochs if self._first == 1 or position.first == 0 else self._epochs_end


def _within(position: Position, around: Position) -> Position:
    """Fill in the missing step and epoch of a position from the position around it."""
    step, epoch = position, position
    if epoch.epoch is None and (position.step is None or around.whole is not True):
        epoch = around  # a line with a count over the run is not a heading of another count
    same = position.epoch is None or around.epoch in {None, position.epoch}
    if step.step is None and (same or around.whole is True or position.parts):
        step = around
    return replace(
        step,
        epoch=epoch.epoch,
        epochs=epoch.epochs or around.epochs,
        first=epoch.first,
        parts=epoch.parts,
    )


def _without_step(position: Position) -> Position:
    return replace(position, step=None, steps=None, whole=None, bar=False, named=False)


def _step(number: int, total: int | None, *, coarse: bool = False) -> Step:
    """Return a step; a total below the step does not count."""
    if total is not None and total < number:
        total = None
    return Step(min(number, MOST), None if total is None else min(total, MOST), coarse)
