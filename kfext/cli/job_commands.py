"""The commands about jobs in a cluster: what became of them, how they go, and what they share."""

import asyncio
import functools
import shutil
import sys
from contextlib import nullcontext, suppress

import click

from kfext.cli.cluster import ClusterOptions, cluster_options
from kfext.cli.explain import explain_job
from kfext.cli.gpus import list_gpus
from kfext.cli.metrics import show_metrics
from kfext.cli.output import fitted
from kfext.cli.queue import list_queue
from kfext.cli.release import release_jobs
from kfext.cli.top import ORDERS, WATCH_SECONDS, show_top

_kind = click.option(
    "--kind",
    type=click.Choice(["PyTorchJob", "TFJob"], case_sensitive=False),
    help="Default: either.",
)
_output = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    show_default=True,
)
_all_namespaces = click.option("-A", "--all-namespaces", is_flag=True, help="In the whole cluster.")


@click.command()
@click.argument("job")
@_kind
@_output
@cluster_options
def explain(*, job: str, kind: str | None, output: str, cluster: ClusterOptions) -> None:
    """Show why JOB waits, where its pods are, and what kfext changed on it."""
    click.echo(asyncio.run(explain_job(job, kind=kind, output=output, cluster=cluster)), nl=False)


@click.command()
@click.argument("job")
@_kind
@click.option("--regex", default="", help="Try this RE2 expression with a group named `value`.")
@_output
@cluster_options
def metrics(
    *, job: str, kind: str | None, regex: str, output: str, cluster: ClusterOptions
) -> None:
    """Show the progress that kfext recognises in the log of JOB.

    Reads the newest lines of rank 0 with your own rights; nothing is stored.
    """
    shown = show_metrics(job, kind=kind, regex=regex, output=output, cluster=cluster)
    click.echo(asyncio.run(shown), nl=False)


@click.command()
@_all_namespaces
@_output
@cluster_options
def queue(*, all_namespaces: bool, output: str, cluster: ClusterOptions) -> None:
    """List the waiting jobs in the order in which kfext considers them."""
    listed, note = asyncio.run(
        list_queue(all_namespaces=all_namespaces, output=output, cluster=cluster)
    )
    if note:
        click.echo(note, err=True)
    click.echo(listed, nl=False)


@click.command()
@_all_namespaces
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
@_output
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


@click.command()
@_output
@cluster_options
def gpus(*, output: str, cluster: ClusterOptions) -> None:
    """List the GPUs that jobs may share, with their sharers and what these lose and get.

    For administrators: it needs permission to list SharedGPUs.
    """
    click.echo(asyncio.run(list_gpus(output=output, cluster=cluster)), nl=False)


@click.command()
@click.argument("job", required=False)
@click.option("--all", "everything", is_flag=True, help="Every job that kfext holds or gates.")
@click.option("-A", "--all-namespaces", is_flag=True, help="With --all: in the whole cluster.")
@_kind
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

    async def show() -> None:
        done = release_jobs(job, kind=kind, all_namespaces=all_namespaces, cluster=cluster)
        async for line in done:
            click.echo(line)

    asyncio.run(show())
