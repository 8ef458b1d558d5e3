"""`kubectl kfext top`: how far the jobs are, how they grow, and what they use."""

import asyncio
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Any

import click

from kfext.cli.cluster import (
    ClusterOptions,
    Raw,
    all_namespaces_option,
    all_plans,
    cluster_options,
)
from kfext.cli.output import age, fitted, output_option, printed, short, table
from kfext.cli.status import is_resized, progress_in, steps
from kfext.model.tolerant import mapping, text
from kfext.names import FINISHED

WATCH_SECONDS = 5.0
"""Time between two tables; a job's progress is written every 10 s at most."""
_HEAD = (
    *("JOB", "PHASE", "STEP", "METRIC", "VALUE", "GROWTH", "STATE", "CPU", "WORKERS", "LEFT"),
    "REPORTED",
)
_RESIZED = "*"
"""Marks the use of a job of which kfext changed CPU limits."""
_BY: Mapping[str, Callable[[Mapping[str, Any]], float | None]] = {
    "growth": lambda line: _negative(_of(line, "growth")),
    "cpu": lambda line: _negative(_of(line, "cpuCores")),
    "workers": lambda line: _negative(line["workers"]),
    "left": lambda line: _of(line, "secondsLeft"),
}
ORDERS = tuple(_BY)
"""What jobs can be sorted by: the largest first, but of the times left the shortest."""


@click.command()
@all_namespaces_option
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
@output_option
@cluster_options
def top(
    *, all_namespaces: bool, sort: str, watch: bool, output: str, cluster: ClusterOptions
) -> None:
    """List the jobs that have not ended, with their progress, growth and use of CPU.

    Jobs whose progress is not known come last. Needs permission to list TrainingPlans.
    """
    if watch and output != "text":
        raise click.UsageError("--watch shows a table; leave out -o")
    namespace = "" if all_namespaces else cluster.in_namespace()

    async def show() -> None:
        async with cluster.connect() as client:
            while True:
                # What has ended neither grows nor uses anything.
                plans = await all_plans(
                    client, namespace=namespace, fieldSelector=f"status.phase!={FINISHED}"
                )
                lines = top_of(plans, sort=sort, now=time.time())
                shown = written(lines, output=output, namespace=namespace)
                if not watch:
                    return click.echo(shown, nl=False)
                show_anew(shown)
                await asyncio.sleep(WATCH_SECONDS)

    with suppress(KeyboardInterrupt) if watch else nullcontext():
        asyncio.run(show())


def show_anew(shown: str) -> None:
    """Show a table in place of the one before; below it, if the output is no terminal."""
    if sys.stdout.isatty():
        click.clear()
        shown = fitted(shown, shutil.get_terminal_size())
    click.echo(shown)


def top_of(plans: Iterable[Raw], *, sort: str, now: float) -> list[dict[str, Any]]:
    """Return what is shown of the job of each TrainingPlan; those without progress come last.

    `sort` is one of ORDERS. `now` is in epoch seconds.
    """
    lines = []
    for plan in plans:
        job, status = mapping(mapping(plan.get("spec")).get("job")), mapping(plan.get("status"))
        workers = status.get("workers")
        lines.append(
            {
                "kind": text(job.get("kind")),
                "namespace": text(mapping(plan.get("metadata")).get("namespace")),
                "name": text(job.get("name")),
                "phase": text(status.get("phase")),
                "workers": workers if type(workers) is int else None,
                "resized": is_resized(status),
                "progress": progress_in(status, now=now),
            }
        )
    return sorted(lines, key=lambda line: _turn(line, _BY[sort](line)))


def written(lines: Sequence[dict[str, Any]], *, output: str, namespace: str) -> str:
    """Return the jobs as text, json or yaml; `namespace` is empty for the whole cluster."""
    return printed(lines, output=output, words=lambda: in_words(lines, namespace=namespace))


def in_words(lines: Sequence[Mapping[str, Any]], *, namespace: str) -> str:
    """Return the jobs as a table."""
    if not lines:
        where = f" in namespace {namespace}" if namespace else ""
        return f"kfext handles no job that runs or waits{where}\n"
    return "\n".join(table(_HEAD, map(_row, lines))) + "\n"


def _turn(line: Mapping[str, Any], measure: float | None) -> tuple[Any, ...]:
    """Return the place of a job among the others: whatever is not known comes last."""
    return (
        line["progress"] is None,
        measure is None,
        measure or 0.0,
        (line["namespace"], line["name"], line["kind"]),
    )


def _of(line: Mapping[str, Any], name: str) -> float | None:
    progress = line["progress"]
    return progress[name] if progress is not None else None


def _negative(number: float | None) -> float | None:
    return None if number is None else -number


def _row(line: Mapping[str, Any]) -> tuple[str, ...]:
    job = f"{line['kind']} {line['namespace']}/{line['name']}"
    workers = "" if line["workers"] is None else str(line["workers"])
    progress, resized = line["progress"], _RESIZED if line["resized"] else ""
    if progress is None:
        return (job, line["phase"], *("",) * 5, resized, workers, "", "")
    cores, left, reported = (progress[name] for name in ("cpuCores", "secondsLeft", "ageSeconds"))
    return (
        job,
        line["phase"],
        steps(progress),
        progress["metric"],
        short(progress["value"]),
        short(progress["growth"]),
        progress["state"],
        resized if cores is None else f"{cores:g}{resized}",
        workers,
        "" if left is None else age(left),
        "" if reported is None else age(reported),
    )
