"""What a TrainingPlan says of a job, as values, and as the API server wants it."""

from dataclasses import dataclass
from typing import Any

import msgspec

from kfext.controller.conditions import Mark, decode_marks
from kfext.core.settings.values import POD
from kfext.model.job import TrainingJob
from kfext.model.tolerant import mapping, sequence, text
from kfext.model.verdict import Verdict
from kfext.names import (
    API_GROUP,
    API_VERSION,
    REASON_HOST_NETWORK,
    REASON_SETTINGS_INVALID,
    TRAINING_GROUP,
    TRAINING_VERSION,
)


@dataclass(frozen=True, slots=True)
class View:
    """What the status of a TrainingPlan says."""

    phase: str = ""
    nodes: tuple[str, ...] = ()
    workers: int = 0
    network: str = ""
    reason: str = ""
    message: str = ""
    invalid: str = ""
    """What of the job's settings an edit spoilt."""
    asked: str = ""
    """Why the host network, which was asked for, is or is not what the pods have."""


@dataclass(frozen=True, slots=True)
class WrittenView:
    """A TrainingPlan as it stands in the cluster."""

    job_uid: str
    view: View
    marks: tuple[Mark, ...] = ()


def decode_view(raw: bytes) -> WrittenView:
    """Return a TrainingPlan from its JSON; raises msgspec.DecodeError."""
    decoded = mapping(msgspec.json.decode(raw))
    status = mapping(decoded.get("status"))
    written = {one.get("type"): one for one in map(mapping, sequence(status.get("conditions")))}
    workers = status.get("workers")
    return WrittenView(
        job_uid=text(mapping(mapping(decoded.get("spec")).get("job")).get("uid")),
        view=View(
            phase=text(status.get("phase")),
            nodes=tuple(text(node) for node in sequence(status.get("nodes"))),
            workers=workers if type(workers) is int else 0,
            network=text(status.get("network")),
            reason=text(status.get("reason")),
            message=text(status.get("message")),
            asked=text(written.get(REASON_HOST_NETWORK, {}).get("message")),
            invalid=text(written.get(REASON_SETTINGS_INVALID, {}).get("message")),
        ),
        marks=decode_marks(status.get("conditions")),
    )


def view_name(job: TrainingJob) -> str:
    """Return the name of a job's TrainingPlan."""
    return f"{job.kind.name.lower()}-{job.name}"


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
            "name": view_name(job),
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {"job": owner},
    }


def view_of(
    job: TrainingJob,
    *,
    phase: str,
    verdict: Verdict | None,
    nodes: tuple[str, ...],
    network: str = POD,
    asked: str = "",
    invalid: str = "",
) -> View:
    """Return the view of a job in a phase."""
    return View(
        phase=phase,
        nodes=nodes,
        workers=job.pods,
        network=network,
        reason=verdict.reason if verdict else "",
        message=verdict.message[:1024] if verdict else "",
        asked=asked[:1024],
        invalid=invalid[:1024],
    )
