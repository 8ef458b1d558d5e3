"""What happened to a job, and the course of its metric, as its TrainingPlan keeps them: bounded.

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

MOST_ENTRIES, MOST_BYTES = 32, 3584
"""Of a history, in entries and in bytes of JSON: a TrainingPlan has at most about 8 KB."""
MOST_POINTS, LONGEST_CURVE = 64, 4096
"""Of a curve, in points and in characters."""
MOST_NODES, LONGEST_WHY = 8, 200
"""Of an entry: the nodes that it names, and the characters of its reason."""
_FEWEST_NODES, _LONGEST_WHAT, _LONGEST_NODE = 2, 64, 253
_LARGEST = 2**31 - 1
_TIME = re.compile(r"\A\d{4}-\d\d-\d\dT[\d:]{8}Z: ", re.ASCII)
"""What some messages begin with; an entry has a time of its own."""
_POINT = re.compile(r"(\d{1,12}),(\d{0,18}),(-?\d+(?:\.\d+)?(?:e[-+]\d+)?)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Entry:
    """What happened to a job.

    `at`: when it happened, in epoch seconds.
    `what`: the phase that began, or the type of the condition that tells of the change.
    `workers`: how many pods of the job train from then on.
    `nodes`, `more_nodes`: the first nodes of the job from then on, and the number of the others.
    `times`: how many entries it stands for: its time is the time of the first, all else is of the
        last.
    """

    at: float
    what: str
    workers: int
    nodes: tuple[str, ...] = ()
    more_nodes: int = 0
    why: str = ""
    times: int = 1


class Point(NamedTuple):
    """What a job reported at a second of the epoch; None: unknown."""

    at: int
    step: int | None
    value: float | None


@dataclass(frozen=True, slots=True)
class JobHistory:
    """The history of a job, oldest entry first, and its curve: `t,step,value` for each point."""

    entries: tuple[Entry, ...] = ()
    curve: str = ""

    @property
    def phase(self) -> str:
        """The last phase that began; empty without any."""
        phases = (known.what for known in reversed(self.entries) if known.what in PHASES)
        return next(phases, "")

    def with_entry(
        self, what: str, why: str, *, at: float, workers: int, nodes: Sequence[str]
    ) -> Self:
        """Return the history after another entry; `why` keeps as many of its clauses as fit.

        An entry that says what the entry before it says counts with it, or leaves it out. While the
        history is too long, entries become one. A clock that was set back does not change their
        order.
        """
        before = self.entries[-1].why if self.entries else ""
        why = _TIME.sub("", why, count=1).removeprefix(f"{before}{CLAUSE}")
        if len(why) > LONGEST_WHY:
            why = why[:LONGEST_WHY].rpartition(CLAUSE)[0] or why[:LONGEST_WHY]
        at = float(int(max(at, self.entries[-1].at) if self.entries else at))
        more = max(len(nodes) - MOST_NODES, 0)
        entries = (*self.entries, Entry(at, what, workers, tuple(nodes[:MOST_NODES]), more, why))
        if len(entries) > 1 and replace(entries[-2], at=at, times=1) == entries[-1]:
            entries = _merged(entries, len(entries) - 2, len(entries) - 1)
        while len(entries) > 2 and (len(entries) > MOST_ENTRIES or _size(entries) > MOST_BYTES):
            entries = _shortened(entries)
        return replace(self, entries=entries)

    def with_point(self, at: float, step: int | None, value: float | None) -> Self:
        """Return the history after another point, unless the job has reported nothing new.

        A full curve loses the point that is closest between its neighbours. So it keeps its first
        and its last point, and the others are spread over the life of the job.
        """
        points, value = decode_curve(self.curve), _finite(value)
        nothing = None, None
        if (step, value) in {nothing, points[-1][1:] if points else nothing}:
            return self
        points.append(Point(max(int(at), points[-1].at + 1 if points else 0), step, value))
        if len(points) > MOST_POINTS:
            inner = range(1, len(points) - 1)
            del points[min(inner, key=lambda i: points[i + 1].at - points[i - 1].at)]
        return replace(self, curve=_encoded(points))

    def without_values(self) -> Self:
        """Return the history without the values of the curve: the job reports another metric."""
        points = (point for point in decode_curve(self.curve) if point.step is not None)
        return replace(self, curve=_encoded([point._replace(value=None) for point in points]))

    def encode(self) -> dict[str, Any]:
        """Return the fields."""
        return {"history": _encoded_entries(self.entries), "curve": self.curve}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _shortened(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Return a history that is shorter: with fewer names of nodes, else with fewer entries.

    Of two neighbours of one kind, those closest in time become one. Without such neighbours, two
    entries of one kind become one with all between them; if no kind is there twice, the second
    entry goes.
    """
    for place, known in enumerate(entries[:-1] if len(entries) <= MOST_ENTRIES else ()):
        if rest := len(known.nodes[_FEWEST_NODES:]):
            nodes, more = known.nodes[:_FEWEST_NODES], known.more_nodes + rest
            fewer = replace(known, nodes=nodes, more_nodes=more)
            return (*entries[:place], fewer, *entries[place + 1 :])
    pairs, latest = list[tuple[int, int]](), dict[str, int]()
    for place, known in enumerate(entries):
        if known.what in latest:
            pairs.append((latest[known.what], place))
        latest[known.what] = place

    def apart(pair: tuple[int, int]) -> tuple[bool, float]:
        first, last = pair
        return last - first > 1, entries[last].at - entries[first].at

    if not pairs:
        return (entries[0], *entries[2:])
    return _merged(entries, *min(pairs, key=apart))


