"""The content of a TrainingPlan, as values and as the API server's JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import msgspec

from kfext.core.job_history import JobHistory, decode_history
from kfext.core.progress.posted import Posted, decode_posted
from kfext.core.progress.reported import Reported, decode_progress, encode_progress
from kfext.core.progress.stall import stalled
from kfext.core.queue.expected import ExpectedStart, decode_expected, encode_expected
from kfext.core.settings.values import HOST, POD
from kfext.core.words import listed
from kfext.model.job import TrainingJob, planned_uid
from kfext.model.quantity import CPU, MEMORY, ON_EVERY_NODE, PODS, Resources, written_amount
from kfext.model.timestamps import written_time
from kfext.model.tolerant import mapping, sequence, strings, text
from kfext.model.verdict import Verdict
from kfext.names import (
    API_GROUP,
    API_VERSION,
    CPU_USE_KNOWN,
    KNOWN,
    PLACED,
    PLANNED,
    PROGRESS_KNOWN,
    PROGRESSING,
    REASON_HOST_NETWORK,
    REASON_PLANNED,
    REASON_POD_NETWORK,
    REASON_SETTINGS_INVALID,
    REASON_SHARE_EDITED,
)
from kfext.state.running.policy import ConditionStatus
from kfext.state.running.registry import CONDITIONS

_TYPES = (
    *(PLANNED, REASON_HOST_NETWORK, REASON_SETTINGS_INVALID, REASON_SHARE_EDITED),
    *CONDITIONS,
)
_STATUS: Mapping[bool | None, str] = {True: "True", False: "False", None: "Unknown"}
_HOLDS = {status: holds for holds, status in _STATUS.items()}
_LONGEST_MESSAGE = 1024
_MAX_RESOURCES, _LONGEST_RESOURCE = 16, 316
"""A template may name more and longer resources than any node has."""
_INT32 = 2**31 - 1
"""The largest number of workers that the field can have; a job may state more pods."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Values of a job that are written only to be displayed, such as in the columns of kubectl.

    `places`: the number of its pods on each node, present or planned.
    `requests`: the requests of its largest pod, as quantities.
    `minimum`: the least number of training pods to start with; None means that it does not wait, or
        needs all of them.
    `requested`: the number of training pods at its requested size; None means the present number.
    """

    places: Mapping[str, int] = field(default_factory=dict)
    requests: Mapping[str, str] = field(default_factory=dict)
    minimum: int | None = None
    requested: int | None = None


@dataclass(frozen=True, slots=True)
class TrainingPlanStatus:
    """The status of a TrainingPlan.

    `ahead`: the number of jobs ahead of it in the queue; None for a job that is not queued.
    `expected`: when a queued job should start, or None without a forecast.
    `progress`: the last report of the job, or None.
    `conditions`: the conditions by type, except Placed, which follows from the phase, and the
        conditions about the progress, which `progress` has.
    `facts`: further values; a change of these alone is not written.
    """

    phase: str = ""
    nodes: tuple[str, ...] = ()
    workers: int = 0
    network: str = ""
    reason: str = ""
    message: str = ""
    ahead: int | None = None
    expected: ExpectedStart | None = None
    progress: Reported | None = None
    conditions: Mapping[str, ConditionStatus] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts, compare=False)


@dataclass(frozen=True, slots=True)
class Transition:
    """The status of a condition, and when it last changed, in the API server's time format."""

    holds: bool | None
    since: str


@dataclass(frozen=True, slots=True)
class WrittenTrainingPlan:
    """A TrainingPlan in the cluster.

    `transitions`: the times of its conditions, by type.
    `posted`: the posts of the job's program, which the webhook writes, or None.
    `history`: the history of the job, which no other object shows.
    """

    job_uid: str
    status: TrainingPlanStatus
    transitions: Mapping[str, Transition] = field(default_factory=dict)
    posted: Posted | None = None
    history: JobHistory = field(default_factory=JobHistory)


