"""Times as the API writes them, RFC 3339 in UTC, and as seconds since the epoch; durations.

A time on an object may come from a clock that was ahead. `past` and `left` are the two ways to
compare a stored time with the present: neither waits longer for such a time than for any other.
"""

import re
from datetime import UTC, datetime

from kfext.model.tolerant import text

LAST = 253402300799
"""The last second of the year 9999: the API has no later time."""
SKEW_SECONDS = 1.0
"""Seconds that a stored time may be later than meant: some are written in whole seconds."""
_AHEAD_SECONDS = 60.0
"""A stored time that is later by at most this was written just now, by a clock that is ahead."""

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)(h|ms|m|s|us|µs|ns)")
_MOST_PARTS = 7


def timestamp(value: object) -> float:
    """Return an RFC 3339 time as seconds since the epoch; 0.0 for anything else."""
    try:
        return datetime.fromisoformat(text(value)).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


def past(at: float, *, now: float) -> float:
    """Return a stored time of the past; 0.0, unknown, if it is later than clocks differ.

    Both are in seconds since the epoch.
    """
    return min(at, now) if at <= now + _AHEAD_SECONDS else 0.0


def left(until: float, *, now: float, longest: float) -> float:
    """Return the seconds until a stored end, 0.0 once it is over.

    `longest`: the seconds from the write of the end to the end. An end that is further away counts
    as over.
    """
    seconds = until - now
    return seconds if 0 < seconds <= longest + SKEW_SECONDS else 0.0


def duration(value: object) -> float | None:
    """Return a duration as Go writes it, such as `1m30.5s`, in seconds, or None."""
    rest, total = text(value), 0.0
    for _ in range(_MOST_PARTS):
        part = _PART.match(rest)
        if part is None:
            return None
        total += float(part[1]) * _UNITS[part[2]]
        rest = rest[part.end() :]
        if not rest:
            return total
    return None


def written_time(wall: float) -> str:
    """Return seconds since the epoch as the API writes a Time: whole seconds, rounded down."""
    return _written(wall, "seconds")


def written_micro_time(wall: float) -> str:
    """Return seconds since the epoch as the API writes a MicroTime."""
    return _written(wall, "microseconds")


def _written(wall: float, precision: str) -> str:
    moment = datetime.fromtimestamp(wall, UTC).isoformat(timespec=precision)
    return moment.removesuffix("+00:00") + "Z"