def _merged(entries: tuple[Entry, ...], first: int, last: int) -> tuple[Entry, ...]:
    """Return a history with one entry for two entries and all between them."""
    begun, ended = entries[first], entries[last]
    merged = replace(ended, at=begun.at, times=begun.times + ended.times)
    return (*entries[:first], merged, *entries[last + 1 :])


def _size(entries: Iterable[Entry]) -> int:
    written = json.dumps(_encoded_entries(entries), ensure_ascii=False, separators=(",", ":"))
    return len(written.encode())


# --- the fields of a TrainingPlan ---------------------------------------------------------------


def _encoded_entries(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    return [
        {
            "time": written_time(known.at),
            "what": known.what,
            "workers": known.workers,
            "nodes": list(known.nodes),
            "moreNodes": known.more_nodes,
            "why": known.why,
            **({"times": known.times} if known.times > 1 else {}),
        }
        for known in entries
    ]


def _encoded(points: Sequence[Point]) -> str:
    """Return a curve; the values between the first and the last have six digits."""
    written = []
    for place, (at, step, value) in enumerate(points):
        inner = value is not None and 0 < place < len(points) - 1
        shown = f"{value:.6g}" if inner else "" if value is None else repr(value)
        written.append(f"{at},{'' if step is None else step},{shown}")
    return ";".join(written)


def decode_history(raw: object, curve: object) -> JobHistory:
    """Return a history from its two fields, within the bounds. Never raises."""
    entries = tuple(map(_decoded, map(mapping, sequence(raw)[-MOST_ENTRIES:])))
    return JobHistory(entries, text(curve)[:LONGEST_CURVE])


def _decoded(raw: Any) -> Entry:
    nodes = sequence(raw.get("nodes"))[:MOST_NODES]
    return Entry(
        at=min(max(timestamp(raw.get("time")), 0.0), LAST),
        what=text(raw.get("what"))[:_LONGEST_WHAT],
        workers=_count(raw.get("workers")),
        nodes=tuple(text(node)[:_LONGEST_NODE] for node in nodes),
        more_nodes=_count(raw.get("moreNodes")),
        why=text(raw.get("why"))[:LONGEST_WHY],
        times=max(_count(raw.get("times")), 1),
    )


def _count(value: object) -> int:
    return min(value, _LARGEST) if type(value) is int and value > 0 else 0


def decode_curve(raw: object) -> list[Point]:
    """Return the points of a curve, each later than the point before it. Never raises."""
    points: list[Point] = []
    for part in text(raw)[:LONGEST_CURVE].split(";")[:MOST_POINTS]:
        found = _POINT.fullmatch(part)
        if found and (not points or int(found[1]) > points[-1].at):
            step, value = (int(found[2]) if found[2] else None), found[3]
            points.append(Point(int(found[1]), step, _finite(float(value)) if value else None))
    return points
