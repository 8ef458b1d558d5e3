"""What the controller must remember of the CPU that it gave to a job, a part of the job's state.

A pod shows only its present size. This state has what a new controller could not read there: what
the user wrote, and which limits are kfext's and not another client's.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from kfext.model.bounds import MOST_REPLICA_TYPES
from kfext.model.tolerant import mapping, sequence, strings, text

MOST_RESIZED = 48
"""Pods with limits that are remembered: as many as fit beside the rest of the state. A pod with
other CPU than its type counts twice."""
REMEMBERED = 3
"""Limits of one pod that are remembered."""
MOST_RESTS = 8
"""Policies that can leave a job alone."""
_LONGEST_REASON = 200
_LARGEST = 2**40
_INDEX = re.compile("0|[1-9][0-9]{0,5}")


class AskedCpu(NamedTuple):
    """The CPU that the user wrote for pods, in millicores; None: no limit."""

    request: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class CpuState:
    """The CPU of a job's pods where it is not the user's, in millicores.

    `asked`: what the user wrote, by replica type in lower case, for the types that kfext resized;
        and by replica, such as worker-0, for pods with other CPU than their type.
    `written`: by replica, such as worker-0, the limits that kfext wrote, newest first. If the
        controller dies between a record and a write, the pod has an earlier limit.
    `by`: the policies that wrote them.
    `rests`: by the name of a policy why it leaves the job alone.
    `used`, `lost`, `lent`, `borrowed`: core-seconds that the job used, lost to others, lent to
        others and borrowed from others (core.companion.signals).
    `counted_at`: until when these are counted, in epoch seconds; 0.0: unknown.
    """

    asked: Mapping[str, AskedCpu] = field(default_factory=dict)
    written: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    by: frozenset[str] = frozenset()
    rests: Mapping[str, str] = field(default_factory=dict)
    used: float = 0.0
    lost: float = 0.0
    lent: float = 0.0
    borrowed: float = 0.0
    counted_at: float = 0.0

    def asked_of(self, type_: str, index: int) -> AskedCpu | None:
        """Return what the user wrote for a replica, or None for a type that was not resized."""
        return self.asked.get(f"{type_}-{index}") or self.asked.get(type_)

    @property
    def unlike(self) -> tuple[str, ...]:
        """The replicas with other CPU from the user than their type."""
        return tuple(name for name in self.asked if "-" in name)

    def without_pods(self) -> Self:
        """Return the state after all pods have gone: new pods have what the user writes by then."""
        return replace(self, asked={}, written={}, by=frozenset(), counted_at=0.0)

    def encode(self, *, longest: int = _LONGEST_REASON) -> dict[str, object]:
        """Return what is written on the job: nothing empty, and no reason above `longest` bytes."""
        written: dict[str, dict[str, list[int]]] = {}
        unlike = self.unlike[: MOST_RESIZED // 2]
        for replica, limits in sorted(self.written.items())[: MOST_RESIZED - len(unlike)]:
            type_, _, index = replica.rpartition("-")
            written.setdefault(type_, {})[index] = list(limits[:REMEMBERED])
        values = {
            "asked": {
                name: [request] if limit is None else [request, limit]
                for name, (request, limit) in self.asked.items()
                if "-" not in name or name in unlike
            },
            "written": written,
            "by": sorted(self.by)[:MOST_RESTS],
            "rests": {
                name: cut(reason, most=min(longest, _LONGEST_REASON))
                for name, reason in sorted(self.rests.items())[:MOST_RESTS]
            },
            "used": round(self.used, 1),
            "lost": round(self.lost, 1),
            "lent": round(self.lent, 1),
            "borrowed": round(self.borrowed, 1),
            "countedAt": round(self.counted_at),
        }
        return {key: value for key, value in values.items() if value}


def decode_cpu(raw: Mapping[str, Any]) -> CpuState:
    """Return the state in a JSON object, without what is damaged. Never raises."""
    asked = {type_: _amounts(amounts) for type_, amounts in mapping(raw.get("asked")).items()}
    return CpuState(
        asked={
            type_: AskedCpu(amounts[0], amounts[1] if len(amounts) > 1 else None)
            for type_, amounts in list(asked.items())[: MOST_REPLICA_TYPES + MOST_RESIZED // 2]
            if amounts
        },
        written={
            f"{type_}-{index}": limits
            for type_, of in mapping(raw.get("written")).items()
            for index, amounts in mapping(of).items()
            if _INDEX.fullmatch(index) and (limits := _amounts(amounts))
        },
        by=frozenset(filter(None, map(text, sequence(raw.get("by"))[:MOST_RESTS]))),
        rests=strings(raw.get("rests")),
        used=_seconds(raw.get("used")),
        lost=_seconds(raw.get("lost")),
        lent=_seconds(raw.get("lent")),
        borrowed=_seconds(raw.get("borrowed")),
        counted_at=_seconds(raw.get("countedAt")),
    )


def cut(words: str, *, most: int) -> str:
    """Return a text cut to this many bytes of JSON, where a character may take twelve."""
    while len(json.dumps(words)) > most:
        words = words[: len(words) * 3 // 4]
    return words


def _amounts(raw: object) -> tuple[int, ...]:
    """Return a few amounts of CPU, or none if any is invalid."""
    found = tuple(sequence(raw)[:REMEMBERED])
    return found if all(type(amount) is int and 0 <= amount <= _LARGEST for amount in found) else ()


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 <= value <= _LARGEST and math.isfinite(value) else 0.0
