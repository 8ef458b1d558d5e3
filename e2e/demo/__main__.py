"""Run the demo: `python -m e2e.demo`, or `make demo`."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import click
from rich.console import Console
from rich.table import Table

from e2e import demo
from e2e.demo.acts import (
    AGAIN,
    DDP,
    GANG_SECONDS,
    HOST,
    KFEXT,
    PLAIN,
    PS,
    TRAIN_JOB,
    WAYS,
    train_job,
)
from e2e.demo.acts import gangs as train_gangs
from e2e.demo.acts import together as train_together
from e2e.demo.chart import Panel, svg, text
from e2e.demo.claims import (
    Claim,
    Round,
    by_node,
    faster,
    half_gangs,
    on_one_node,
    one_after_the_other,
)
from e2e.harness.install import create_namespace, install_kfext, kubectl
from e2e.testbed import lifecycle, trainer, training_operator
from e2e.testbed.cluster import Testbed
from e2e.testbed.preflight import Unavailable
from e2e.testbed.progress import say, step
from e2e.testbed.realnodes import nodes
from e2e.testbed.realnodes.node import shape

NAME, LINK = "demo", "1gbit"
_TOGETHER = "Together: two jobs with pods that send to each other, 1 Gbit/s between nodes"
_GANGS = "No half gangs: two jobs at once that each need both nodes"
_NARROWEST = 112
_BUSY_OPERATOR = ("--controller-threads=2", "--kube-api-qps=10", "--kube-api-burst=1")
"""As in a cluster where many jobs start: the pods of two jobs that are sent at once come by turns.

