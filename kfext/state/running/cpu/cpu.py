"""What the policies for CPU share: their condition, the opt-in, and how a sum is divided."""

from collections.abc import Sequence
from dataclasses import dataclass

from kfext import names
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Resize
from kfext.model.policy import Mode
from kfext.state.running.policy import Condition, Parameter

_TINY = 1e-6
"""Rounding errors up to this size are ignored."""


RESIZED = Condition(
    names.RESIZED,
    "Resize",
    names.REASON_RESIZE_REFUSED,
    frozenset(
        {
            *(names.REASON_CPU_MOVED, names.REASON_WOULD_MOVE, names.REASON_NOTHING_TO_MOVE),
            *(names.REASON_STANDS_DOWN, names.REASON_RESTS, names.REASON_RESIZE_REFUSED),
            *(names.REASON_TOO_EARLY, names.REASON_CPU_RESTORED),
        }
    ),
)
"""Whether pods have other CPU than the user wrote."""
INTERVAL = Parameter(30.0, 10.0, 3600.0, "seconds between two looks at a job")

_MODES = {Resize.OFF: Mode.OFF, Resize.OBSERVE: Mode.OBSERVE, Resize.CPU: Mode.ACT}


def opted_in(settings: Settings) -> Mode:
    """Return the most that a job lets policies do with the CPU of its pods."""
    return _MODES[settings.resize]


@dataclass(frozen=True, slots=True)
class Part:
    """A participant: its weight, and the least and the most that it may get."""

    weight: float
    least: int
    most: int


def share_out(total: int, parts: Sequence[Part]) -> list[int]:
    """Return the amount for each part: in proportion to the weights, within the bounds.

    The sum is the total if the bounds allow it. Whole millicores go to the largest remainders, in
    the order of the parts if remainders are equal. Without weights all parts are equal.
    """
    rest = float(
        min(max(total, sum(part.least for part in parts)), sum(part.most for part in parts))
    )
    given = [0.0] * len(parts)
    free = list(range(len(parts)))
    while free:
        weights = sum(parts[index].weight for index in free)
        for index in free:
            share = parts[index].weight / weights if weights > 0 else 1 / len(free)
            given[index] = rest * share
        low = [index for index in free if given[index] < parts[index].least]
        high = [index for index in free if given[index] > parts[index].most]
        if not low and not high:
            break
        lack = sum(parts[index].least - given[index] for index in low)
        excess = sum(given[index] - parts[index].most for index in high)
        # The side further beyond its bounds stays at its bounds whatever the other side does.
        fixed = low if lack >= excess else high
        for index in fixed:
            given[index] = parts[index].least if fixed is low else parts[index].most
            rest -= given[index]
        free = [index for index in free if index not in fixed]
    return _whole(given)


def _whole(given: Sequence[float]) -> list[int]:
    """Round the amounts and keep their sum, which is a whole number."""
    rounded = [int(amount + _TINY) for amount in given]
    missing = round(sum(given)) - sum(rounded)
    nearest = sorted(range(len(given)), key=lambda index: rounded[index] - given[index])
    for index in nearest[:missing]:
        rounded[index] += 1
    return rounded
