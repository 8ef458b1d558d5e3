"""The bounded history of a job, and the curve of its metric, as its TrainingPlan records them.

These are the fields `status.history` and `status.curve`.
"""

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from kfext.core.words import CLAUSE
from kfext.model.timestamps import LAST, timestamp, written_time
from kfext.model.tolerant import mapping, sequence, text
from kfext.names import PHASES

MAX_ENTRIES, MAX_BYTES = 32, 3584
"""The bounds of a history in entries and bytes of JSON; a whole TrainingPlan is about 8 KB."""
MAX_POINTS, LONGEST_CURVE = 64, 4096
"""The bounds of a curve, in points and in characters."""
MAX_NODES, LONGEST_WHY = 8, 200
"""The most nodes in an entry, and the most characters of its message."""
_NODES_KEPT, _LONGEST_EVENT, _LONGEST_NODE = 2, 64, 253
"""The nodes that a shortened entry keeps; the most characters of `event` and of a node name."""
_LARGEST_COUNT = 2**31 - 1
_TIME = re.compile(r"\A\d{4}-\d\d-\d\dT[\d:]{8}Z: ", re.ASCII)
"""The time before some messages; it is removed, because an entry has its own time."""
_POINT = re.compile(r"(\d{1,12}),(\d{0,18}),(-?\d+(?:\.\d+)?(?:e[-+]\d+)?)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Entry:
    """An event in the life of a job.

    `at`: the time of the event, in epoch seconds.
    `event`: the phase that began, or the type of the condition that reports the change.
    `workers`: the number of training pods after the event.
    `nodes`, `more_nodes`: the job's first nodes after the event, and the number of other nodes.
    `why`: the message, without its time.
    `count`: how many events are merged here; `at` is from the first, all else from the last.
    """

    at: float
    event: str
    workers: int
    nodes: tuple[str, ...] = ()
    more_nodes: int = 0
    why: str = ""
    count: int = 1


class Point(NamedTuple):
    """A report of a job: its time in epoch seconds, and the step and metric; None means unknown."""

    at: int
    step: int | None
    value: float | None


@dataclass(frozen=True, slots=True)
class JobHistory:
    """The entries, oldest first, and the curve: points `time,step,value`, separated by `;`."""

    entries: tuple[Entry, ...] = ()
    curve: str = ""

    @property
    def phase(self) -> str:
        """The last phase that began, or an empty string."""
        phases = (entry.event for entry in reversed(self.entries) if entry.event in PHASES)
        return next(phases, "")

    def with_entry(
        self, event: str, why: str, *, at: float, workers: int, nodes: Sequence[str]
    ) -> Self:
        """Return the history with a new entry; `why` is cut to the clauses that fit.

        If the new entry equals the last, the two are merged. Clauses that the last entry already
        has are omitted. Older entries are merged while the history is too long. A clock that was
        set back does not change the order of entries.
        """
        before = self.entries[-1].why if self.entries else ""
        why = _TIME.sub("", why, count=1).removeprefix(f"{before}{CLAUSE}")
        if len(why) > LONGEST_WHY:
            why = why[:LONGEST_WHY].rpartition(CLAUSE)[0] or why[:LONGEST_WHY]
        at = float(int(max(at, self.entries[-1].at) if self.entries else at))
        more = max(len(nodes) - MAX_NODES, 0)
        entries = (*self.entries, Entry(at, event, workers, tuple(nodes[:MAX_NODES]), more, why))
        if len(entries) > 1 and replace(entries[-2], at=at, count=1) == entries[-1]:
            entries = _merge(entries, len(entries) - 2, len(entries) - 1)
        while len(entries) > 2 and (len(entries) > MAX_ENTRIES or _size(entries) > MAX_BYTES):
            entries = _shorten(entries)
        return replace(self, entries=entries)

    def with_point(self, at: float, step: int | None, value: float | None) -> Self:
        """Return the history with a new point, unless the job has reported nothing new.

        If the curve is full, the point with the least time between its neighbours is removed. So
        the first and the last point stay, and the others are spread over the life of the job.
        """
        points, value = decode_curve(self.curve), _finite(value)
        empty = None, None
        if (step, value) in {empty, points[-1][1:] if points else empty}:
            return self
        points.append(Point(max(int(at), points[-1].at + 1 if points else 0), step, value))
        if len(points) > MAX_POINTS:
            inner = range(1, len(points) - 1)
            del points[min(inner, key=lambda i: points[i + 1].at - points[i - 1].at)]
        return replace(self, curve=_encode_curve(points))

    def without_values(self) -> Self:
        """Return the history without the values of the curve, for a job with a new metric."""
        points = (point for point in decode_curve(self.curve) if point.step is not None)
        return replace(self, curve=_encode_curve([point._replace(value=None) for point in points]))

    def encode(self) -> dict[str, Any]:
        """Return the two fields of the TrainingPlan's status."""
        return {"history": _encode_entries(self.entries), "curve": self.curve}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _shorten(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Return a shorter history: with fewer names of nodes, else with fewer entries.

    Of adjacent entries of the same event, the pair closest in time is merged. If there is no such
    pair, two entries of the same event are merged with all entries between them. If each event
    occurs only once, the second entry is removed.
    """
    for index, entry in enumerate(entries[:-1] if len(entries) <= MAX_ENTRIES else ()):
        if cut := len(entry.nodes[_NODES_KEPT:]):
            nodes, more = entry.nodes[:_NODES_KEPT], entry.more_nodes + cut
            fewer = replace(entry, nodes=nodes, more_nodes=more)
            return (*entries[:index], fewer, *entries[index + 1 :])
    pairs, latest = list[tuple[int, int]](), dict[str, int]()
    for index, entry in enumerate(entries):
        if entry.event in latest:
            pairs.append((latest[entry.event], index))
        latest[entry.event] = index

    def distance(pair: tuple[int, int]) -> tuple[bool, float]:
        first, last = pair
        return last - first > 1, entries[last].at - entries[first].at

    if not pairs:
        return (entries[0], *entries[2:])
    return _merge(entries, *min(pairs, key=distance))


def _merge(entries: tuple[Entry, ...], first: int, last: int) -> tuple[Entry, ...]:
    """Return the entries with `first` to `last`, two indices, merged into one."""
    oldest, newest = entries[first], entries[last]
    merged = replace(newest, at=oldest.at, count=oldest.count + newest.count)
    return (*entries[:first], merged, *entries[last + 1 :])


def _size(entries: Iterable[Entry]) -> int:
    written = json.dumps(_encode_entries(entries), ensure_ascii=False, separators=(",", ":"))
    return len(written.encode())


# --- the fields of a TrainingPlan ---------------------------------------------------------------


def _encode_entries(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    return [
        {
            "time": written_time(entry.at),
            "what": entry.event,
            "workers": entry.workers,
            "nodes": list(entry.nodes),
            "moreNodes": entry.more_nodes,
            "why": entry.why,
            **({"times": entry.count} if entry.count > 1 else {}),
        }
        for entry in entries
    ]


def _encode_curve(points: Sequence[Point]) -> str:
    """Return a curve; values between the first and the last have six significant digits."""
    written = []
    for index, (at, step, value) in enumerate(points):
        inner = value is not None and 0 < index < len(points) - 1
        shown = f"{value:.6g}" if inner else "" if value is None else repr(value)
        written.append(f"{at},{'' if step is None else step},{shown}")
    return ";".join(written)


def decode_history(raw: object, curve: object) -> JobHistory:
    """Return a history from its two fields, within the bounds. Never raises."""
    entries = tuple(map(_decode_entry, map(mapping, sequence(raw)[-MAX_ENTRIES:])))
    return JobHistory(entries, text(curve)[:LONGEST_CURVE])


def _decode_entry(raw: Any) -> Entry:
    nodes = sequence(raw.get("nodes"))[:MAX_NODES]
    return Entry(
        at=min(max(timestamp(raw.get("time")), 0.0), LAST),
        event=text(raw.get("what"))[:_LONGEST_EVENT],
        workers=_count(raw.get("workers")),
        nodes=tuple(text(node)[:_LONGEST_NODE] for node in nodes),
        more_nodes=_count(raw.get("moreNodes")),
        why=text(raw.get("why"))[:LONGEST_WHY],
        count=max(_count(raw.get("times")), 1),
    )


def _count(value: object) -> int:
    return min(value, _LARGEST_COUNT) if type(value) is int and value > 0 else 0


def decode_curve(raw: object) -> list[Point]:
    """Return the points of a curve, each later than the point before it. Never raises."""
    points: list[Point] = []
    for part in text(raw)[:LONGEST_CURVE].split(";")[:MAX_POINTS]:
        match = _POINT.fullmatch(part)
        if match and (not points or int(match[1]) > points[-1].at):
            step, value = (int(match[2]) if match[2] else None), match[3]
            points.append(Point(int(match[1]), step, _finite(float(value)) if value else None))
    return points
