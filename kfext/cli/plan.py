"""`kubectl kfext plan -f`: would it start now, where, and if not why; nothing is submitted."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import orjson
import yaml

from kfext.cli.cluster import ClusterOptions
from kfext.cli.render import admitted
from kfext.cli.snapshot import read_snapshot
from kfext.core.explain import in_line
from kfext.core.mutate_job import Facts
from kfext.core.outlook import outlook
from kfext.core.steps import Release, Start, Wait
from kfext.errors import UserError
from kfext.model.job import TrainingJob, parse_job
from kfext.model.namespace import Namespace
from kfext.model.snapshot import Snapshot
from kfext.model.tolerant import mapping
from kfext.names import PLAN


@dataclass(frozen=True, slots=True)
class Answer:
    """What would become of one job; `nodes` has the node of each replica, if it would start."""

    job: str
    starts: bool
    reason: str
    message: str
    nodes: dict[str, str]


async def plan_jobs(documents: list[Any], *, cluster: ClusterOptions) -> list[Answer]:
    """Return what would become of the jobs, each as if those before it had been submitted.

    Raises UserError for what is no job or would be refused, ApiError, NoAccess.
    """
    async with cluster.connect() as client:
        snapshot = await read_snapshot(client)
    answers = []
    for number, document in enumerate(documents):
        home = cluster.in_namespace()
        answer, snapshot = answered(snapshot, document, home=home, uid=f"planned-{number}")
        answers.append(answer)
    return answers


def answered(
    snapshot: Snapshot, document: Any, *, home: str, uid: str, now: float | None = None
) -> tuple[Answer, Snapshot]:
    """Return what would become of a job, and the snapshot with the job in it."""
    now = time.time() if now is None else now
    job, raw, said = _admitted(snapshot, document, home=home, uid=uid, now=now)
    title = f"{job.kind.name} {job.namespace}/{job.name}"
    if not job.held:
        return Answer(title, True, *said, nodes={}), snapshot
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
        why = found.step.verdict
        answer = Answer(title, True, why.reason, why.message, nodes)
        return answer, replace(snapshot, jobs=(*others, started))
    assert isinstance(found.step, Wait | Release)
    verdict = found.step.verdict
    assert verdict is not None
    verdict = in_line(verdict, ahead=found.ahead, exact=found.ahead, kept_nodes="", awaited="")
    return Answer(title, False, verdict.reason, verdict.message, {}), snapshot


def _admitted(
    snapshot: Snapshot, document: Any, *, home: str, uid: str, now: float
) -> tuple[TrainingJob, dict[str, Any], tuple[str, str]]:
    """Return a job as admission would store it. Raises UserError if it would be refused."""
    metadata = mapping(mapping(document).get("metadata"))
    namespace = snapshot.namespaces.get(metadata.get("namespace") or home, Namespace(home))
    facts = Facts(
        namespace_labels=namespace.labels,
        namespace_annotations=namespace.annotations,
        policies=snapshot.policies,
        controller_alive=True,
    )
    raw, verdicts = admitted(document, facts)
    created = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    raw["metadata"] = {
        **raw["metadata"],
        "namespace": namespace.name,
        "uid": uid,
        "creationTimestamp": created,
    }
    job = parse_job(raw)
    if job is None:
        raise UserError("only a PyTorchJob or TFJob can be planned")
    return job, raw, (verdicts[0].reason, verdicts[0].message)


def in_words(answers: Sequence[Answer]) -> str:
    """Return the answers for a person."""
    lines = []
    for one in answers:
        starts = "would start now" if one.starts else "would wait"
        lines.append(f"{one.job}: {starts}")
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
            "starts": one.starts,
            "reason": one.reason,
            "message": one.message,
            "nodes": one.nodes,
        }
        for one in answers
    ]
    if output == "json":
        return orjson.dumps(values, option=orjson.OPT_INDENT_2).decode() + "\n"
    return yaml.safe_dump(values, sort_keys=False, width=10_000)
