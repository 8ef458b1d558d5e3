"""Times as the API writes them, RFC 3339 in UTC, and as seconds since the epoch; durations.

A time on an object may come from a clock that was ahead. `past` and `seconds_until` compare a
stored time with the present, and neither waits longer because of such a clock.
"""

import re
from datetime import UTC, datetime

from kfext.model.tolerant import text

LAST = 253402300799
"""The last second of the year 9999, in epoch seconds: the API has no later time."""
SKEW_SECONDS = 1.0
"""The largest delay of a stored time by rounding: some are written in whole seconds."""
_AHEAD_SECONDS = 60.0
"""A stored time that is later by at most this was just written, by a clock that is ahead."""

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)(h|ms|m|s|us|µs|ns)")
_MAX_PARTS = 7


def timestamp(value: object) -> float:
    """Return an RFC 3339 time as seconds since the epoch; 0.0 for anything else."""
    try:
        return datetime.fromisoformat(text(value)).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


def past(at: float, *, now: float) -> float:
    """Return a stored time in epoch seconds, at most `now`, or 0.0 if it is far in the future."""
    return min(at, now) if at <= now + _AHEAD_SECONDS else 0.0


def seconds_until(until: float, *, now: float, longest: float) -> float:
    """Return the seconds until a stored end; 0.0 after the end.

    `longest`: the most seconds that an end can be ahead when it is stored; if more, it has passed.
    """
    seconds = until - now
    return seconds if 0 < seconds <= longest + SKEW_SECONDS else 0.0


def duration(value: object) -> float | None:
    """Return the seconds of a duration in Go's format, such as `1m30.5s`, or None."""
    unread, total = text(value), 0.0
    for _ in range(_MAX_PARTS):
        part = _PART.match(unread)
        if part is None:
            return None
        total += float(part[1]) * _UNITS[part[2]]
        unread = unread[part.end() :]
        if not unread:
            return total
    return None


def written_time(wall: float) -> str:
    """Return epoch seconds in the API's format of a Time: whole seconds, rounded down."""
    return _written(wall, "seconds")


def written_micro_time(wall: float) -> str:
    """Return epoch seconds in the API's format of a MicroTime."""
    return _written(wall, "microseconds")


def _written(wall: float, precision: str) -> str:
    moment = datetime.fromtimestamp(wall, UTC).isoformat(timespec=precision)
    return moment.removesuffix("+00:00") + "Z"
