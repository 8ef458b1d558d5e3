"""`kfext simulate`: the durations of jobs under each policy, in a model of a cluster."""

import asyncio
import csv
import io
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import IO

import click

from kfext.cli.cluster import ClusterOptions, all_jobs
from kfext.cli.output import Columns, columns, plain
from kfext.cli.policy_file import read_policies
from kfext.errors import UserError
from kfext.kube import paths
from kfext.model.label_selector import LabelSelector
from kfext.model.node import parse_node
from kfext.sim.arms import ARMS, GANG, Arm, of_policy
from kfext.sim.compare import PARTS, Row, compare, run_of
from kfext.sim.job_table import read_world
from kfext.sim.trace import Trace, trace_of
from kfext.sim.worlds import WORLDS, Draw

_LARGEST_FILE = 16 * 2**20
_MAX_SEEDS = 10_000
_LARGEST_SEED = 10**9
_NODES = "4x4000m"
_DEFAULT_ARMS = ("plain", "gang", "kfext", "kfext-shortest")


def _number(field: str, spec: str) -> Callable[[Row], str]:
    """Return a function that formats a field of a row by a format spec; NaN becomes -."""

    def cell(row: Row) -> str:
        value = getattr(row, field)
        return "-" if math.isnan(value) else format(value, spec)

    return cell


SHOWN: Columns = {
    "ARM": lambda row: row.arm,
    "MEAN s": _number("mean", ".0f"),
    "CHANGE": _number("against", "+.1%"),
    "95 %": lambda row: "-" if math.isnan(row.low) else f"{row.low:+.1%} to {row.high:+.1%}",
    "STRETCH": _number("stretch", ".2f"),
    "P99": _number("stretch_p99", ".1f"),
    "LATER": _number("late", ".1%"),
    "WORST": _number("worst", ".2f"),
    "MAKESPAN s": _number("makespan", ".0f"),
    "USED": _number("utilisation", ".1%"),
    "CHANGES": _number("changes", ".2f"),
    "UNENDED": lambda row: f"{row.unended}/{row.seeds}",
}
"""Head of a column -> its cell in a row."""
START_COLUMNS: Columns = {
    "ERROR": _number("start_error", ".0%"),
    "ERROR P90": _number("start_p90", ".0%"),
    "WITHIN": _number("start_within", ".1%"),
    "WIDTH": _number("start_width", ".2f"),
}
"""Head of a column of --starts -> its cell in a row."""


