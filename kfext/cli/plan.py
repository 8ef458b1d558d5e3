"""`kubectl kfext plan -f`: would it start now, where, and if not why; nothing is submitted."""

from collections.abc import Sequence
from typing import Any

from kfext.cli.cluster import ClusterOptions
from kfext.cli.documents import is_job, title_of
from kfext.cli.forecast import NOT_HELD, STARTS, WAITS, Answer, Forecast
from kfext.cli.output import printed
from kfext.cli.snapshot import read_snapshot
from kfext.errors import UserError
from kfext.kube.snapshot_file import SnapshotFile
from kfext.model.tolerant import mapping

_WORDS = {
    STARTS: "would start now",
    WAITS: "would wait",
    NOT_HELD: "kfext does not decide when it starts",
}


async def plan_jobs(
    documents: list[Any], *, cluster: ClusterOptions, snapshot: SnapshotFile | None = None
) -> tuple[list[Answer], list[str]]:
    """Return what would become of the jobs, each after those before it, and notes for stderr.

    With a snapshot the cluster is not asked, and without documents the answers are those of the
    jobs in its queue. Raises UserError if there is no job, or for one that would be refused,
    ApiError, NoAccess.
    """
    if snapshot is not None:
        forecast = Forecast(snapshot.snapshot, now=snapshot.taken)
        if not documents:
            return forecast.queue(), []
        jobs, notes = _jobs_among(documents)
        home = cluster.namespace or "default"
    else:
        jobs, notes = _jobs_among(documents)
        home = cluster.in_namespace()
        async with cluster.connect() as client:
            forecast = Forecast(await read_snapshot(client))
    answers = []
    for document in jobs:
        _check_namespace(document, cluster.namespace)
        answer = forecast.submit(document, home=home)
        answers.append(answer)
        notes += answer.warnings
    return answers, notes


def _jobs_among(documents: list[Any]) -> tuple[list[Any], list[str]]:
    """Return the jobs among some documents, and notes on the others. Raises UserError if none."""
    jobs, notes = [], []
    for document in documents:
        if is_job(document):
            jobs.append(document)
        else:
            notes.append(f"{title_of(document)}: not a training job, not looked at")
    if not jobs:
        raise UserError("; ".join(notes))
    return jobs, notes


def _check_namespace(document: Any, said: str | None) -> None:
    """Raise UserError if -n and the document disagree, as kubectl does."""
    own = mapping(mapping(document).get("metadata")).get("namespace")
    if said and own and own != said:
        raise UserError(f"{title_of(document)} is in namespace {own!r}, not in {said!r} as -n says")


def in_words(answers: Sequence[Answer]) -> str:
    """Return the answers for a person."""
    if not answers:
        return "no job waits\n"
    lines = []
    for one in answers:
        lines.append(f"{one.job}: {_WORDS[one.outcome]}")
        lines.append(f"  why      {': '.join(filter(None, (one.reason, one.message)))}")
        lines += [f"  pod      {pod} on {node}" for pod, node in one.nodes.items()]
    return "\n".join(lines) + "\n"


def written(answers: Sequence[Answer], *, output: str) -> str:
    """Return the answers as text, json or yaml."""
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
    return printed(values, output=output, words=lambda: in_words(answers))
