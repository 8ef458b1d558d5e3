"""The commands and their options.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 planned but would wait.
"""

import asyncio
import functools
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import IO

import click

from kfext import __version__, logs
from kfext.cli import plan as planning
from kfext.cli import render as rendering
from kfext.cli.anonymize import anonymized
from kfext.cli.cluster import ClusterOptions, cluster_options
from kfext.cli.explain import explain_job
from kfext.cli.forecast import WAITS
from kfext.cli.metrics import show_metrics
from kfext.cli.output import fitted, plain
from kfext.cli.queue import list_queue
from kfext.cli.release import release_jobs
from kfext.cli.top import ORDERS, WATCH_SECONDS, show_top
from kfext.errors import KfextError
from kfext.kube.snapshot_file import encode_snapshot, read_snapshot_file

_service_options = [
    click.option(
        "--kubeconfig", type=click.Path(path_type=Path), help="Needed only outside a cluster."
    ),
    click.option("--probe-port", default=8080, show_default=True, help="/healthz /readyz /metrics"),
    click.option(
        "--log-level",
        default="info",
        show_default=True,
        type=click.Choice(["debug", "info", "warning", "error"]),
    ),
]


def _service(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_service_options):
        command = option(command)
    return command


@click.group()
@click.version_option(__version__, prog_name="kfext")
def cli() -> None:
    """Place the pods of PyTorchJobs and TFJobs together, and report what was done to them."""


@cli.command()
@_service
@click.option("--context", help="Context of the kubeconfig.")
@click.option("--port", default=9443, show_default=True, help="HTTPS port for admission reviews.")
@click.option("--tls-name", multiple=True, help="Additional DNS name for the certificate.")
@click.option("--tls-ip", multiple=True, help="Additional IP address for the certificate.")
@click.option(
    "--run-dir",
    envvar="KFEXT_RUN_DIR",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="In-memory folder for the serving key; a temporary folder if not given.",
)
@click.option(
    "--drain-seconds", default=5.0, show_default=True, help="Time to keep serving after SIGTERM."
)
def webhook(
    *,
    kubeconfig: Path | None,
    context: str | None,
    probe_port: int,
    log_level: str,
    port: int,
    tls_name: tuple[str, ...],
    tls_ip: tuple[str, ...],
    run_dir: Path | None,
    drain_seconds: float,
) -> None:
    """Serve the admission webhooks."""
    from kfext.webhook.main import Config, run  # noqa: PLC0415 - render needs no server

    logs.configure(log_level)
    config = Config(
        kubeconfig=kubeconfig,
        context=context,
        port=port,
        probe_port=probe_port,
        extra_names=(*tls_name, *tls_ip),
        run_folder=run_dir,
        drain_seconds=drain_seconds,
    )
    asyncio.run(run(config))


@cli.command()
@_service
@click.option(
    "--run-dir",
    envvar="KFEXT_RUN_DIR",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder for the snapshot that SIGUSR1 asks for; without it there is none.",
)
@click.option(
    "--job-metrics/--no-job-metrics",
    default=True,
    show_default=True,
    help="Whether /metrics has the progress of jobs, with their names; of the newest 1,000.",
)
def controller(
    *,
    kubeconfig: Path | None,
    probe_port: int,
    log_level: str,
    run_dir: Path | None,
    job_metrics: bool,
) -> None:
    """Run the placement controller."""
    from kfext.controller.main import run  # noqa: PLC0415 - kopf takes half a second to import

    logs.configure(log_level)
    asyncio.run(
        run(
            kubeconfig=kubeconfig,
            probe_port=probe_port,
            run_folder=run_dir,
            job_metrics=job_metrics,
        )
    )