def decode_training_plan(raw: bytes) -> WrittenTrainingPlan:
    """Return a TrainingPlan from its JSON; raises msgspec.DecodeError."""
    decoded = mapping(msgspec.json.decode(raw))
    raw_status = mapping(decoded.get("status"))
    written = {
        text(condition.get("type")): condition
        for condition in map(mapping, sequence(raw_status.get("conditions")))
    }
    workers, ahead = raw_status.get("workers"), raw_status.get("ahead")
    return WrittenTrainingPlan(
        job_uid=planned_uid(decoded),
        status=TrainingPlanStatus(
            phase=text(raw_status.get("phase")),
            nodes=tuple(text(node) for node in sequence(raw_status.get("nodes"))),
            workers=workers if type(workers) is int else 0,
            network=text(raw_status.get("network")),
            reason=text(raw_status.get("reason")),
            message=text(raw_status.get("message")),
            ahead=ahead if type(ahead) is int else None,
            expected=decode_expected(raw_status.get("expectedStart")),
            progress=decode_progress(raw_status.get("progress"), written),
            conditions={type_: _decoded(written[type_]) for type_ in _TYPES if type_ in written},
            facts=Facts(requests=strings(raw_status.get("requests"))),
        ),
        transitions={
            type_: Transition(_decoded(condition).holds, since)
            for type_, condition in written.items()
            if (since := text(condition.get("lastTransitionTime")))
        },
        posted=decode_posted(raw_status.get("posted")),
        history=decode_history(raw_status.get("history"), raw_status.get("curve")),
    )


