"""The expected start of a waiting job: its range, the accuracy of earlier ranges, and words."""

import math
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from kfext.model.timestamps import timestamp, written_time
from kfext.model.tolerant import mapping, text

_LOW, _HIGH, _LATE, _MARGIN = 0.75, 1.5, 1.2, 30.0
"""The range before enough starts are known: from 0.75 x the expected wait - 30 s to the larger of
1.5 x this wait and 1.2 x the wait behind new jobs, + 30 s."""
_ENOUGH, _MOST = 20, 400
_TAIL = 0.05
"""After 20 starts of a class of waits, its last 400 starts set the range: 5 % of them came before
it, and 5 % after it."""
_OFFSET = 15.0
"""Seconds that are added to both waits of a ratio, so that short waits do not dominate."""
SHORTEST = 30.0
"""The shortest scored wait, because a start itself takes as long."""
_NEWS = 0.2
"""A range is shown again once it has moved by this fraction of the remaining wait."""
_UNITS = ((3600.0, 60.0), (3 * 3600.0, 300.0), (12 * 3600.0, 900.0), (math.inf, 3600.0))
"""An upper bound of the remaining wait -> the rounding of the ends of its range, in seconds."""
LEADS = {120.0: "0-2m", 600.0: "2-10m", 3600.0: "10-60m", math.inf: "60m+"}
"""An upper bound of the expected wait in seconds -> its class."""
_TIMES = ("time", "earliest", "latest")
_TODAY = 12 * 3600.0
"""A time at most this many seconds ahead is shown without its day."""


@dataclass(frozen=True, slots=True)
class ExpectedStart:
    """The expected start of a job; times are in epoch seconds.

    `time`: the most likely time, between `earliest` and `latest`; None means that it is unknown.
    `unknown`: why it is unknown; then the job starts after `earliest`, if that is known.
    `after`: the running jobs that end before it, in words that the users of the job may see.
    """

    time: float | None = None
    earliest: float | None = None
    latest: float | None = None
    unknown: str = ""
    after: str = ""

    def is_news(self, shown: "ExpectedStart", *, now: float) -> bool:
        """Return whether this start differs enough from the `shown` start to replace it."""
        if self.unknown != shown.unknown:
            return True
        pairs = zip(self.times, shown.times, strict=True)
        moved = max(abs((new or now) - (old or now)) for new, old in pairs)
        return moved > max(60.0, _NEWS * ((self.time or self.earliest or now) - now))

    def accuracy(self, started: float) -> "Accuracy":
        """Return whether the start at a time in epoch seconds was before, in or after its range."""
        if self.earliest is not None and started < self.earliest:
            return Accuracy.EARLIER
        late = self.latest is not None and started > self.latest
        return Accuracy.LATER if late else Accuracy.WITHIN

    @property
    def times(self) -> tuple[float | None, float | None, float | None]:
        """The fields `time`, `earliest` and `latest`."""
        return self.time, self.earliest, self.latest


class Accuracy(StrEnum):
    """Whether a start was earlier than its range, within it, or later."""

    EARLIER = "earlier"
    WITHIN = "within"
    LATER = "later"


class Scores:
    """The ratios of actual and expected waits of the jobs that have started.

    Each class of waits has scores of its own: a job that was expected to start at once, but hung,
    waits hundreds of times longer than expected, and would widen the ranges of long waits as much.
    """

    def __init__(self) -> None:
        self._ratios: dict[str, deque[tuple[float, float]]] = {}

    def add(self, wait: float, *, expected: float, behind: float) -> None:
        """Record the actual and the expected waits of a job, in seconds; see `range`."""
        ratios = self._ratios.setdefault(lead(expected), deque(maxlen=_MOST))
        likely, delayed = ((wait + _OFFSET) / (seconds + _OFFSET) for seconds in (expected, behind))
        ratios.append((likely, delayed))

    def range(self, expected: float, *, behind: float) -> tuple[float, float]:
        """Return the shortest and the longest wait of a job, in seconds.

        `expected`: its most likely wait.
        `behind`: its wait behind new jobs, if they are submitted at the recent rate.
        """
        low = _LOW * expected - _MARGIN
        high = max(_HIGH * expected, _LATE * behind) + _MARGIN
        ratios = self._ratios.get(lead(expected), ())
        if len(ratios) >= _ENOUGH:
            likely, delayed = zip(*ratios, strict=True)
            low = _quantile(likely, _TAIL) * (expected + _OFFSET) - _OFFSET
            high = _quantile(delayed, 1 - _TAIL) * (behind + _OFFSET) - _OFFSET
        return max(0.0, min(low, expected)), max(high, expected)


def _quantile(values: Collection[float], fraction: float) -> float:
    return sorted(values)[round(fraction * (len(values) - 1))]


def lead(seconds: float) -> str:
    """Return the class of an expected wait in seconds, such as "2-10m"."""
    return next(name for bound, name in LEADS.items() if seconds < bound)


def rounded(expected: ExpectedStart, *, now: float) -> ExpectedStart:
    """Return an expected start for display: the longer the wait, the coarser its range."""
    time, earliest, latest = expected.times
    unit = next(unit for bound, unit in _UNITS if (latest or earliest or now) - now < bound)
    return replace(
        expected,
        time=None if time is None else float(round(time)),
        earliest=None if earliest is None else math.floor(earliest / unit) * unit,
        latest=None if latest is None else math.ceil(latest / unit) * unit,
    )


# --- words --------------------------------------------------------------------------------------


def column(expected: ExpectedStart, *, now: float) -> str:
    """Return the range of an expected start for a column of a table."""
    if expected.earliest is None or expected.latest is None:
        return "unknown"
    return f"{_clock(expected.earliest, now=now)}-{_clock(expected.latest, now=now)} UTC"


def sentence(expected: ExpectedStart, *, now: float) -> str:
    """Return a sentence on the expected start of a job."""
    times = expected.earliest, expected.time, expected.latest
    known = [_clock(at, now=now) for at in times if at is not None]
    if len(known) < len(times):
        before = f"not before {known[0]} UTC, else " if known else ""
        return f"{before}not known: {expected.unknown}"
    first, likely, last = known
    after = f"; after the end of {expected.after}" if expected.after else ""
    if (expected.latest or now) < now:
        return f"it should have started by {last} UTC, and is late{after}"
    return f"it should start between {first} and {last} UTC, most likely at {likely}{after}"


def _clock(at: float, *, now: float) -> str:
    form = "%H:%M" if at - now < _TODAY else "%b %d %H:%M"
    return datetime.fromtimestamp(at, UTC).strftime(form)


# --- the field of a TrainingPlan ----------------------------------------------------------------


def encode_expected(expected: ExpectedStart | None, *, now: float) -> dict[str, Any] | None:
    """Return the field `expectedStart`, with null for unknown members, as in a merge patch."""
    if expected is None:
        return None
    times = zip(_TIMES, expected.times, strict=True)
    return {
        **{name: None if at is None else written_time(at) for name, at in times},
        "unknown": expected.unknown or None,
        "after": expected.after or None,
        "summary": column(expected, now=now),
    }


def decode_expected(raw: object) -> ExpectedStart | None:
    """Return an expected start from its JSON, or None for JSON that has none. Never raises."""
    written: Mapping[str, Any] = mapping(raw)
    if not written:
        return None
    time, earliest, latest = (timestamp(written.get(name)) or None for name in _TIMES)
    unknown, after = text(written.get("unknown")), text(written.get("after"))
    return ExpectedStart(time, earliest, latest, unknown, after)
