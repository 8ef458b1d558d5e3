"""The part of a job's state about the CPU that the controller has set.

A pod shows only its present size. This state has the facts that a new controller could not read
there: the sizes that the user wrote, and the sizes that kfext, not another client, wrote.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from kfext.model.bounds import MAX_REPLICA_TYPES, cut
from kfext.model.tolerant import mapping, sequence, strings, text

MAX_RESIZED = 36
"""Pods with sizes in the state: as many as fit beside the other parts of the state. A pod with
a different CPU than its type counts twice."""
REMEMBERED = 3
"""The most sizes of a pod in the state."""
MAX_RESTS = 8
"""The most disabled policies of a job in the state."""
_LONGEST_REASON = 200
_LARGEST = 2**40
_INDEX = re.compile("0|[1-9][0-9]{0,5}")


class PodCpu(NamedTuple):
    """The CPU of the training container of a pod, in millicores; None means no limit."""

    request: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class CpuState:
    """The CPU of a job's pods where kfext changed it, in millicores.

    `requested`: the CPU that the user wrote, by replica type in lower case, for the types that
        kfext resized; and by replica, such as worker-0, for pods that differ from their type.
    `written`: the sizes that kfext wrote, newest first, by replica, such as worker-0. If the
        controller dies between a record and a write, the pod has an earlier size.
    `by`: the policies that wrote these sizes.
    `disabled`: the reason for each policy that is disabled for the job, by its name.
    """

    requested: Mapping[str, PodCpu] = field(default_factory=dict)
    written: Mapping[str, tuple[PodCpu, ...]] = field(default_factory=dict)
    by: frozenset[str] = frozenset()
    disabled: Mapping[str, str] = field(default_factory=dict)

    def requested_of(self, type_: str, index: int) -> PodCpu | None:
        """Return the CPU that the user wrote for a replica, or None for a type never resized."""
        return self.requested.get(f"{type_}-{index}") or self.requested.get(type_)

    def written_of(self, type_: str, index: int) -> tuple[PodCpu, ...]:
        """Return the sizes that kfext wrote for a replica, newest first."""
        return self.written.get(f"{type_}-{index}", ())

    @property
    def unlike(self) -> tuple[str, ...]:
        """The replicas that the user gave a different CPU than their type."""
        return tuple(name for name in self.requested if "-" in name)

    def without_pods(self) -> Self:
        """Return the state after all pods are gone: new pods have the sizes of the templates."""
        return replace(self, requested={}, written={}, by=frozenset())

    def encode(self, *, longest: int = _LONGEST_REASON) -> dict[str, object]:
        """Return the non-empty values as a JSON object, with reasons cut to `longest` bytes."""
        written: dict[str, dict[str, list[list[int]]]] = {}
        unlike = self.unlike[: MAX_RESIZED // 2]
        for replica, sizes in sorted(self.written.items())[: MAX_RESIZED - len(unlike)]:
            type_, _, index = replica.rpartition("-")
            written.setdefault(type_, {})[index] = list(map(_encoded, sizes[:REMEMBERED]))
        values = {
            "asked": {
                name: _encoded(cpu)
                for name, cpu in self.requested.items()
                if "-" not in name or name in unlike
            },
            "written": written,
            "by": sorted(self.by)[:MAX_RESTS],
            "rests": {
                name: cut(reason, most=min(longest, _LONGEST_REASON))
                for name, reason in sorted(self.disabled.items())[:MAX_RESTS]
            },
        }
        return {key: value for key, value in values.items() if value}


def decode_cpu(raw: Mapping[str, Any]) -> CpuState:
    """Return the state in a JSON object, without damaged parts. Never raises."""
    sizes = {name: _decoded(cpu) for name, cpu in mapping(raw.get("asked")).items()}
    named = list(sizes.items())[: MAX_REPLICA_TYPES + MAX_RESIZED // 2]
    return CpuState(
        requested={name: cpu for name, cpu in named if cpu},
        written={
            f"{type_}-{index}": written
            for type_, replicas in mapping(raw.get("written")).items()
            for index, encoded in mapping(replicas).items()
            if _INDEX.fullmatch(index)
            and (written := tuple(filter(None, map(_decoded, sequence(encoded)[:REMEMBERED]))))
        },
        by=frozenset(filter(None, map(text, sequence(raw.get("by"))[:MAX_RESTS]))),
        disabled=strings(raw.get("rests")),
    )


def _encoded(cpu: PodCpu) -> list[int]:
    return [cpu.request] if cpu.limit is None else [cpu.request, cpu.limit]


def _decoded(raw: object) -> PodCpu | None:
    """Return the CPU of a pod, or None for an invalid amount."""
    amounts = sequence(raw)[:2]
    if not amounts or not all(type(n) is int and 0 <= n <= _LARGEST for n in amounts):
        return None
    return PodCpu(amounts[0], amounts[1] if len(amounts) > 1 else None)