@click.command()
@click.argument("scenario", required=False)
@click.option(
    "--arms",
    default=",".join(_DEFAULT_ARMS),
    show_default=True,
    help=f"The arms to compare, separated by commas: {', '.join(ARMS)}.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.File("rb"),
    help="Also compare the TrainingPolicies in this file, each as an arm with its name.",
)
@click.option("--against", default=GANG, show_default=True, help="The arm to compare with.")
@click.option(
    "--seeds",
    default=10,
    show_default=True,
    type=click.IntRange(1, _MAX_SEEDS),
    help="Number of seeds, with a run of each arm for each.",
)
@click.option(
    "--first",
    default=0,
    show_default=True,
    type=click.IntRange(0, _LARGEST_SEED),
    help="First seed.",
)
@click.option("--nodes", help=f"The nodes of a CSV, e.g. 2x8000m/64Gi/4xT4.  [default: {_NODES}]")
@click.option(
    "--from-cluster", is_flag=True, help="Instead of SCENARIO: the jobs and nodes of your cluster."
)
@click.option(
    "--save",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="With --from-cluster: write the jobs to this CSV.",
)
@click.option("-n", "--namespace", help="With --from-cluster: only the jobs of this namespace.")
@click.option("--context", help="Default: the kubeconfig's current context.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="As for kubectl.")
@click.option("--starts", is_flag=True, help="Also show the errors of the forecasts of starts.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all results as CSV, times in seconds.")
def simulate(
    *,
    scenario: str | None,
    from_cluster: bool,
    save: Path | None,
    namespace: str | None,
    context: str | None,
    kubeconfig: Path | None,
    arms: str,
    policies: tuple[IO[bytes], ...],
    against: str,
    seeds: int,
    first: int,
    nodes: str | None,
    starts: bool,
    as_csv: bool,
) -> None:
    """Compare policies on a simulated cluster. Only --from-cluster needs a real cluster.

    SCENARIO is a CSV file of jobs, or one of: {worlds}.

    Each seed has different jobs or, with a CSV, different chance events: which pod is bound first,
    which writes are late. A row covers the seeds on which all jobs ended, in its arm and in
    --against. It has the mean elapsed time of a job, its CHANGE and the 95 % interval over the
    seeds; the elapsed time of a job / its duration (STRETCH, and its P99); the fraction of jobs
    LATER by over 10 %, and the WORST ratio; the makespan; the fraction of the CPU that running pods
    used; the changes of size per job; and the number of seeds on which some jobs never ended. The
    row of --against compares it with itself, under different chance events.

    --starts adds columns on forecasts of starts: the ERROR / the wait, as median and P90; the
    fraction that started WITHIN the range; and the WIDTH of the range / the wait.

    The nodes of a CSV are a list of NUMBERxMILLICORESm[/MEMORYGi][/NUMBERxGPUTYPE], such as
    4x16000m,2x64000m/512Gi/8xV100.
    """
    if from_cluster:
        if scenario is not None:
            raise click.UsageError(f"specify SCENARIO {scenario!r} or --from-cluster, not both")
        draw = _draw_live(ClusterOptions(namespace, context, kubeconfig), nodes=nodes, save=save)
    else:
        alone = {"--save": save, "-n": namespace, "--context": context, "--kubeconfig": kubeconfig}
        for option, value in alone.items():
            if value is not None:
                raise click.UsageError(f"{option} requires --from-cluster")
        if scenario is None:
            worlds = ", ".join(WORLDS)
            raise click.UsageError(f"specify a CSV file, one of {worlds}, or --from-cluster")
        draw = _draw(scenario, nodes)
    chosen = _choose_arms(arms, against, policies)
    if starts:
        chosen = {name: _forecasting(arm) for name, arm in chosen.items()}
    seed_range = range(first, first + seeds)
    parts = PARTS * seeds * (1 + len(chosen))
    label = f"simulating {seeds * (1 + len(chosen))} runs"
    with click.progressbar(length=parts, label=label, file=sys.stderr) as bar:
        runs = run_of(chosen, draw, on_parts=bar.update)
        rows = compare(chosen, seed_range, runs, against=against)
    shown = {**SHOWN, **START_COLUMNS} if starts else SHOWN
    click.echo(_csv(rows) if as_csv else "\n".join(columns(shown, rows)) + "\n", nl=False)


simulate.help = (simulate.help or "").format(worlds=", ".join(WORLDS))


def _draw(scenario: str, nodes: str | None) -> Draw:
    """Return what draws a built-in scenario, or reads a file of jobs. Raises UserError."""
    if scenario in WORLDS:
        if nodes is not None:
            raise UserError(f"--nodes {nodes!r} is for a CSV file: {scenario} has its own nodes")
        return WORLDS[scenario]
    path = Path(scenario)
    if not path.is_file():
        raise UserError(f"SCENARIO {scenario!r} is no file, and none of {', '.join(WORLDS)}")
    if os.path.getsize(path) > _LARGEST_FILE:
        raise UserError(f"{scenario} is larger than {_LARGEST_FILE:,} bytes")
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{scenario} is not UTF-8: {error}") from error
    if nodes is None:
        nodes = _NODES
        click.echo(f"nodes: {nodes}, the default of --nodes", err=True)
    world = read_world(text, name=scenario, nodes=nodes)
    return lambda _seed: world


def _draw_live(cluster: ClusterOptions, *, nodes: str | None, save: Path | None) -> Draw:
    """Return the jobs and nodes of a cluster. Raises UserError, ApiError, NoAccess."""
    trace = asyncio.run(_read_trace(cluster))
    click.echo(
        f"jobs: {trace.ended} ended, {trace.likely} more of the same series; {trace.unknown} of "
        f"unknown duration omitted\nhours: {trace.hours:.1f} from the first job to the last\n"
        f"nodes: {trace.nodes}",
        err=True,
    )
    if save is not None:
        try:
            save.write_text(trace.jobs)
        except OSError as error:
            raise UserError(f"--save {str(save)!r}: {error.strerror}, e.g. jobs.csv") from error
        click.echo(f"saved: {save}; simulate it with --nodes {trace.nodes}", err=True)
    world = read_world(trace.jobs, name="the cluster", nodes=nodes or trace.nodes)
    return lambda _seed: world


async def _read_trace(cluster: ClusterOptions) -> Trace:
    async with cluster.connect() as client:
        listed = await all_jobs(client, namespace=cluster.namespace or "", kind=None)
        nodes = map(parse_node, await client.list_all(paths.nodes()))
        return trace_of([job for job, _ in listed], nodes)


def _choose_arms(arms: str, against: str, policies: Sequence[IO[bytes]]) -> dict[str, Arm]:
    """Return the arms by name, with --against first. Raises UserError."""
    known = dict(ARMS)
    named = [name.strip() for name in arms.split(",") if name.strip()]
    for policy in read_policies(policies):
        if not policy.name or policy.name in known:
            why = "is the name of another arm" if policy.name else "is empty"
            raise UserError(f"metadata.name {policy.name!r} of a TrainingPolicy {why}, e.g. mine")
        known[policy.name] = of_policy(replace(policy, selector=LabelSelector()))
        named.append(policy.name)
    names = dict.fromkeys([against, *named])
    for name in names:
        if name not in known:
            raise UserError(f"arm {name!r} is none of {', '.join(known)}")
    return {name: known[name] for name in names}


def _forecasting(arm: Arm) -> Arm:
    """Return an arm with forecasts of starts; an arm that starts no job itself has none."""
    return lambda world, luck: arm(world, luck).forecast()


def _csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in fields(Row))
    writer.writerows(astuple(row) for row in rows)
    return plain(text.getvalue())
