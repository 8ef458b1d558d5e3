"""What the controller must remember of the CPU that it gave to a job, a part of the job's state.

A pod shows only its present size. This state has what a new controller could not read there: what
the user wrote, and which sizes are kfext's and not another client's.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from kfext.model.bounds import MOST_REPLICA_TYPES, cut
from kfext.model.tolerant import mapping, sequence, strings, text

MOST_RESIZED = 36
"""Pods with sizes that are remembered: as many as fit beside the rest of the state. A pod with
other CPU than its type counts twice."""
REMEMBERED = 3
"""Sizes of one pod that are remembered."""
MOST_RESTS = 8
"""Policies that can leave a job alone."""
_LONGEST_REASON = 200
_LARGEST = 2**40
_INDEX = re.compile("0|[1-9][0-9]{0,5}")


class PodCpu(NamedTuple):
    """The CPU of the container that trains in a pod, in millicores; None: no limit."""

    request: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class CpuState:
    """The CPU of a job's pods where it is not the user's, in millicores.

    `requested`: the CPU in the job, by replica type in lower case, for the types that kfext
        resized; and by replica, such as worker-0, for pods with other CPU than their type.
    `written`: by replica, such as worker-0, the sizes that kfext wrote, newest first. If the
        controller dies between a record and a write, the pod has an earlier size.
    `by`: the policies that wrote them.
    `disabled`: by the name of a policy why it leaves the job alone.
    """

    requested: Mapping[str, PodCpu] = field(default_factory=dict)
    written: Mapping[str, tuple[PodCpu, ...]] = field(default_factory=dict)
    by: frozenset[str] = frozenset()
    disabled: Mapping[str, str] = field(default_factory=dict)

    def requested_of(self, type_: str, index: int) -> PodCpu | None:
        """Return what the user wrote for a replica, or None for a type that was not resized."""
        return self.requested.get(f"{type_}-{index}") or self.requested.get(type_)

    def written_of(self, type_: str, index: int) -> tuple[PodCpu, ...]:
        """Return the sizes that kfext wrote for a replica, newest first."""
        return self.written.get(f"{type_}-{index}", ())

    @property
    def unlike(self) -> tuple[str, ...]:
        """The replicas with other CPU from the user than their type."""
        return tuple(name for name in self.requested if "-" in name)

    def without_pods(self) -> Self:
        """Return the state after all pods have gone: new pods have what the user writes by then."""
        return replace(self, requested={}, written={}, by=frozenset())

    def encode(self, *, longest: int = _LONGEST_REASON) -> dict[str, object]:
        """Return what is written on the job: nothing empty, and no reason above `longest` bytes."""
        written: dict[str, dict[str, list[list[int]]]] = {}
        unlike = self.unlike[: MOST_RESIZED // 2]
        for replica, sizes in sorted(self.written.items())[: MOST_RESIZED - len(unlike)]:
            type_, _, index = replica.rpartition("-")
            written.setdefault(type_, {})[index] = list(map(_encoded, sizes[:REMEMBERED]))
        values = {
            "asked": {
                name: _encoded(cpu)
                for name, cpu in self.requested.items()
                if "-" not in name or name in unlike
            },
            "written": written,
            "by": sorted(self.by)[:MOST_RESTS],
            "rests": {
                name: cut(reason, most=min(longest, _LONGEST_REASON))
                for name, reason in sorted(self.disabled.items())[:MOST_RESTS]
            },
        }
        return {key: value for key, value in values.items() if value}


def decode_cpu(raw: Mapping[str, Any]) -> CpuState:
    """Return the state in a JSON object, without what is damaged. Never raises."""
    sizes = {name: _decoded(cpu) for name, cpu in mapping(raw.get("asked")).items()}
    named = list(sizes.items())[: MOST_REPLICA_TYPES + MOST_RESIZED // 2]
    return CpuState(
        requested={name: cpu for name, cpu in named if cpu},
        written={
            f"{type_}-{index}": written
            for type_, of in mapping(raw.get("written")).items()
            for index, found in mapping(of).items()
            if _INDEX.fullmatch(index)
            and (written := tuple(filter(None, map(_decoded, sequence(found)[:REMEMBERED]))))
        },
        by=frozenset(filter(None, map(text, sequence(raw.get("by"))[:MOST_RESTS]))),
        disabled=strings(raw.get("rests")),
    )


def _encoded(cpu: PodCpu) -> list[int]:
    return [cpu.request] if cpu.limit is None else [cpu.request, cpu.limit]


def _decoded(raw: object) -> PodCpu | None:
    """Return the CPU of a pod, or None for an invalid amount."""
    found = sequence(raw)[:2]
    if not found or not all(type(amount) is int and 0 <= amount <= _LARGEST for amount in found):
        return None
    return PodCpu(found[0], found[1] if len(found) > 1 else None)
