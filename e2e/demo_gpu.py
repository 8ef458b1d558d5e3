"""The GPU demo: two real jobs on one card, without a gate between them and with it.

Run with `make demo-gpu`. It brings up a cluster of one real node; its CPU simulates two cards,
and installs kfext with GPU sharing as an administrator would. A job of high priority trains alone;
then one of low priority is put on its card, first without a gate and then with it.
"""

import sys
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import click
from rich.console import Console
from rich.table import Table

from e2e.harness.gpu import counted, install_sharing, play_cards, slots
from e2e.harness.gpu_jobs import Team, dialled
from e2e.harness.install import create_namespace
from e2e.testbed import lifecycle
from e2e.testbed.preflight import Unavailable
from e2e.testbed.progress import step
from e2e.testbed.realnodes import Node, nodes

NAME, NAMESPACE = "demo-gpu", "team"
_CARDS = 2
_LOAD_MS = 60.0
"""For about as long the job of high priority loads data in each step, and leaves the card idle."""
_TRIALS = {
    "alone": None,
    "beside another, without a gate": True,
    "beside another, with the gate": False,
}
"""What is shown -> whether both jobs leave the hook out, None for no other job."""


@dataclass(frozen=True)
class Outcome:
    """The step of the job of high priority in seconds, and the part of the card the other had."""

    step: float
    other: float


@click.command(help=__doc__)
@click.option("--steps", default=200, show_default=True, help="Of the job of high priority.")
def main(*, steps: int) -> None:
    """Run the demo."""
    with lifecycle.terminable():
        run(steps=steps)


def run(*, steps: int) -> None:
    """Bring the cluster up, try each way and show them; take the cluster down."""
    try:
        bed = lifecycle.up(NAME, real_nodes=1)
    except Unavailable as missing:
        sys.exit(f"the demo trains on a real node, which this machine cannot have: {missing}")
    try:
        (node,) = nodes(bed)
        with step("install kfext with GPU sharing: kubectl apply --server-side -k e2e/gpu/overlay"):
            play_cards(node, _CARDS)
            install_sharing(bed, node)
        create_namespace(bed, NAMESPACE, managed=True)
        team = Team(bed, NAMESPACE)
        show({name: trial(team, node, name, steps=steps) for name in _TRIALS})
    finally:
        with step("clean up"):
            lifecycle.down(NAME)


def trial(team: Team, node: Node, name: str, *, steps: int) -> Outcome:
    """Train the job of high priority, and perhaps the other beside it until the first has ended."""
    disables = _TRIALS[name]
    beside = disables is not None
    high = {"share": "0.5", "priority": "high"}
    low = {"share": "0.3", "min_share": "0"}
    with step(f"train, {name}", expect="1 minute"):
        team.submit(dialled("high", high, load_ms=_LOAD_MS, steps=steps, disables=bool(disables)))
        team.running("high")
        if beside:
            team.submit(dialled("low", low, steps=100 * steps, disables=bool(disables)))
            team.running("low")
        (slot,) = (slot for slot in slots(team.bed, node.name) if slot["status"].get("card"))
        team.succeeded("high")
        clients = counted(node, slot["status"]["card"])
    ends = team.step_ends("high")
    # By the second half the gate has found its places, and both jobs train.
    latest = ends[len(ends) // 2 :]
    took = median(later - earlier for earlier, later in pairwise(latest))
    for job in ("low", "high") if beside else ("high",):
        team.delete(job)
    had = float(clients["low"]["seconds"]) if beside else 0.0
    return Outcome(took, had / (ends[-1] - ends[0]))


def show(outcomes: dict[str, Outcome]) -> None:
    """Print what came of it."""
    table = Table(title="A job of high priority on a card that the CPU simulates")
    for column in ("it trains", "step, ms", "slower by", "the other has of the card"):
        table.add_column(column, justify="left" if column == "it trains" else "right")
    alone = outcomes["alone"].step
    for name, outcome in outcomes.items():
        table.add_row(
            name,
            f"{outcome.step * 1000:.0f}",
            f"{outcome.step / alone - 1:.1%}",
            f"{outcome.other:.0%}",
        )
    Console(width=max(100, Console().width)).print(table)


if __name__ == "__main__":
    main()
