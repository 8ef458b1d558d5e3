"""CPU shared out by weight within bounds."""

from collections.abc import Sequence
from dataclasses import dataclass

_TINY = 1e-6
"""What a float may lack of a whole number."""


@dataclass(frozen=True, slots=True)
class Part:
    """One that takes part: its weight, and the least and the most that it may get."""

    weight: float
    least: int
    most: int


def share_out(total: int, parts: Sequence[Part]) -> list[int]:
    """Return what each part gets: in proportion to the weights, within the bounds.

    The sum is the total, as far as the bounds allow it. Whole millicores go to the largest
    remainders, in the order of the parts where these are equal; without weights all count alike.
    """
    rest = float(min(max(total, sum(one.least for one in parts)), sum(one.most for one in parts)))
    given = [0.0] * len(parts)
    free = list(range(len(parts)))
    while free:
        weights = sum(parts[at].weight for at in free)
        for at in free:
            share = parts[at].weight / weights if weights > 0 else 1 / len(free)
            given[at] = rest * share
        low = [at for at in free if given[at] < parts[at].least]
        high = [at for at in free if given[at] > parts[at].most]
        if not low and not high:
            break
        lack = sum(parts[at].least - given[at] for at in low)
        excess = sum(given[at] - parts[at].most for at in high)
        # The side that is further out stays at its bound whatever happens to the other one.
        fixed = low if lack >= excess else high
        for at in fixed:
            given[at] = parts[at].least if fixed is low else parts[at].most
            rest -= given[at]
        free = [at for at in free if at not in fixed]
    return _whole(given)


def _whole(given: Sequence[float]) -> list[int]:
    """Round amounts so that their sum, which is a whole number, is kept."""
    rounded = [int(one + _TINY) for one in given]
    missing = round(sum(given)) - sum(rounded)
    nearest = sorted(range(len(given)), key=lambda at: rounded[at] - given[at])
    for at in nearest[:missing]:
        rounded[at] += 1
    return rounded
