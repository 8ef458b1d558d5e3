"""The commands that take files: what would become of jobs that are not submitted."""

import asyncio
import sys
from typing import IO

import click

from kfext.cli import plan as planning
from kfext.cli import render as rendering
from kfext.cli.anonymize import anonymized
from kfext.cli.cluster import ClusterOptions, cluster_options
from kfext.cli.documents import load
from kfext.cli.forecast import WAITS
from kfext.cli.output import plain
from kfext.kube.snapshot_file import encode_snapshot, read_snapshot_file


@click.command()
@click.option("-f", "--filename", "files", multiple=True, required=True, type=click.File("rb"))
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.File("rb"),
    help="File with a TrainingPolicy, which must select the labels of the namespace.",
)
@click.option(
    "--namespace-file",
    type=click.File("rb"),
    help="File with the Namespace, for its labels and annotations.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json", "patch"]),
    default="yaml",
    show_default=True,
)
def render(
    *,
    files: tuple[IO[bytes], ...],
    policies: tuple[IO[bytes], ...],
    namespace_file: IO[bytes] | None,
    output: str,
) -> None:
    """Print the jobs in files (- is stdin) as admission would change them, and why.

    Needs no cluster, and shows nothing of their pods. Without --namespace-file the namespace is
    managed and has no settings. The exit code is 1 if a job would be refused.
    """
    rendered = rendering.render(
        documents=[item for file in files for item in load(file)],
        policies=[item for file in policies for item in load(file)],
        namespace=next(iter(load(namespace_file)), None) if namespace_file else None,
    )
    for line in rendered.notes:
        click.echo(plain(line), err=True)
    if rendered.refused:
        sys.exit(1)
    click.echo(rendering.written(rendered, output=output), nl=False)


@click.command()
@click.option("-f", "--filename", "files", multiple=True, type=click.File("rb"))
@click.option(
    "--snapshot",
    type=click.File("rb"),
    help="Ask this snapshot of a controller (SIGUSR1) instead of the cluster.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text")
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
    answers, notes = asyncio.run(planning.plan_jobs(documents, cluster=cluster, snapshot=taken))
    for note in notes:
        click.echo(plain(note), err=True)
    click.echo(planning.written(answers, output=output), nl=False)
    if any(one.outcome == WAITS for one in answers):
        sys.exit(3)


@click.command()
@click.argument("snapshot", type=click.File("rb"))
def anonymize(*, snapshot: IO[bytes]) -> None:
    """Print a SNAPSHOT of a controller with numbers in place of names, for a bug report.

    The numbers keep the order of the names, so that it decides as the original does.
    """
    found = read_snapshot_file(snapshot.read(), name=snapshot.name)
    click.echo(encode_snapshot(anonymized(found.snapshot), taken=found.taken))
