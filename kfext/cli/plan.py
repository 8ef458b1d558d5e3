"""`kubectl kfext plan -f`: would it start now, where, and if not why; nothing is submitted."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import orjson
import yaml

from kfext.cli.cluster import ClusterOptions
from kfext.cli.render import admitted, title_of
from kfext.cli.snapshot import read_snapshot
from kfext.core.admission.facts import Facts
from kfext.core.lifecycle.steps import Release, Start, Wait
from kfext.core.queue.position import in_line
from kfext.errors import UserError
from kfext.model.job import TrainingJob, parse_job
from kfext.model.kinds import KINDS
from kfext.model.namespace import Namespace
from kfext.model.snapshot import Snapshot
from kfext.model.tolerant import mapping, text
from kfext.names import PLAN, REASON_SUSPENDED_BY_USER
from kfext.state.outlook import outlook

STARTS, WAITS, NOT_HELD = "starts", "waits", "not-held"
_WORDS = {
    STARTS: "would start now",
    WAITS: "would wait",
    NOT_HELD: "kfext does not decide when it starts",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What would become of one job; `nodes` has the node of each replica, if it would start.

    `outcome` is `starts`, `waits`, or `not-held` for a job whose start kfext does not decide.
    """

    job: str
    outcome: str
    reason: str
    message: str
    nodes: dict[str, str]
    warnings: Sequence[str] = ()


async def plan_jobs(
    documents: list[Any], *, cluster: ClusterOptions
) -> tuple[list[Answer], list[str]]:
    """Return what would become of the jobs, each after those before it, and notes for stderr.

    Raises UserError if there is no job, or for one that would be refused, ApiError, NoAccess.
    """
    jobs, notes = [], []
    for document in documents:
        if mapping(document).get("kind") in KINDS:
            jobs.append(document)
        else:
            notes.append(f"{title_of(document)}: not a training job, not looked at")
    if not jobs:
        raise UserError("; ".join(notes))
    home = cluster.in_namespace()
    async with cluster.connect() as client:
        snapshot = await read_snapshot(client)
    answers = []
    for number, document in enumerate(jobs):
        _check_namespace(document, cluster.namespace)
        answer, snapshot = answered(snapshot, document, home=home, uid=f"planned-{number}")
        answers.append(answer)
        notes += answer.warnings
    return answers, notes


def answered(
    snapshot: Snapshot, document: Any, *, home: str, uid: str, now: float | None = None
) -> tuple[Answer, Snapshot]:
    """Return what would become of a job, and the snapshot with the job in it.

    Raises UserError for a job that could not be created.
    """
    now = time.time() if now is None else now
    raw = _named(document, snapshot, home=home)
    namespace = snapshot.namespaces[raw["metadata"]["namespace"]]
    rendered = admitted(raw, _facts(snapshot, namespace))
    raw, warnings = rendered.documents[0], tuple(rendered.warnings)
    job = _parsed(raw, uid=uid, now=now)
    title = job.title
    if not job.held:
        said = rendered.verdicts[0]
        outcome = WAITS if said.reason == REASON_SUSPENDED_BY_USER else NOT_HELD
        return Answer(title, outcome, said.reason, said.message, {}, warnings), snapshot
    snapshot = replace(snapshot, jobs=(*snapshot.jobs, job))
    found = outlook(snapshot, uid, now=now)
    if isinstance(found.step, Start):
        raw["metadata"].setdefault("annotations", {})[PLAN] = found.step.plan.encode()
        raw["spec"]["runPolicy"]["suspend"] = False
        started = parse_job(raw) or job
        others = tuple(one for one in snapshot.jobs if one.uid != uid)
        nodes = {
            f"{job.name}-{key.type}-{key.index}": node
            for key, node in found.step.plan.assignment.items()
        }
        why, network = found.step.verdict, found.step.network
        message = f"{why.message}; {network.message}" if network else why.message
        answer = Answer(title, STARTS, why.reason, message, nodes, warnings)
        return answer, replace(snapshot, jobs=(*others, started))
    assert isinstance(found.step, Wait | Release)
    verdict = found.step.verdict
    assert verdict is not None
    verdict = in_line(verdict, ahead=found.ahead, exact=found.ahead, kept_nodes="", awaited="")
    return Answer(title, WAITS, verdict.reason, verdict.message, {}, warnings), snapshot


def _check_namespace(document: Any, said: str | None) -> None:
    """Raise UserError if -n and the document disagree, as kubectl does."""
    own = mapping(mapping(document).get("metadata")).get("namespace")
    if said and own and own != said:
        raise UserError(f"{title_of(document)} is in namespace {own!r}, not in {said!r} as -n says")


def _named(document: Any, snapshot: Snapshot, *, home: str) -> dict[str, Any]:
    """Return the document with a name and a namespace, as the API server would complete it."""
    metadata = mapping(document.get("metadata"))
    name, prefix = text(metadata.get("name")), text(metadata.get("generateName"))
    namespace = text(metadata.get("namespace")) or home
    if not (name or prefix):
        raise UserError(f"{title_of(document)} has no metadata.name, e.g. name: train")
    if namespace not in snapshot.namespaces:
        raise UserError(f"{title_of(document)}: there is no namespace {namespace!r}")
    kind = document["kind"]
    if any((kind, namespace, name) == (j.kind.name, j.namespace, j.name) for j in snapshot.jobs):
        raise UserError(
            f"{kind} {namespace}/{name} exists already: see `kubectl kfext explain -n {namespace} "
            f"{name}`, or give the job another name"
        )
    named = {**metadata, "name": name or f"{prefix}xxxxx", "namespace": namespace}
    return {**document, "metadata": named}


def _facts(snapshot: Snapshot, namespace: Namespace) -> Facts:
    return Facts(
        namespace_labels=namespace.labels,
        namespace_annotations=namespace.annotations,
        policies=snapshot.policies,
        controller_alive=True,
    )


def _parsed(raw: dict[str, Any], *, uid: str, now: float) -> TrainingJob:
    """Return the job as it would be once the API server has stored it."""
    created = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    raw["metadata"] |= {"uid": uid, "creationTimestamp": created}
    job = parse_job(raw)
    assert job is not None, "its kind was looked at before"
    return job


def in_words(answers: Sequence[Answer]) -> str:
    """Return the answers for a person."""
    lines = []
    for one in answers:
        lines.append(f"{one.job}: {_WORDS[one.outcome]}")
        lines.append(f"  why      {': '.join(filter(None, (one.reason, one.message)))}")
        lines += [f"  pod      {pod} on {node}" for pod, node in one.nodes.items()]
    return "\n".join(lines) + "\n"


def written(answers: Sequence[Answer], *, output: str) -> str:
    """Return the answers as text, json or yaml."""
    if output == "text":
        return in_words(answers)
    values = [
        {
            "job": one.job,
            "outcome": one.outcome,
            "reason": one.reason,
            "message": one.message,
            "nodes": one.nodes,
        }
        for one in answers
    ]
    if output == "json":
        return orjson.dumps(values, option=orjson.OPT_INDENT_2).decode() + "\n"
    return yaml.safe_dump(values, sort_keys=False, width=10_000)
