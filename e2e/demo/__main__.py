"""Run the demo: `python -m e2e.demo`, or `make demo`.

It exits with 1 if a claim does not hold, and with 2 if the machine cannot run it.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from e2e import demo
from e2e.demo import acts
from e2e.demo.acts import BY_KFEXT, DDP, GANG_PODS, GANG_SECONDS, HOST, KFEXT, PLAIN, PS, TURNS, Way
from e2e.demo.chart import Panel, svg, text
from e2e.demo.claims import (
    Claim,
    Round,
    by_node,
    change,
    half_gangs,
    off_the_link,
    on_one_node,
    one_after_the_other,
    speed,
    times_of,
    together,
)
from e2e.harness.install import INSTALL, create_namespace, install_kfext, kubectl
from e2e.testbed import lifecycle, trainer, training_operator
from e2e.testbed.cluster import NotReadyError, Testbed
from e2e.testbed.preflight import Unavailable
from e2e.testbed.progress import Planned, agenda, say, step
from e2e.testbed.realnodes import nodes
from e2e.testbed.realnodes.node import shape

NAME, LINK = "demo", "1gbit"
_TOGETHER = "Together: two jobs with pods that send to each other, 1 Gbit/s between nodes"
_GANGS = "No half gangs: two jobs at once that each need both nodes"
_MIN_WIDTH = 112
"""The least width of the tables, in characters."""
_CANNOT_RUN = 2
_BUSY_OPERATOR = ("--controller-threads=2", "--kube-api-qps=10", "--kube-api-burst=1")
"""Options that make the operator create the pods of two jobs alternately, as in a busy cluster.