With nothing else to do the operator would make all pods of a job within a blink, on most days.
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that a run of the demo has seen."""

    together: dict[str, Round]
    gangs: dict[str, Round]
    train_job: dict[str, list[str]]

    @property
    def claims(self) -> list[Claim]:
        """Return what the demo claims, judged by this run."""
        plain = [self.together[way.title] for way in (PLAIN, AGAIN)]
        return [
            *(
                faster(job, plain=plain, kfext=self.together[way.title])
                for job in (DDP, PS)
                for way in (KFEXT, HOST)
            ),
            half_gangs(self.gangs[PLAIN.title], seconds=GANG_SECONDS),
            one_after_the_other(self.gangs[KFEXT.title]),
            on_one_node(TRAIN_JOB, self.train_job),
        ]

    @property
    def panels(self) -> list[Panel]:
        """Return the chart, plain Kubernetes above kfext."""
        shown = [self.together[way.title] for way in (PLAIN, KFEXT, HOST)]
        return [Panel(_TOGETHER, shown), Panel(_GANGS, list(self.gangs.values()))]


@click.command(help=demo.__doc__)
@click.option("--keep", is_flag=True, help="Leave the cluster up, to look around.")
@click.option(
    "--picture",
    default="kfext-demo.svg",
    show_default=True,
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Where to write the chart.",
)
def main(*, keep: bool, picture: Path) -> None:
    """Run the demo."""
    with lifecycle.terminable():
        seen = run(keep=keep)
    picture.write_text(svg(seen.panels))
    say(f"\nThe chart as a picture: {picture.resolve()}")
    sys.exit(conclude(seen.claims))


def run(*, keep: bool) -> Seen:
    """Bring the cluster up, train and show; take the cluster down unless it is kept."""
    try:
        bed = lifecycle.up(NAME, real_nodes=2)
    except Unavailable as missing:
        sys.exit(f"the demo trains on real nodes, which this machine cannot have: {missing}")
    try:
        seen = train(bed)
        show(bed, seen)
    except BaseException:
        lifecycle.down(NAME)
        raise
    if keep:
        say("\nThe cluster stays up. Look around, then end it:")
        say(f"  export KUBECONFIG={bed.kubeconfig}")
        say("  kubectl get nodes,pods,trainingplans -A -o wide")
        say(f"  python -m e2e.testbed down --name {NAME}")
    else:
        with step("clean up"):
            lifecycle.down(NAME)
    return seen


def train(bed: Testbed) -> Seen:
    """Train the same jobs in each way, then the gangs in two."""
    with step("Kubeflow Trainer, for TrainJobs"):
        trainer.start(bed)
    with step("install kfext: kubectl apply --server-side -k manifests/overlays/testbed"):
        install_kfext(bed)
    for way in WAYS:
        create_namespace(bed, way.namespace, managed=way.managed)
    for node in nodes(bed):
        shape(node, LINK)
    say(
        "  The two nodes share this machine. Their link is limited to 1 Gbit/s: "
        "without a limit there would be no network to save."
    )
    with step("the training-operator starts several jobs by turns, 10 requests a second"):
        bed.restart_process("training-operator", more=_BUSY_OPERATOR)
        training_operator.wait_ready(bed)
    return Seen(
        {way.title: train_together(bed, way) for way in WAYS},
        {way.title: train_gangs(bed, way) for way in (PLAIN, KFEXT)},
        {way.title: train_job(bed, way) for way in (PLAIN, KFEXT)},
    )


def show(bed: Testbed, seen: Seen) -> None:
    """Print what went where and how fast, what kfext shows of it, and the chart."""
    console = Console(width=max(_NARROWEST, Console().width), highlight=False)
    console.print(_speeds(seen))
    console.print(_gangs(seen))
    console.print("\n[bold]$ kubectl get trainingplans -A[/bold]")
    console.print(kubectl(bed, "get", "trainingplans", "-A").rstrip(), markup=False)
    console.print(f"\n[bold]What kfext did in namespace {KFEXT.namespace}, and why[/bold]")
    console.print(kubectl(bed, "get", "events", "-n", KFEXT.namespace, *_EVENTS), markup=False)
    console.print(_progress(bed))
    for panel in seen.panels:
        console.print()
        console.print(text(panel))


_EVENTS = (
    "-o", "custom-columns=JOB:.involvedObject.name,REASON:.reason,MESSAGE:.message",
    "--field-selector=reportingComponent=kfext-controller",
)  # fmt: skip


def _speeds(seen: Seen) -> Table:
    """Return how fast each of the two jobs was in each way."""
    table = _table(_TOGETHER, "job", "placed by", "pods by node", "ms a step", "time saved")
    for job in (DDP, PS):
        usual = mean(seen.together[plain.title].step_ms[job] for plain in (PLAIN, AGAIN))
        for way in (PLAIN, AGAIN, KFEXT, HOST):
            once = seen.together[way.title]
            time = once.step_ms[job]
            saved = f"{time / usual - 1:+.0%}" if way.managed else ""
            row = (job, way.title, _places(once, job), f"{time:.0f}", saved)
            table.add_row(*row, end_section=way is HOST)
    return table


def _gangs(seen: Seen) -> Table:
    """Return where the pods of the gangs were, and how many steps each gang did."""
    table = _table(_GANGS, "job", "placed by", "pods by node", "steps")
    for way in (PLAIN, KFEXT):
        once = seen.gangs[way.title]
        for job, steps in once.steps.items():
            table.add_row(job, way.title, _places(once, job), str(steps))
    return table


def _progress(bed: Testbed) -> Table:
    """Return the progress that kfext read from the logs, as the TrainingPlans have it."""
    table = _table(
        "Progress, as read from the logs", "namespace", "job", "step", "metric", "steps/s"
    )
    for plan in bed.api.get("/apis/kfext.dev/v1alpha1/trainingplans")["items"]:
        found = plan.get("status", {}).get("progress", {})
        metric = f"{found['metric']} {found['value']:.4g}" if "value" in found else ""
        rate = f"{found['stepsPerSecond']:.1f}" if "stepsPerSecond" in found else ""
        step = str(found.get("step", "ended before a look"))
        table.add_row(
            plan["metadata"]["namespace"], plan["spec"]["job"]["name"], step, metric, rate
        )
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=column != "pods by node")
    return table


def _places(once: Round, job: str) -> str:
    """Return the pods of a job by node, with pods that have ended."""
    places = by_node(run for run in once.pods if run.job == job)
    return "; ".join(
        f"{node or 'no node'}: {', '.join(run.replica for run in runs)}"
        for node, runs in places.items()
    )


def conclude(claims: Sequence[Claim]) -> int:
    """Print each claim with its figures; return the exit code, 1 if one does not hold."""
    for claim in claims:
        say(f"{'holds:        ' if claim.holds else 'DOES NOT HOLD:'} {claim.said}")
    missed = sum(not claim.holds for claim in claims)
    if missed:
        say(f"{missed} of {len(claims)} claims do not hold in this run; see the figures above.")
    return 1 if missed else 0


if __name__ == "__main__":
    main()
