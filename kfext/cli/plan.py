"""`kubectl kfext plan -f`: would it start now, where, and if not why; nothing is submitted."""

import asyncio
import sys
from collections.abc import Sequence
from typing import IO, Any

import click

from kfext.cli.cluster import ClusterOptions, cluster_options
from kfext.cli.documents import is_job, load, title_of
from kfext.cli.forecast import NOT_HELD, STARTS, WAITS, Answer, Forecast
from kfext.cli.output import entry, output_option, plain, printed, table
from kfext.cli.snapshot import read_snapshot
from kfext.errors import UserError
from kfext.kube.snapshot_file import SnapshotFile, read_snapshot_file
from kfext.model.tolerant import mapping

_WORDS = {
    STARTS: "would start now",
    WAITS: "would wait",
    NOT_HELD: "kfext does not decide when it starts",
}


@click.command()
@click.option("-f", "--filename", "files", multiple=True, type=click.File("rb"))
@click.option(
    "--snapshot",
    type=click.File("rb"),
    help="Ask this snapshot of a controller (SIGUSR1) instead of the cluster.",
)
@output_option
@cluster_options
def plan(
    *,
    files: tuple[IO[bytes], ...],
    snapshot: IO[bytes] | None,
    output: str,
    cluster: ClusterOptions,
) -> None:
    """Show whether the jobs in files (- is stdin) would start now, and where or why not.

    Nothing is submitted. Needs permission to list nodes, pods, jobs and everything else that
    placement depends on in the whole cluster; the error names what is missing. With --snapshot it
    needs no cluster, and without files it shows what becomes of the jobs in the queue. Exits with
    code 3 if a job would wait.
    """
    if not (files or snapshot):
        raise click.UsageError("give jobs with -f, or a snapshot with --snapshot")
    documents = [item for file in files for item in load(file)]
    taken = read_snapshot_file(snapshot.read(), name=snapshot.name) if snapshot else None
    answers, notes = asyncio.run(plan_jobs(documents, cluster=cluster, snapshot=taken))
    for note in notes:
        click.echo(plain(note), err=True)
    click.echo(written(answers, output=output), nl=False)
    if any(one.outcome == WAITS for one in answers):
        sys.exit(3)


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
        lines += entry("why", ": ".join(filter(None, (one.reason, one.message))))
        lines += table(("POD", "NODE"), one.nodes.items(), indent=2) if one.nodes else ()
    return "\n".join(lines) + "\n"


def written(answers: Sequence[Answer], *, output: str) -> str:
    """Return the answers as text, json or yaml."""
    fields = ("job", "outcome", "reason", "message", "nodes")
    values = [{field: getattr(answer, field) for field in fields} for answer in answers]
    return printed(values, output=output, words=lambda: in_words(answers))