An idle operator mostly creates all pods of a job before the pods of the next job.
"""
_BUSY_START = Planned("the training-operator starts several jobs by turns, 10 requests a second", 5)


@dataclass(frozen=True, slots=True)
class Results:
    """All results of a run of the demo."""

    together: Sequence[Round]
    gangs: dict[str, Round]
    train_job: dict[str, list[str]]

    def rounds(self, *ways: Way) -> list[Round]:
        """Return the rounds with DDP and PS that were placed in these ways."""
        titles = {way.title for way in ways}
        return [result for result in self.together if result.placed_by in titles]

    @property
    def claims(self) -> list[Claim]:
        """The claims of the demo, and whether they hold in this run."""
        plain, kfext = self.rounds(PLAIN), self.rounds(*BY_KFEXT)
        return [
            together(kfext),
            off_the_link(plain=plain, kfext=kfext),
            one_after_the_other(self.gangs[KFEXT.title], pods=GANG_PODS),
            on_one_node(acts.TRAIN_JOB, self.train_job),
        ]

    @property
    def figures(self) -> list[str]:
        """The results that depend on the machine or on chance, and are therefore no claims."""
        return [
            *(
                speed(job, plain=self.rounds(PLAIN), kfext=self.rounds(way))
                for job in (DDP, PS)
                for way in BY_KFEXT
            ),
            half_gangs(self.gangs[PLAIN.title], pods=GANG_PODS, seconds=GANG_SECONDS),
        ]

    @property
    def panels(self) -> list[Panel]:
        """The panels of the chart: the first round of each way, plain Kubernetes first."""
        shown = [self.rounds(way)[0] for way in (PLAIN, *BY_KFEXT)]
        return [Panel(_TOGETHER, shown), Panel(_GANGS, list(self.gangs.values()))]


@click.command(help=demo.__doc__)
@click.option("--keep", is_flag=True, help="Keep the cluster running.")
@click.option(
    "--picture",
    default="kfext-demo.svg",
    show_default=True,
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Where to write the chart.",
)
def main(*, keep: bool, picture: Path) -> None:
    try:
        with lifecycle.terminable():
            results = run(keep=keep)
    except (Unavailable, FileExistsError, NotReadyError) as error:
        say(f"the demo could not be run on this machine: {error}")
        sys.exit(_CANNOT_RUN)
    picture.write_text(svg(results.panels))
    say(f"\nThe chart as a picture: {picture.resolve()}")
    sys.exit(conclude(results.claims, results.figures))


def run(*, keep: bool) -> Results:
    """Start the cluster, train and show the results; delete the cluster unless `keep`."""
    builds = lifecycle.planned(real_nodes=True, programs=trainer.BINARIES)
    starts = (*lifecycle.STARTS, trainer.START, INSTALL, _BUSY_START)
    with agenda([*builds, *starts, *acts.PLANNED]):
        lifecycle.prepare(real_nodes=True, programs=trainer.BINARIES)
        bed = lifecycle.up(NAME, real_nodes=2)
        try:
            results = train(bed)
        except BaseException:
            lifecycle.down(NAME)
            raise
    try:
        show(bed, results)
    finally:
        if not keep:
            with step("clean up"):
                lifecycle.down(NAME)
    if keep:
        say("\nThe cluster keeps running. Look around, then delete it:")
        say(f"  export KUBECONFIG={bed.kubeconfig}")
        say("  kubectl get nodes,pods,trainingplans -A -o wide")
        say(f"  python -m e2e.testbed down --name {NAME}")
    return results


def train(bed: Testbed) -> Results:
    """Train the same jobs in each way in turn, then the gangs and the TrainJob in two ways."""
    trainer.start(bed)
    install_kfext(bed)
    for way in TURNS:
        create_namespace(bed, way.namespace, managed=way.managed)
    for node in nodes(bed):
        shape(node, LINK)
    say(
        "  The two nodes share this machine. Their link is limited to 1 Gbit/s: "
        "without the limit the network would cost nothing."
    )
    with step(_BUSY_START):
        bed.restart_process("training-operator", more=_BUSY_OPERATOR)
        training_operator.wait_ready(bed)
    return Results(
        [acts.together(bed, way) for way in TURNS],
        {way.title: acts.gangs(bed, way) for way in (PLAIN, KFEXT)},
        {way.title: acts.train_job(bed, way) for way in (PLAIN, KFEXT)},
    )


def show(bed: Testbed, results: Results) -> None:
    """Print the nodes and speed of the jobs, what kfext shows about them, and the chart."""
    console = Console(width=max(_MIN_WIDTH, Console().width), highlight=False)
    console.print(_speeds(results))
    console.print(_gangs(results))
    console.print("\n[bold]$ kubectl get trainingplans -A[/bold]")
    console.print(kubectl(bed, "get", "trainingplans", "-A").rstrip(), markup=False)
    console.print(f"\n[bold]What kfext did in namespace {KFEXT.namespace}, and why[/bold]")
    console.print(kubectl(bed, "get", "events", "-n", KFEXT.namespace, *_EVENTS), markup=False)
    console.print(_progress(bed))
    for panel in results.panels:
        console.print()
        console.print(text(panel))


_EVENTS = (
    "-o", "custom-columns=JOB:.involvedObject.name,REASON:.reason,MESSAGE:.message",
    "--field-selector=reportingComponent=kfext-controller",
)  # fmt: skip


def _speeds(results: Results) -> Table:
    """Return a table of the step times of both jobs in each round, and the bytes on the link."""
    columns = ("job", "placed by", "pods by node", "MB, both jobs", "ms a step", "time of a step")
    table = _table(_TOGETHER, *columns)
    for job in (DDP, PS):
        usual = times_of(job, results.rounds(PLAIN))
        for way in (PLAIN, *BY_KFEXT):
            rounds = results.rounds(way)
            times = times_of(job, rounds)
            for turn, result in enumerate(rounds):
                first = turn == 0
                row = (
                    job if first else "",
                    way.title if first else "again",
                    _places(result, job),
                    f"{result.wire / 1e6:.0f}",
                    f"{result.step_ms[job]:.0f}" if job in result.step_ms else "",
                    change(usual, times) if first and way.managed else "",
                )
                table.add_row(*row, end_section=way is HOST and result is rounds[-1])
    return table


def _gangs(results: Results) -> Table:
    """Return a table of the pods of the gangs by node, and the steps of each gang."""
    table = _table(_GANGS, "job", "placed by", "pods by node", "steps")
    for way in (PLAIN, KFEXT):
        result = results.gangs[way.title]
        for job, steps in result.steps.items():
            table.add_row(job, way.title, _places(result, job), str(steps))
    return table


def _progress(bed: Testbed) -> Table:
    """Return a table of the progress that the TrainingPlans show."""
    table = _table(
        "Progress, as read from the logs", "namespace", "job", "step", "metric", "steps/s"
    )
    for plan in bed.api.get("/apis/kfext.dev/v1alpha1/trainingplans")["items"]:
        progress = plan.get("status", {}).get("progress", {})
        metric = f"{progress['metric']} {progress['value']:.4g}" if "value" in progress else ""
        rate = f"{progress['stepsPerSecond']:.1f}" if "stepsPerSecond" in progress else ""
        step = str(progress.get("step", "ended too early"))
        table.add_row(
            plan["metadata"]["namespace"], plan["spec"]["job"]["name"], step, metric, rate
        )
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=column != "pods by node")
    return table


def _places(result: Round, job: str) -> str:
    """Return the pods of a job by node, including pods that have ended."""
    places = by_node(run for run in result.pods if run.job == job)
    return "; ".join(
        f"{node or 'no node'}: {', '.join(run.replica for run in runs)}"
        for node, runs in places.items()
    )


def conclude(claims: Sequence[Claim], figures: Sequence[str]) -> int:
    """Print claims and figures; return the exit code, which is 1 if a claim does not hold."""
    for figure in figures:
        say(f"seen:          {figure}")
    for claim in claims:
        say(f"{'holds:        ' if claim.holds else 'DOES NOT HOLD:'} {claim.text}")
    missed = sum(not claim.holds for claim in claims)
    if missed:
        say(f"{missed} of {len(claims)} claims do not hold in this run; see the figures above.")
    return 1 if missed else 0


if __name__ == "__main__":
    main()