@cli.command()
@click.option("-f", "--filename", "files", multiple=True, required=True, type=click.File("rb"))
@click.option("--policy", "policies", multiple=True, type=click.File("rb"), help="TrainingPolicy.")
@click.option("--namespace-file", type=click.File("rb"), help="Namespace: labels, annotations.")
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

    Needs no cluster. Without --namespace-file the namespace is managed and has no settings.
    """
    rendered = rendering.render(
        documents=[item for file in files for item in rendering.load(file)],
        policies=[item for file in policies for item in rendering.load(file)],
        namespace=next(iter(rendering.load(namespace_file)), None) if namespace_file else None,
    )
    for line in rendered.notes:
        click.echo(line, err=True)
    if rendered.refused:
        sys.exit(1)
    click.echo(rendering.written(rendered, output=output), nl=False)


@cli.command()
@click.argument("job")
@click.option("--kind", type=click.Choice(["PyTorchJob", "TFJob"], case_sensitive=False))
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text")
@cluster_options
def explain(*, job: str, kind: str | None, output: str, cluster: ClusterOptions) -> None:
    """Show why JOB waits, where its pods are, and what kfext changed on it."""
    click.echo(asyncio.run(explain_job(job, kind=kind, output=output, cluster=cluster)), nl=False)


@cli.command()
@click.argument("job")
@click.option("--kind", type=click.Choice(["PyTorchJob", "TFJob"], case_sensitive=False))
@click.option("--regex", default="", help="Try this RE2 expression with a group named `value`.")
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text")
@cluster_options
def metrics(
    *, job: str, kind: str | None, regex: str, output: str, cluster: ClusterOptions
) -> None:
    """Show the progress that kfext recognises in the log of JOB.

    Reads the newest lines of rank 0 with your own rights; nothing is stored.
    """
    shown = show_metrics(job, kind=kind, regex=regex, output=output, cluster=cluster)
    click.echo(asyncio.run(shown), nl=False)


@cli.command()
@click.option("-A", "--all-namespaces", is_flag=True, help="In the whole cluster.")
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text")
@cluster_options
def queue(*, all_namespaces: bool, output: str, cluster: ClusterOptions) -> None:
    """List the waiting jobs in the order in which kfext considers them."""
    listed, note = asyncio.run(
        list_queue(all_namespaces=all_namespaces, output=output, cluster=cluster)
    )
    if note:
        click.echo(note, err=True)
    click.echo(listed, nl=False)


@cli.command()
@click.option("-A", "--all-namespaces", is_flag=True, help="In the whole cluster.")
@click.option(
    "--sort",
    type=click.Choice(ORDERS),
    default="growth",
    show_default=True,
    help="The largest first; left: the job that ends soonest.",
)
@click.option(
    "--watch", is_flag=True, help=f"Show them anew every {WATCH_SECONDS:.0f} seconds, until Ctrl-C."
)
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text")
@cluster_options
def top(
    *, all_namespaces: bool, sort: str, watch: bool, output: str, cluster: ClusterOptions
) -> None:
    """List the jobs that have not ended, with their progress, growth and use of CPU.

    Jobs whose progress is not known come last. Needs permission to list TrainingPlans.
    """
    if watch and output != "text":
        raise click.UsageError("--watch shows a table; leave out -o")
    show = _show_anew if watch else functools.partial(click.echo, nl=False)
    shown = show_top(
        all_namespaces=all_namespaces,
        sort=sort,
        output=output,
        watch=watch,
        cluster=cluster,
        show=show,
    )
    with suppress(KeyboardInterrupt) if watch else nullcontext():
        asyncio.run(shown)


def _show_anew(table: str) -> None:
    """Show a table in place of the one before; below it, if the output is no terminal."""
    if sys.stdout.isatty():
        click.clear()
        table = fitted(table, shutil.get_terminal_size())
    click.echo(table)


@cli.command()
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
    documents = [item for file in files for item in rendering.load(file)]
    taken = read_snapshot_file(snapshot.read(), name=snapshot.name) if snapshot else None
    answers, notes = asyncio.run(planning.plan_jobs(documents, cluster=cluster, snapshot=taken))
    for note in notes:
        click.echo(note, err=True)
    click.echo(planning.written(answers, output=output), nl=False)
    if any(one.outcome == WAITS for one in answers):
        sys.exit(3)


@cli.command()
@click.argument("snapshot", type=click.File("rb"))
def anonymize(*, snapshot: IO[bytes]) -> None:
    """Print a SNAPSHOT of a controller with numbers in place of names, for a bug report.

    The numbers keep the order of the names, so that it decides as the original does.
    """
    found = read_snapshot_file(snapshot.read(), name=snapshot.name)
    click.echo(encode_snapshot(anonymized(found.snapshot), taken=found.taken))


@cli.command()
@click.argument("job", required=False)
@click.option("--all", "everything", is_flag=True, help="Every job that kfext holds or gates.")
@click.option("-A", "--all-namespaces", is_flag=True, help="With --all: in the whole cluster.")
@click.option("--kind", type=click.Choice(["PyTorchJob", "TFJob"], case_sensitive=False))
@cluster_options
def release(
    *,
    job: str | None,
    everything: bool,
    all_namespaces: bool,
    kind: str | None,
    cluster: ClusterOptions,
) -> None:
    """Give JOB back to plain Kubernetes, for good. Works without the controller."""
    if bool(job) == everything:
        raise click.UsageError("give either the name of a job or --all")
    if all_namespaces and not everything:
        raise click.UsageError("--all-namespaces requires --all")
    lines = asyncio.run(
        release_jobs(job, kind=kind, all_namespaces=all_namespaces, cluster=cluster)
    )
    for line in lines:
        click.echo(line)


def main() -> None:
    """Run the command line; print every expected failure as one line on stderr."""
    called = os.path.basename(sys.argv[0])
    try:
        cli(prog_name="kubectl kfext" if called == "kubectl-kfext" else "kfext")
    except (KfextError, OSError) as error:  # OSError: a port in use, a file that cannot be read
        click.echo(plain(f"error: {error}"), err=True)
        sys.exit(1)
