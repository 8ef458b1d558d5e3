"""Run the demo: `python -m e2e.demo`, or `make demo`."""

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from e2e import demo
from e2e.demo.acts import AGAIN, DDP, GANG_SECONDS, HOST, KFEXT, PLAIN, PS, WAYS, Way
from e2e.demo.acts import gangs as train_gangs
from e2e.demo.acts import together as train_together
from e2e.demo.chart import Panel, svg, text
from e2e.demo.claims import Claim, Round, faster, half_gangs, one_after_the_other
from e2e.demo.record import by_node
from e2e.harness.install import create_namespace, install_kfext, kubectl
from e2e.testbed import lifecycle
from e2e.testbed.cluster import Testbed
from e2e.testbed.preflight import Unavailable
from e2e.testbed.progress import say, step
from e2e.testbed.realnodes import nodes
from e2e.testbed.realnodes.shaping import shape

NAME, LINK = "demo", "1gbit"
_TOGETHER = "Together: two jobs whose pods send to each other, 1 Gbit/s between nodes"
_GANGS = "No half gangs: two jobs at once, each of which needs both nodes"
_NARROWEST = 112


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that a run of the demo has seen."""

    together: dict[str, Round]
    gangs: dict[str, Round]

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
    # Like Ctrl-C: it unwinds, so that the cluster is taken down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        bed = lifecycle.up(NAME, real_nodes=2, fast=True)
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
    picture.write_text(svg(seen.panels))
    say(f"\nThe chart as a picture: {picture.resolve()}")
    sys.exit(conclude(seen.claims))


def train(bed: Testbed) -> Seen:
    """Train the same jobs in each way, then the gangs in two."""
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
    return Seen(
        {way.title: train_together(bed, way) for way in WAYS},
        {way.title: train_gangs(bed, way) for way in (PLAIN, KFEXT)},
    )


def show(bed: Testbed, seen: Seen) -> None:
    """Print what went where and how fast, what kfext shows of it, and the chart."""
    console = Console(width=max(_NARROWEST, Console().width), highlight=False)
    table = Table(title=_TOGETHER)
    for column in ("job", "placed by", "pods by node"):
        table.add_column(column, no_wrap=True)
    for column in ("ms a step", "time saved"):
        table.add_column(column, justify="right")
    for job in (DDP, PS):
        for way in (PLAIN, AGAIN, KFEXT, HOST):
            table.add_row(*_row(seen, job, way), end_section=way is HOST)
    console.print(table)
    for title, command in (
        ("What kfext shows of them", ("get", "trainingplans", "-A", "-o", "wide")),
        (
            "Progress, as `kubectl kfext top` has it",
            ("get", "trainingplans", "-A", "-o", _PROGRESS),
        ),
        (
            "What kfext did to the gangs, and why",
            ("get", "events", "-n", KFEXT.namespace, *_EVENTS),
        ),
    ):
        console.print(f"\n[bold]{title}[/bold]")
        console.print(kubectl(bed, *command).rstrip(), markup=False)
    for panel in seen.panels:
        console.print()
        console.print(text(panel))


_PROGRESS = (
    "custom-columns=NAMESPACE:.metadata.namespace,JOB:.spec.job.name,"
    "STEP:.status.progress.step,METRIC:.status.progress.metric,VALUE:.status.progress.value,"
    "STEPS/S:.status.progress.stepsPerSecond"
)
_EVENTS = (
    "-o", "custom-columns=JOB:.involvedObject.name,REASON:.reason,MESSAGE:.message",
    "--field-selector=reportingComponent=kfext-controller",
)  # fmt: skip


def _row(seen: Seen, job: str, way: Way) -> tuple[str, ...]:
    once = seen.together[way.title]
    usual = sum(seen.together[plain.title].step_ms[job] for plain in (PLAIN, AGAIN)) / 2
    places = by_node(run for run in once.pods if run.job == job)
    return (
        job,
        way.title,
        "; ".join(
            f"{node}: {', '.join(run.replica for run in runs)}" for node, runs in places.items()
        ),
        f"{once.step_ms[job]:.0f}",
        f"{once.step_ms[job] / usual - 1:+.0%}" if way.managed else "",
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
