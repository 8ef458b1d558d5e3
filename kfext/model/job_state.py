"""The controller's record of a job across restarts, stored as JSON on the job.

A state names the uid of its job, as a plan does, so the state in a copied manifest is ignored.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Self

from kfext.model.bounds import MAX_PORTS, MAX_TOLERATIONS, cut
from kfext.model.constraints import Toleration
from kfext.model.cpu_state import CpuState, decode_cpu
from kfext.model.job import TrainingJob
from kfext.model.kinds.registered import KINDS
from kfext.model.node_ask import NodeAsk, decode_ask
from kfext.model.quantity import Resources
from kfext.model.scale_state import (
    MoveState,
    ScaleState,
    StopState,
    decode_move,
    decode_scale,
    decode_stop,
)
from kfext.model.timestamps import seconds_until
from kfext.model.tolerant import json_object, mapping, sequence, strings, text
from kfext.names import STATE

LIMIT = 4096
"""The most bytes of the annotation."""

MAX_APART = 32
"""The most uids that `JobState.apart` has."""

EXCLUDED_SECONDS = 300.0
"""How long a node stays excluded for a job after a pod of the job was not bound there."""

_MIN_APART = 4
"""The uids in `JobState.apart` that are never dropped for space."""
_MESSAGE_LIMIT = 1024
_MIN_TEXT_LIMIT = 48
"""Messages are cut to _MESSAGE_LIMIT bytes of JSON, or less; with this limit a state fits."""
_MAX_NUMBER = 2.0**63
_PERMILLE = 1000
_TYPES = sorted({type_.lower() for kind in KINDS.values() for type_ in kind.types})
_PORT = re.compile("[1-9][0-9]{0,4}")


@dataclass(frozen=True, slots=True)
class ObservedPods:
    """The pods of a replica type as admission made them from their template.

    `template`: the number of the template, `ReplicaGroup.template`.
    `requests`: the largest request of a pod, by resource.
    `node_selector`: the pods' node selector, as pairs of label and value.
    `host_ports`: the protocol and number of each port that all pods have, without the ports of the
        template and the plan.
    `untolerated`: whether a pod does not tolerate the taint with the name of an extended resource.
    `tolerations`: the tolerations that all pods have and the template lacks, as for node pools.
    """

    template: int
    requests: Resources = field(default_factory=dict)
    node_selector: tuple[tuple[str, str], ...] = ()
    host_ports: tuple[tuple[str, int], ...] = ()
    untolerated: bool = False
    tolerations: tuple[Toleration, ...] = ()

    def encode(self) -> dict[str, object]:
        """Return the JSON object in the state."""
        return {
            "template": self.template,
            "requests": dict(self.requests),
            **({"nodeSelector": dict(self.node_selector)} if self.node_selector else {}),
            **({"hostPorts": [f"{p}/{n}" for p, n in self.host_ports]} if self.host_ports else {}),
            **({"untolerated": True} if self.untolerated else {}),
            **({"tolerations": [astuple(t) for t in self.tolerations]} if self.tolerations else {}),
        }


@dataclass(frozen=True, slots=True)
class JobState:
    """The controller's record of a job. Times are seconds since the epoch.

    `strikes`: the placements in a row that kube-scheduler or the operator did not carry out.
    `excluded`: the end of the exclusion of each excluded node.
    `suspended_at`: the last time at which kfext suspended the job while it had pods.
    `retry_at`: the earliest time of the next start or, for a started job, of the next strike.
    `reason`, `message`: why the job was last suspended or got a strike.
    `generation`: the number of the last plan that was removed from the job.
    `requested`: the requested size of the job while kfext runs it with a different size, else 0.
    `assigned`: that different size, else 0.
    `queued_since`: the time at which the job joined the queue, unchanged by a failed start; 0.0
        stands for the later of the job's creation and `suspended_at`.
    `observed`: the job's pods as admission made them, by replica type in lower case.
    `no_host_network`: why the job does not use the host network again; empty if it may.
    `settings`: the last valid values of annotations that the job's templates lack. They count while
        the annotation on the job is malformed (core.settings.resolve).
    `busy`: the thousandths of the time in which a replica would keep a GPU of its own busy, by type
        in lower case, as last measured. A forged value harms only the job itself.
    `apart`: the uids of the last jobs that could not share a GPU with the job.
    `cpu`: the changes of kfext to the CPU of the job's pods.
    `scale`: the changes of kfext to the job's number of workers. `move`: its last move.
    `ask`: the job's requests for nodes since its gang was last complete, or None.
    `stop`: the last time that kfext stopped it for other jobs.
    """

    strikes: int = 0
    excluded: Mapping[str, float] = field(default_factory=dict)
    suspended_at: float = 0.0
    retry_at: float = 0.0
    reason: str = ""
    message: str = ""
    generation: int = 0
    requested: int = 0
    assigned: int = 0
    queued_since: float = 0.0
    observed: Mapping[str, ObservedPods] = field(default_factory=dict)
    no_host_network: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    busy: Mapping[str, int] = field(default_factory=dict)
    apart: tuple[str, ...] = ()
    cpu: CpuState = field(default_factory=CpuState)
    scale: ScaleState = field(default_factory=ScaleState)
    move: MoveState = field(default_factory=MoveState)
    ask: NodeAsk | None = None
    stop: StopState = field(default_factory=StopState)

    def excluded_nodes(self, now: float) -> tuple[str, ...]:
        """Return the names of the nodes that are excluded now."""
        return tuple(self.exclusion_seconds(now))

    def exclusion_seconds(self, now: float) -> Mapping[str, float]:
        """Return the remaining seconds of each exclusion, by the name of the node."""
        remaining = {
            node: seconds_until(end, now=now, longest=EXCLUDED_SECONDS)
            for node, end in self.excluded.items()
        }
        return {node: seconds for node, seconds in remaining.items() if seconds}

    def with_excluded(self, nodes: Iterable[str], *, now: float) -> Self:
        """Return the state with these nodes excluded too, starting now."""
        ends = dict.fromkeys(nodes, now + EXCLUDED_SECONDS)
        return replace(self, excluded={**self.excluded, **ends})

    @property
    def stopped_for_others(self) -> bool:
        """Whether kfext last suspended the job for another job, or for the drain of a node."""
        return 0.0 < self.suspended_at <= self.stop.at

    def encode(self, *, job_uid: str) -> str:
        """Return compact JSON of the fields that are not 0 or empty, within LIMIT bytes.

        If the JSON is too long, the least important fields are shortened first.
        """
        excluded = {node: round(until) for node, until in self.excluded.items()}
        longest = _MESSAGE_LIMIT
        observed = {type_: pods.encode() for type_, pods in self.observed.items()}
        scale, move, stop, apart = self.scale, self.move, self.stop, self.apart[-MAX_APART:]
        while True:
            values = {
                "uid": job_uid,
                "strikes": self.strikes,
                "excluded": excluded,
                "suspendedAt": round(self.suspended_at, 3),
                "retryAt": round(self.retry_at, 3),
                "reason": self.reason,
                "message": cut(self.message, most=longest),
                "generation": self.generation,
                "asked": self.requested,
                "admitted": self.assigned,
                "queuedSince": round(self.queued_since, 3),
                "observed": observed,
                "noHostNetwork": cut(self.no_host_network, most=longest),
                "settings": dict(self.settings),
                "busy": dict(self.busy),
                "apart": list(apart),
                "cpu": self.cpu != CpuState() and self.cpu.encode(longest=longest),
                "scale": scale != ScaleState() and scale.encode(longest=longest),
                "move": move != MoveState() and move.encode(),
                "ask": self.ask and self.ask.encode(),
                "stop": stop != StopState() and stop.encode(),
            }
            written = json.dumps(
                {key: value for key, value in values.items() if value}, separators=(",", ":")
            )
            if len(written.encode()) <= LIMIT or longest <= _MIN_TEXT_LIMIT:
                return written
            if excluded:
                # Drop the exclusion that ends first: it would have the shortest effect.
                del excluded[min(excluded, key=lambda node: excluded[node])]
            elif observed or scale.speeds:
                # The next pods will show what admission changes; speeds can be measured again.
                observed.clear()
                scale = replace(scale, speeds={})
            elif move.source:
                # A move that fails then resumes on any nodes with free capacity.
                move = replace(move, source={})
            elif stop.places:
                # A new controller then plans the waiting job again.
                stop = replace(stop, places={})
            elif len(apart) > _MIN_APART:
                apart = apart[len(apart) // 2 :]
            else:
                # The CPU that pods had before kfext's changes is kept: nothing else records it.
                longest = max(longest // 2, _MIN_TEXT_LIMIT)


def state_of(job: TrainingJob) -> JobState:
    """Return the state on a job, or an empty state for an absent, damaged or foreign state."""
    written = job.annotations.get(STATE, "")
    raw = json_object(written) if len(written) <= LIMIT else {}
    return _decode(raw) if job.uid and raw.get("uid") == job.uid else JobState()


def _decode(raw: Mapping[str, Any]) -> JobState:
    return JobState(
        strikes=int(_number(raw.get("strikes"))),
        excluded={node: _number(until) for node, until in mapping(raw.get("excluded")).items()},
        suspended_at=_number(raw.get("suspendedAt")),
        retry_at=_number(raw.get("retryAt")),
        reason=text(raw.get("reason")),
        message=text(raw.get("message")),
        generation=int(_number(raw.get("generation"))),
        requested=int(_number(raw.get("asked"))),
        assigned=int(_number(raw.get("admitted"))),
        queued_since=_number(raw.get("queuedSince")),
        observed={
            type_: _decode_observed(mapping(pods))
            for type_, pods in mapping(raw.get("observed")).items()
        },
        no_host_network=text(raw.get("noHostNetwork")),
        settings=strings(raw.get("settings")),
        busy=_decode_busy(mapping(raw.get("busy"))),
        apart=tuple(filter(None, map(text, sequence(raw.get("apart"))[-MAX_APART:]))),
        cpu=decode_cpu(mapping(raw["cpu"])) if "cpu" in raw else CpuState(),
        scale=decode_scale(mapping(raw["scale"])) if "scale" in raw else ScaleState(),
        move=decode_move(mapping(raw["move"])) if "move" in raw else MoveState(),
        ask=decode_ask(raw["ask"]) if "ask" in raw else None,
        stop=decode_stop(mapping(raw["stop"])) if "stop" in raw else StopState(),
    )


def _decode_observed(raw: Mapping[str, object]) -> ObservedPods:
    requests = {name: int(_number(number)) for name, number in mapping(raw.get("requests")).items()}
    return ObservedPods(
        template=int(_number(raw.get("template"))),
        requests={"pods": 1} | {name: count for name, count in requests.items() if count > 0},
        node_selector=tuple(sorted(strings(raw.get("nodeSelector")).items())),
        host_ports=_decode_host_ports(raw.get("hostPorts")),
        untolerated=raw.get("untolerated") is True,
        tolerations=tuple(
            Toleration(*map(text, sequence(fields)[:4]))
            for fields in sequence(raw.get("tolerations"))[:MAX_TOLERATIONS]
        ),
    )


def _decode_busy(raw: Mapping[str, object]) -> dict[str, int]:
    values = ((type_, raw.get(type_)) for type_ in _TYPES)
    return {type_: n for type_, n in values if type(n) is int and 0 <= n <= _PERMILLE}


def _decode_host_ports(raw: object) -> tuple[tuple[str, int], ...]:
    split = (text(item).partition("/") for item in sequence(raw)[:MAX_PORTS])
    return tuple(
        sorted({(name, int(number)) for name, _, number in split if _PORT.fullmatch(number)})
    )


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if abs(value) <= _MAX_NUMBER and math.isfinite(value) else 0.0
