"""The content of a TrainingPlan, as values and as the API server's JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from kfext.controller.companion_condition import (
    decode_companion,
    encode_companion,
    same_but_words,
)
from kfext.controller.conditions import Conditions, Mark, decode_marks
from kfext.core.companion.policy import Shown
from kfext.core.elastic import training_pods
from kfext.core.progress.reported import Reported, decode_progress, encode_progress
from kfext.core.settings.values import HOST, POD
from kfext.core.words import listed
from kfext.model.job import TrainingJob, planned_uid
from kfext.model.tolerant import mapping, sequence, text
from kfext.model.verdict import Verdict
from kfext.names import (
    API_GROUP,
    API_VERSION,
    CPU_USE_KNOWN,
    KNOWN,
    PLACED,
    PLANNED,
    PROGRESS_KNOWN,
    REASON_HOST_NETWORK,
    REASON_PLANNED,
    REASON_POD_NETWORK,
    REASON_SETTINGS_INVALID,
    REASON_SHARE_EDITED,
    TRAINING_GROUP,
    TRAINING_VERSION,
)

_LONGEST_MESSAGE = 1024
_INT32 = 2**31 - 1
"""The largest number that the field takes; a job may state more pods."""


@dataclass(frozen=True, slots=True)
class TrainingPlanStatus:
    """The status of a TrainingPlan."""

    phase: str = ""
    nodes: tuple[str, ...] = ()
    workers: int = 0
    network: str = ""
    reason: str = ""
    message: str = ""
    planned: str = ""
    """Why the job was placed as it is: on how many nodes, with how many workers."""
    invalid: str = ""
    """The settings of the job that an edit made malformed."""
    edited: str = ""
    """What was edited of the parts of GPUs with which the job runs."""
    network_reason: str = ""
    """Why the pods have, or do not have, the host network that was requested."""
    progress: Reported | None = None
    """What the job last reported about itself, None if nothing is known."""
    companion: Mapping[str, Shown] = field(default_factory=dict)
    """What the companion does to the job, by type of condition; empty if it has not opted in."""


@dataclass(frozen=True, slots=True)
class WrittenTrainingPlan:
    """A TrainingPlan in the cluster."""

    job_uid: str
    status: TrainingPlanStatus
    marks: tuple[Mark, ...] = ()


def decode_training_plan(raw: bytes) -> WrittenTrainingPlan:
    """Return a TrainingPlan from its JSON; raises msgspec.DecodeError."""
    decoded = mapping(msgspec.json.decode(raw))
    raw_status = mapping(decoded.get("status"))
    written = {one.get("type"): one for one in map(mapping, sequence(raw_status.get("conditions")))}
    workers = raw_status.get("workers")
    return WrittenTrainingPlan(
        job_uid=planned_uid(decoded),
        status=TrainingPlanStatus(
            phase=text(raw_status.get("phase")),
            nodes=tuple(text(node) for node in sequence(raw_status.get("nodes"))),
            workers=workers if type(workers) is int else 0,
            network=text(raw_status.get("network")),
            reason=text(raw_status.get("reason")),
            message=text(raw_status.get("message")),
            planned=text(written.get(PLANNED, {}).get("message")),
            network_reason=text(written.get(REASON_HOST_NETWORK, {}).get("message")),
            invalid=text(written.get(REASON_SETTINGS_INVALID, {}).get("message")),
            edited=text(written.get(REASON_SHARE_EDITED, {}).get("message")),
            progress=decode_progress(raw_status.get("progress"), written),
            companion=decode_companion(written),
        ),
        marks=decode_marks(raw_status.get("conditions")),
    )


def body_of(job: TrainingJob) -> dict[str, Any]:
    """Return the TrainingPlan of a job, without its status."""
    owner = {
        "apiVersion": f"{TRAINING_GROUP}/{TRAINING_VERSION}",
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
    network: str = POD,
    network_reason: str = "",
    invalid: str = "",
    edited: str = "",
    planned: str = "",
) -> TrainingPlanStatus:
    """Return the status of a job in a phase."""
    return TrainingPlanStatus(
        phase=phase,
        nodes=nodes,
        workers=min(training_pods(job), _INT32),
        network=network,
        reason=verdict.reason if verdict else "",
        message=verdict.message[:_LONGEST_MESSAGE] if verdict else "",
        network_reason=network_reason[:_LONGEST_MESSAGE],
        invalid=invalid[:_LONGEST_MESSAGE],
        edited=edited[:_LONGEST_MESSAGE],
        planned=planned,
    )


def encode_status(uid: str, status: TrainingPlanStatus, conditions: Conditions) -> dict[str, Any]:
    """Return a status as the API wants it; the conditions remember when each last changed."""
    placed = conditions.state(
        uid,
        "Placed",
        holds=status.phase == PLACED,
        reason=status.reason or status.phase,
        message=status.message,
    )
    invalid, edited = (
        conditions.state(uid, reason, holds=bool(said), reason=reason, message=said)
        for reason, said in (
            (REASON_SETTINGS_INVALID, status.invalid),
            (REASON_SHARE_EDITED, status.edited),
        )
    )
    on_host = status.network == HOST
    network = conditions.state(
        uid,
        REASON_HOST_NETWORK,
        holds=on_host,
        reason=REASON_HOST_NETWORK if on_host else REASON_POD_NETWORK,
        message=status.network_reason,
    )
    planned = conditions.state(
        uid, PLANNED, holds=True, reason=REASON_PLANNED, message=status.planned
    )
    more = [
        *((planned, status.planned), (network, status.network_reason)),
        *((invalid, status.invalid), (edited, status.edited)),
    ]
    progress = status.progress or Reported()
    known = [
        conditions.state(
            uid,
            type_,
            holds=verdict.reason in KNOWN,
            reason=verdict.reason,
            message=verdict.message[:_LONGEST_MESSAGE],
        )
        for type_, verdict in (
            (PROGRESS_KNOWN, progress.known),
            (CPU_USE_KNOWN, progress.unmeasured),
        )
        if verdict is not None
    ]
    known += encode_companion(uid, status.companion, conditions)
    return {
        "phase": status.phase,
        "nodes": list(status.nodes),
        "nodeSummary": listed(status.nodes, of="nodes"),
        "workers": status.workers,
        "network": status.network,
        "reason": status.reason,
        "message": status.message,
        "progress": encode_progress(status.progress),
        "conditions": [placed, *(condition for condition, said in more if said), *known],
    }


def same_but_texts(status: TrainingPlanStatus, written: TrainingPlanStatus | None) -> bool:
    """Return whether only messages and the progress of a status are new."""
    if written is None or not same_but_words(status.companion, written.companion):
        return False
    alike = replace(status, message=written.message, companion=written.companion)
    return replace(alike, progress=written.progress) == written
