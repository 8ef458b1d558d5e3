"""The GPU demo: two real jobs on one card, first without a gate between them and then with it.

Run with `make demo-gpu`. It starts a cluster of one real node with two cards that its CPU
simulates, and installs kfext with GPU sharing as an administrator would. A high-priority job
trains alone; then a low-priority job shares its card, first without a gate and then with it.

With `--card cuda` the node has the GPUs of this machine: kubelet, the device plugin, the
reservation, kfext's agent and both jobs run as in production; only NVIDIA's device plugin and
container runtime have stand-ins. Without a network it needs the archive that
`python -m e2e.testbed pack` has written on another machine.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from e2e.harness.gpu import (
    OVERLAY,
    OVERLAY_OF_GPUS,
    counters_of,
    install_sharing,
    offer_gpus,
    shared_gpus,
    sharers_of,
    simulate_cards,
)
from e2e.harness.gpu_jobs import Team, cuda_job, dial_job
from e2e.harness.install import create_namespace
from e2e.testbed import gpus, lifecycle
from e2e.testbed.api import Manifest
from e2e.testbed.preflight import Unavailable
from e2e.testbed.progress import step
from e2e.testbed.realnodes import Node, nodes

NAME, NAMESPACE = "demo-gpu", "team"
Object = dict[str, Any]
_CARDS = 2
_LOAD_MS = 60.0
"""The time in each step in which the high-priority job loads data and its card is idle."""
_TRIALS = {
    "alone": None,
    "beside another, without a gate": True,
    "beside another, with the gate": False,
}
"""Title of a trial -> whether both jobs ignore the hook; None means that there is no other job."""


@dataclass(frozen=True)
class Cards:
    """The cards of a node. `offer` registers them with kubelet; `job` returns a job for a card.

    `used` returns for how many seconds the job `low` has used a card; None means unknown.
    """

    title: str
    overlay: Path
    offer: Callable[[Node], None]
    job: Callable[..., Manifest]
    used: Callable[[Node, str], float | None]


CARDS = {
    "cpu": Cards(
        "a card that the CPU simulates",
        OVERLAY,
        lambda node: simulate_cards(node, _CARDS),
        dial_job,
        lambda node, card: float(counters_of(node, card)["low"]["seconds"]),
    ),
    "cuda": Cards("a GPU", OVERLAY_OF_GPUS, offer_gpus, cuda_job, lambda _node, _card: None),
}


@dataclass(frozen=True)
class Outcome:
    """The result of a trial.

    `step`: the step time of the high-priority job, in seconds. `other`: the fraction of the time in
    which the other job used the card; None means unknown. `slot`: the SharedGPU at the end.
    """

    step: float
    other: float | None
    slot: Object

    @property
    def shown(self) -> str:
        """The sharers of the card, as kfext shows them."""
        return ", ".join(_shown(sharer) for sharer in sharers_of(self.slot))


@click.command(help=__doc__)
@click.option("--card", type=click.Choice(list(CARDS)), default="cpu", show_default=True)
@click.option("--steps", default=200, show_default=True, help="Steps of the high-priority job.")
def main(*, card: str, steps: int) -> None:
    with lifecycle.terminable():
        show(card, run(card, steps=steps))


def run(card: str, *, steps: int) -> dict[str, Outcome]:
    """Start the cluster, run each trial, delete the cluster, and return the outcomes."""
    if card == "cuda":
        os.environ[gpus.VARIABLE] = "1"
    try:
        bed = lifecycle.up(NAME, real_nodes=1)
    except Unavailable as missing:
        sys.exit(f"the demo trains on a real node, which this machine cannot have: {missing}")
    cards = CARDS[card]
    try:
        (node,) = nodes(bed)
        where = cards.overlay.relative_to(Path(__file__).parents[1])
        with step(f"install kfext with GPU sharing: kubectl apply --server-side -k {where}"):
            cards.offer(node)
            install_sharing(bed, node, overlay=cards.overlay)
        create_namespace(bed, NAMESPACE, managed=True)
        team = Team(bed, NAMESPACE)
        return {name: trial(cards, team, node, name, steps=steps) for name in _TRIALS}
    finally:
        with step("clean up"):
            lifecycle.down(NAME)


def trial(cards: Cards, team: Team, node: Node, name: str, *, steps: int) -> Outcome:
    """Train the high-priority job to its end, in some trials beside the other job."""
    unhooked = _TRIALS[name]
    beside = unhooked is not None
    high = {"share": "0.5", "priority": "high"}
    low = {"share": "0.3", "min_share": "0"}
    with step(f"train, {name}", expect="1 minute"):
        team.submit(cards.job("high", high, load_ms=_LOAD_MS, steps=steps, unhooked=bool(unhooked)))
        team.wait_running("high")
        if beside:
            team.submit(cards.job("low", low, steps=100 * steps, unhooked=bool(unhooked)))
            team.wait_running("low")
        (slot,) = (slot for slot in shared_gpus(team.bed, node.name) if slot["status"].get("card"))
        card = slot["status"]["card"]
        team.wait_succeeded("high")
        used_seconds = cards.used(node, card) if beside else 0.0
        (slot,) = (slot for slot in shared_gpus(team.bed, node.name) if slot["status"].get("card"))
    ends = team.step_ends("high")
    # By the second half the hook has chosen its gates, and both jobs train.
    latest = ends[len(ends) // 2 :]
    step_seconds = median(later - earlier for earlier, later in pairwise(latest))
    for job in ("low", "high") if beside else ("high",):
        team.delete(job)
    other = None if used_seconds is None else used_seconds / (ends[-1] - ends[0])
    return Outcome(step_seconds, other, slot)


def show(card: str, outcomes: dict[str, Outcome]) -> None:
    table = Table(title=f"A high-priority job on {CARDS[card].title}")
    for column in ("it trains", "step, ms", "slower by", "time of the other job"):
        table.add_column(column, justify="left" if column == "it trains" else "right")
    alone = outcomes["alone"].step
    for name, outcome in outcomes.items():
        table.add_row(
            name,
            f"{outcome.step * 1000:.0f}",
            f"{outcome.step / alone - 1:.1%}",
            "unknown" if outcome.other is None else f"{outcome.other:.0%}",
        )
    console = Console(width=max(100, Console().width))
    console.print(table)
    for name, outcome in outcomes.items():
        status = outcome.slot["status"]
        console.print(f"{name}: {status['card']}, {status.get('memoryMiB')} MiB: {outcome.shown}")


def _shown(sharer: Object) -> str:
    columns = {"lossPermille": "slower by", "harvestPermille": "works"}
    words = [f"{text} {sharer[name] / 10:g} %" for name, text in columns.items() if name in sharer]
    return " ".join([f"{sharer['priority']} priority", *words])


if __name__ == "__main__":
    main()