def body_of(job: TrainingJob) -> dict[str, Any]:
    """Return the JSON of the TrainingPlan of a job, without its status."""
    owner = {
        "apiVersion": job.kind.api_version,
        "kind": job.kind.name,
        "name": job.name,
        "uid": job.uid,
    }
    return {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": "TrainingPlan",
        "metadata": {
            "namespace": job.namespace,
            "name": job.training_plan,
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {"job": owner},
    }


def status_of(
    job: TrainingJob,
    *,
    phase: str,
    verdict: Verdict | None,
    nodes: tuple[str, ...],
    facts: Facts | None = None,
    ahead: int | None = None,
    network: str = POD,
    network_reason: str = "",
    invalid: str = "",
    edited: str = "",
    planned: str = "",
) -> TrainingPlanStatus:
    """Return the status of a job in a phase; each text below becomes a condition if not empty.

    `network_reason`: why the pods have, or do not have, the requested host network.
    `invalid`: the settings that an edit of the job made malformed.
    `edited`: the edits of the job's GPU shares since its start.
    `planned`: why the job was placed on this number of nodes with this number of workers.
    """
    on_host = network == HOST
    reason = REASON_HOST_NETWORK if on_host else REASON_POD_NETWORK
    texts = {
        PLANNED: (True, REASON_PLANNED, planned),
        REASON_HOST_NETWORK: (on_host, reason, network_reason),
        REASON_SETTINGS_INVALID: (True, REASON_SETTINGS_INVALID, invalid),
        REASON_SHARE_EDITED: (True, REASON_SHARE_EDITED, edited),
    }
    return TrainingPlanStatus(
        phase=phase,
        nodes=nodes,
        workers=min(job.training_pods, _INT32),
        network=network,
        reason=verdict.reason if verdict else "",
        message=verdict.message[:_LONGEST_MESSAGE] if verdict else "",
        ahead=ahead,
        conditions={
            type_: as_written(ConditionStatus(holds, Verdict(reason, message)))
            for type_, (holds, reason, message) in texts.items()
            if message
        },
        facts=facts or Facts(),
    )


def largest_requests(job: TrainingJob) -> Mapping[str, str]:
    """Return the requests of the largest pod of a job, as quantities; devices count first."""

    def size(requests: Resources) -> tuple[int, ...]:
        devices = sum(number for name, number in requests.items() if name not in ON_EVERY_NODE)
        return devices, requests.get(CPU, 0), requests.get(MEMORY, 0)

    requests = max((group.requests for group in job.groups if group.replicas), key=size, default={})
    named = ((name, number) for name, number in requests.items() if len(name) <= _LONGEST_RESOURCE)
    first = islice(named, _MAX_RESOURCES)
    return {name: written_amount(name, number) for name, number in first if name != PODS}


def as_written(shown: ConditionStatus) -> ConditionStatus:
    """Return a condition as it is written, so that it equals the condition that is read back."""
    verdict = shown.verdict
    return replace(shown, verdict=Verdict(verdict.reason, verdict.message[:_LONGEST_MESSAGE]))


def encode_status(
    status: TrainingPlanStatus, transitions: dict[str, Transition], *, now: float
) -> dict[str, Any]:
    """Return the JSON of a status.

    `transitions`: the last change of each condition, which this updates: the time of a condition
    changes only with its status. `now`: in epoch seconds.
    """
    progress = status.progress or Reported()
    progress_verdicts = {PROGRESS_KNOWN: progress.known, CPU_USE_KNOWN: progress.unmeasured}
    placed = Verdict(status.reason or status.phase, status.message)
    conditions = {
        PLACED: ConditionStatus(status.phase == PLACED, placed),
        **{type_: status.conditions[type_] for type_ in _TYPES if type_ in status.conditions},
        **{
            type_: as_written(ConditionStatus(verdict.reason in KNOWN, verdict))
            for type_, verdict in progress_verdicts.items()
            if verdict is not None
        },
    }
    if progress.moves is not None:
        holds = False if stalled(progress.moves) else None
        conditions[PROGRESSING] = as_written(ConditionStatus(holds, progress.moves))
    for gone in transitions.keys() - conditions.keys():
        del transitions[gone]
    return {
        "phase": status.phase,
        "nodes": list(status.nodes),
        "nodeSummary": listed(status.nodes, noun="nodes"),
        "places": [{"node": node, "pods": pods} for node, pods in status.facts.places.items()],
        "requests": dict(status.facts.requests),
        "workers": status.workers,
        "minimumWorkers": status.facts.minimum,
        "requestedWorkers": status.facts.requested,
        "network": status.network,
        "reason": status.reason,
        "message": status.message,
        "ahead": status.ahead,
        "expectedStart": encode_expected(status.expected, now=now),
        "progress": encode_progress(status.progress),
        "conditions": [
            encode_condition(type_, shown, transitions, now=now)
            for type_, shown in conditions.items()
        ],
    }


def encode_condition(
    type_: str, shown: ConditionStatus, transitions: dict[str, Transition], *, now: float
) -> dict[str, str]:
    """Return the JSON of a condition; a change of its status is added to `transitions`."""
    transition = transitions.get(type_)
    if transition is None or transition.holds is not shown.holds:
        transition = transitions[type_] = Transition(shown.holds, written_time(now))
    return {
        "type": type_,
        "status": _STATUS[shown.holds],
        "reason": shown.verdict.reason,
        "message": shown.verdict.message,
        "lastTransitionTime": transition.since,
    }


def same_but_details(status: TrainingPlanStatus, written: TrainingPlanStatus | None) -> bool:
    """Return whether at most messages, place in the queue, progress and expected start are new."""
    if written is None or _without_messages(status) != _without_messages(written):
        return False
    alike = replace(status, message=written.message, conditions=written.conditions)
    alike = replace(alike, ahead=written.ahead, progress=written.progress)
    return replace(alike, expected=written.expected) == written


def _without_messages(status: TrainingPlanStatus) -> dict[str, tuple[bool | None, str]]:
    conditions = status.conditions.items()
    return {type_: (shown.holds, shown.verdict.reason) for type_, shown in conditions}


def _decoded(condition: Mapping[str, Any]) -> ConditionStatus:
    """Return a condition from its JSON. Never raises."""
    verdict = Verdict(text(condition.get("reason")), text(condition.get("message")))
    return ConditionStatus(_HOLDS.get(text(condition.get("status")), False), verdict)
