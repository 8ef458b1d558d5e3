"""What one line of a training log says: measures of training, and where in the training it is.

No framework is known by name. A line gives measures if it has a number under the name of one:
`loss=0.5`, `Loss: 0.5`, `"loss": "0.5"`, `loss 0.5 (0.6)`. Where it is stands in words (`epoch: 3`,
`step 10/100`), in brackets (`[3/10][ 40/196]`), or in a progress bar (`40/196 [00:12<00:40`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice

from kfext.core.progress.figures import Figure, figures
from kfext.core.progress.metric_names import better, evaluation_prefix, may_be_whole
from kfext.core.progress.visible import states

_STEPS = frozenset(
    {
        *("step", "steps", "iter", "iters", "iteration", "iterations", "it", "its"),
        *("batch", "batches", "batch_idx", "update", "updates"),
    }
)
_GLOBAL_STEPS = frozenset(
    {
        *("global_step", "global_steps", "num_updates", "n_updates", "trained_steps"),
        *("total_steps", "total_timesteps"),
    }
)
_EPOCHS = frozenset(["epoch", "epochs"])
_PHASES = frozenset(["train", "training"])
_OTHER_WORK = ("B/s", "b/s", "bytes", "examples/s", "files", "file/s", "tokens/s", "shards", "url")
"""Units of bars that show a download or the preparation of data."""
_MOST_MEASURES = 16
_MOST_STATES = 8
"""Of a line that overwrites itself, in which its step is looked for."""
MOST = 10**15
"""Of every count that comes of what a job prints, so that it can be written as int64."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where in the training a line is, each part None if it does not say.

    `step` of `steps`: of the whole training if `whole`, else perhaps of an epoch.
    `epoch` of `epochs`: as printed; some count from 0. A part of an epoch has a fraction.
    """

    step: int | None = None
    steps: int | None = None
    whole: bool = False
    epoch: float | None = None
    epochs: int | None = None

    @property
    def known(self) -> bool:
        """Whether the line says anything of it."""
        return self.step is not None or self.epoch is not None

    def within(self, around: "Position") -> "Position":
        """Return this position; where it does not say the step or the epoch, `around` does."""
        step = around if self.step is None else self
        epoch = around if self.epoch is None else self
        return Position(step.step, step.steps, step.whole, epoch.epoch, epoch.epochs)


@dataclass(frozen=True, slots=True)
class Line:
    """What a line says; `measures` are pairs of name and number, in the order printed."""

    measures: tuple[tuple[str, float], ...]
    position: Position


def read_line(raw: str) -> Line | None:
    """Return what a line says, None if it says nothing of a training."""
    seen = states(raw)
    line = next(seen, "")
    found = figures(line)
    prefix = evaluation_prefix(line)
    measures = tuple((prefix + name, value) for name, value in _measures(found))[:_MOST_MEASURES]
    position = _position(found, measured=bool(measures), other=_is_other_work(line))
    if measures and position.step is None:
        position = _overwritten(position, seen)
    return Line(measures, position) if measures or position.known else None


def _overwritten(position: Position, before: Iterable[str]) -> Position:
    """Return a position with the step of the bar that the line has overwritten, if there is one."""
    for state in islice(before, _MOST_STATES):
        bar = _position(figures(state), measured=False, other=_is_other_work(state))
        if bar.step is not None:
            return replace(position, step=bar.step, steps=bar.steps)
    return position


def _measures(found: Iterable[Figure]) -> Iterable[tuple[str, float]]:
    seen = set()
    for one in found:
        if not one.name or one.name in seen or better(one.name) is None:
            continue
        if not (may_be_whole(one.name) or _has_fraction(one.text)):
            continue
        seen.add(one.name)
        value = float(one.text)
        whole = float(one.of) if one.of else 1.0
        yield one.name, value / whole if whole else value


def _has_fraction(text: str) -> bool:
    return not text.lstrip("+-").isdecimal()


def _position(found: list[Figure], *, measured: bool, other: bool) -> Position:
    epoch = next((one for one in found if _last_word(one) in _EPOCHS), None) or _phase(found)
    named = [one for one in found if _last_word(one) in _STEPS | _GLOBAL_STEPS and _counts(one)]
    whole = next((one for one in named if _last_word(one) in _GLOBAL_STEPS), None)
    step = whole or next(iter(named), None) or _unnamed(found, measured=measured, other=other)
    pair = _pair(found) if step is None and epoch is None and measured else None
    if pair:
        epoch, step = pair
    return Position(
        step=_count(step.text) if step else None,
        steps=_count(step.of) if step else None,
        whole=whole is not None,
        epoch=_epoch(epoch),
        epochs=_count(epoch.of) if epoch else None,
    )


def _unnamed(found: list[Figure], *, measured: bool, other: bool) -> Figure | None:
    """Return a position without a name: a fraction in a bar or in brackets, or a first `[10]`."""
    if other:
        return None
    fractions = [one for one in found if one.of and not one.name and _counts(one)]
    for one in fractions:
        if (one.first or one.opened) and _count(one.of):
            return one
    ahead = found[0] if found else None
    if measured and ahead and ahead.first and ahead.opened and ahead.unit == "]":
        return ahead if _counts(ahead) else None
    return None


def _phase(found: list[Figure]) -> Figure | None:
    """Return the epoch of a line that begins with `Train: 2 [ 50/1251]`."""
    if len(found) < 2:
        return None
    epoch, batch = found[:2]
    told = epoch.name.lower() in _PHASES and not epoch.of and batch.of and batch.opened
    return epoch if told and not batch.name else None


def _pair(found: list[Figure]) -> tuple[Figure, Figure] | None:
    """Return epoch and step of a line that begins with `[2, 2000]`."""
    if len(found) < 2:
        return None
    epoch, step = found[:2]
    paired = epoch.first and epoch.opened and epoch.unit == "," and step.unit == "]"
    return (epoch, step) if paired and _counts(epoch) and _counts(step) else None


def _is_other_work(line: str) -> bool:
    return any(unit in line for unit in _OTHER_WORK)


def _last_word(one: Figure) -> str:
    return one.name.rpartition(" ")[2].lower()


def _counts(one: Figure) -> bool:
    return _count(one.text) is not None


def _count(text: str) -> int | None:
    """Return a whole number that is not negative, None for anything else."""
    digits = text.lstrip("+")
    return min(int(digits), MOST) if digits.isdecimal() else None


def _epoch(one: Figure | None) -> float | None:
    if one is None or one.text.startswith("-"):
        return None
    value = float(one.text)
    return value if value < MOST else None
