"""What the controller must remember about a job across restarts, stored as JSON on the job.

Like a plan, a state names the uid of its job: a state copied with a manifest is ignored.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Self

from kfext.model.bounds import MOST_PORTS, MOST_TOLERATIONS
from kfext.model.constraints import Toleration
from kfext.model.cpu_state import CpuState, cut, decode_cpu
from kfext.model.job import TrainingJob
from kfext.model.kinds.registered import KINDS
from kfext.model.plan import decode_plan
from kfext.model.quantity import Resources
from kfext.model.scale_state import ScaleState, decode_scale
from kfext.model.timestamps import left
from kfext.model.tolerant import mapping, sequence, strings, text
from kfext.names import PLAN, STATE

LIMIT = 4096
"""The largest size of the annotation, in bytes."""

MOST_APART = 32
"""Jobs that a job is not placed beside again: the last that it had to leave."""
EXCLUDED_SECONDS = 300.0
"""How long a node stays excluded for a job after a pod of the job was not bound there."""

_FEWEST_APART = 4
_MESSAGE_LIMIT = 1024
_LEAST_LIMIT = 48
"""Texts are cut to this many bytes of JSON at last, so that a state always fits."""
_LARGEST = 2.0**63
_PERMILLE = 1000
_TYPES = sorted({type_.lower() for kind in KINDS.values() for type_ in kind.types})
_PORT = re.compile("[1-9][0-9]{0,4}")


@dataclass(frozen=True, slots=True)
class Observed:
    """What admission made of the pods of a replica type.

    `template`: the number of their template (model.replica_group).
    `requests`, `node_selector`: as on the pods.
    `host_ports`: the ports that all pods have beyond the template's and the plan's.
    `untolerated`: whether they lack a toleration for taints named after their extended resources.
    `tolerations`: the tolerations of pools that all pods have beyond the template's.
    """

    template: int
    requests: Resources = field(default_factory=dict)
    node_selector: tuple[tuple[str, str], ...] = ()
    host_ports: tuple[tuple[str, int], ...] = ()
    untolerated: bool = False
    tolerations: tuple[Toleration, ...] = ()

    def encode(self) -> dict[str, object]:
        """Return what is written on the job."""
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
    """What the controller remembers about a job. Times are seconds since the epoch.

    `strikes`: how many placements in a row kube-scheduler or the operator did not carry out.
    `excluded`: until when each excluded node must not be used for this job.
    `suspended_at`: when kfext last suspended the job while it had pods.
    `retry_at`: the end of the back-off; for a job that was not suspended, the earliest time of the
        next strike.
    `reason`, `message`: why the job backs off.
    `generation`: the number of the last plan that was removed from the job.
    `asked`: the workers that the user requested while kfext gave the job another number, else 0.
    `admitted`: the workers that kfext gave such a job, else 0.
    `queued_since`: since when a job that never ran is in the queue, whatever was tried since; 0.0
        if it was not stopped since it ran.
    `observed`: what admission makes of its pods, by replica type in lower case.
    `no_host_network`: why the job must not be tried on the host network again, empty if it may.
    `busy`: the thousandths of the time in which its replicas keep a GPU of their own busy, by type
        in lower case, as last measured. A forged value harms only the job itself.
    `apart`: the uids of the last jobs that it could not share a GPU with.
    `cpu`: what is remembered of resizes.
    `scale`: what is remembered of changes of its size.
    """

    strikes: int = 0
    excluded: Mapping[str, float] = field(default_factory=dict)
    suspended_at: float = 0.0
    retry_at: float = 0.0
    reason: str = ""
    message: str = ""
    generation: int = 0
    asked: int = 0
    admitted: int = 0
    queued_since: float = 0.0
    observed: Mapping[str, Observed] = field(default_factory=dict)
    no_host_network: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    busy: Mapping[str, int] = field(default_factory=dict)
    apart: tuple[str, ...] = ()
    cpu: CpuState = field(default_factory=CpuState)
    scale: ScaleState = field(default_factory=ScaleState)

    def excluded_at(self, now: float) -> tuple[str, ...]:
        """Return the nodes that are excluded now."""
        return tuple(self.exclusions(now))

    def exclusions(self, now: float) -> Mapping[str, float]:
        """Return for how many more seconds each excluded node stays excluded."""
        ends = self.excluded.items()
        found = {node: left(until, now=now, longest=EXCLUDED_SECONDS) for node, until in ends}
        return {node: seconds for node, seconds in found.items() if seconds}

    def excluding(self, nodes: Iterable[str], *, now: float) -> Self:
        """Return the state with more nodes excluded from now on."""
        ends = dict.fromkeys(nodes, now + EXCLUDED_SECONDS)
        return replace(self, excluded={**self.excluded, **ends})

    def encode(self, *, job_uid: str) -> str:
        """Return compact JSON of the fields that are not 0 or empty, within LIMIT bytes."""
        excluded = {node: round(until) for node, until in self.excluded.items()}
        longest = _MESSAGE_LIMIT
        observed = {type_: pods.encode() for type_, pods in self.observed.items()}
        scale, apart = self.scale, self.apart[-MOST_APART:]
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
                "asked": self.asked,
                "admitted": self.admitted,
                "queuedSince": round(self.queued_since, 3),
                "observed": observed,
                "noHostNetwork": cut(self.no_host_network, most=longest),
                "settings": dict(self.settings),
                "busy": dict(self.busy),
                "apart": list(apart),
                "cpu": self.cpu.encode(longest=longest),
                "scale": scale.encode(longest=longest),
            }
            written = json.dumps(
                {key: value for key, value in values.items() if value}, separators=(",", ":")
            )
            if len(written.encode()) <= LIMIT or longest <= _LEAST_LIMIT:
                return written
            if excluded:
                # Drop the exclusion that ends first, which matters for the shortest time.
                del excluded[min(excluded, key=lambda node: excluded[node])]
            elif observed or scale.speeds:
                observed.clear()  # pods show it again, and speeds can be measured again
                scale = replace(scale, speeds={})
            elif len(apart) > _FEWEST_APART:
                apart = apart[len(apart) // 2 :]
            else:
                longest = max(
                    longest // 2, _LEAST_LIMIT
                )  # what a pod had before kfext cannot be seen again


def state_of(job: TrainingJob) -> JobState:
    """Return the state on a job; an empty state if it is absent, damaged or another job's.

    Version 0.1 wrote no uid. Its state is believed if the plan beside it names the job: a uid is
    unknown before the job exists, and later only the controller writes plans. Without a plan, only
    the time of the last suspension is believed: it can only delay this job, and a job that is
    resumed too soon after a suspension fails.
    """
    raw = _read(job.annotations.get(STATE))
    if not (raw and job.uid):
        return JobState()
    if "uid" in raw:
        return _parsed(raw) if raw["uid"] == job.uid else JobState()
    if decode_plan(job.annotations.get(PLAN), job_uid=job.uid) is None:
        return JobState(suspended_at=_number(raw.get("suspendedAt")))
    return _parsed(raw)


def _read(written: str | None) -> Mapping[str, Any]:
    """Return the JSON object in an annotation; empty if it is damaged or too long."""
    if written is None or len(written) > LIMIT:
        return {}
    try:
        return mapping(json.loads(written))
    except (ValueError, RecursionError):
        return {}


def _parsed(raw: Mapping[str, Any]) -> JobState:
    return JobState(
        strikes=int(_number(raw.get("strikes"))),
        excluded={node: _number(until) for node, until in mapping(raw.get("excluded")).items()},
        suspended_at=_number(raw.get("suspendedAt")),
        retry_at=_number(raw.get("retryAt")),
        reason=text(raw.get("reason")),
        message=text(raw.get("message")),
        generation=int(_number(raw.get("generation"))),
        asked=int(_number(raw.get("asked"))),
        admitted=int(_number(raw.get("admitted"))),
        queued_since=_number(raw.get("queuedSince")),
        observed={
            type_: _observed(mapping(shown))
            for type_, shown in mapping(raw.get("observed")).items()
        },
        no_host_network=text(raw.get("noHostNetwork")),
        settings=strings(raw.get("settings")),
        busy=_busy(mapping(raw.get("busy"))),
        apart=tuple(filter(None, map(text, sequence(raw.get("apart"))[-MOST_APART:]))),
        cpu=decode_cpu(mapping(raw.get("cpu"))),
        scale=decode_scale(mapping(raw.get("scale"))),
    )


def _observed(raw: Mapping[str, object]) -> Observed:
    requests = {name: int(_number(number)) for name, number in mapping(raw.get("requests")).items()}
    return Observed(
        template=int(_number(raw.get("template"))),
        requests={"pods": 1} | {name: count for name, count in requests.items() if count > 0},
        node_selector=tuple(sorted(strings(raw.get("nodeSelector")).items())),
        host_ports=_host_ports(raw.get("hostPorts")),
        untolerated=raw.get("untolerated") is True,
        tolerations=tuple(
            Toleration(*map(text, sequence(number)[:4]))
            for number in sequence(raw.get("tolerations"))[:MOST_TOLERATIONS]
        ),
    )


def _busy(raw: Mapping[str, object]) -> dict[str, int]:
    found = ((type_, raw.get(type_)) for type_ in _TYPES)
    return {type_: n for type_, n in found if type(n) is int and 0 <= n <= _PERMILLE}


def _host_ports(raw: object) -> tuple[tuple[str, int], ...]:
    split = (text(item).partition("/") for item in sequence(raw)[:MOST_PORTS])
    return tuple(
        sorted({(name, int(number)) for name, _, number in split if _PORT.fullmatch(number)})
    )


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if abs(value) <= _LARGEST and math.isfinite(value) else 0.0
