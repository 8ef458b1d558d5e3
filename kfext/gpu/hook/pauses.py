"""The pauses in the work of the high-priority job, past and present. Times are in seconds."""

from __future__ import annotations

from collections.abc import Sequence

from . import words
from .words import NS

KEPT = 32
"""The number of pauses on the page."""
LONGEST = 60.0
"""A longer pause counts as this long."""
PRICE = 0.1
"""The seconds of delay of the high-priority job that a second of low-priority work may cause."""
PIECE = 0.00065
"""The longest micro-step while pauses repeat, so that micro-steps fit into the pauses."""
_MIN_PAUSES, _SPREAD = 8, 0.15
_LAUNCH = 0.00003
"""The time until a micro-step that may begin is on the card."""
_MARGIN = 0.0001
"""Seconds subtracted from each pause, so that a micro-step ends before the job has work again."""


def record(page: memoryview, nanoseconds: int) -> None:
    """Write a pause that has ended to the page of the high-priority job."""
    page[words.PAUSES + page[words.PAUSED] % KEPT] = nanoseconds
    page[words.PAUSED] += 1


def last_pauses(page: memoryview) -> list[float]:
    """Return the last pauses on the page of the high-priority job, which may have any numbers."""
    known = page[words.PAUSES : words.PAUSES + min(page[words.PAUSED], KEPT)]
    return [min(nanoseconds / NS, LONGEST) for nanoseconds in known]


def repeat(pauses: Sequence[float]) -> bool:
    """Return whether pauses repeat: the middle half lies within 15 % of their median."""
    ordered, count = sorted(pauses), len(pauses)
    if count < _MIN_PAUSES:
        return False
    spread = ordered[3 * count // 4] - ordered[count // 4]
    return spread <= _SPREAD * ordered[count // 2]


def fits(
    elapsed: float, seconds: float, *, queued: float, pauses: Sequence[float], price: float
) -> bool:
    """Return whether a micro-step delays the high-priority job little enough, by its past pauses.

    `elapsed`: the length of the present pause so far. `seconds`: the length of the micro-step.
    `queued`: the time of the work on the card before it. `price`: see `PRICE`.
    A pause that is already longer than all others is assumed to last as long again.
    """
    if not pauses:
        return True
    longer = [pause - _MARGIN for pause in pauses if pause - _MARGIN > elapsed]
    if not longer:
        return queued + seconds <= 2 * price * elapsed
    ends = elapsed + queued + seconds + _LAUNCH
    delays = (min(max(ends - pause, 0.0), seconds) for pause in longer)
    return sum(delays) / len(longer) <= price * seconds
