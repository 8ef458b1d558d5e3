"""Two jobs on one card of a node: one of high priority that trains for long, and one beside it."""

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

from e2e.harness.gpu import counted, late, slots
from e2e.harness.gpu_jobs import Team, dialled
from e2e.harness.wait import until
from e2e.testbed.realnodes import Node

ENDLESS = 100_000
"""Steps, of which no case sees the end."""
LOAD_MS = 60.0
HIGH = {"share": "0.5", "priority": "high"}
LOW = {"share": "0.3", "min_share": "0"}
STEP_KERNELS = 61
"""Of a job of 20 layers: 20 forward, 40 backward, and one for its optimizer. Each takes 1 ms."""
TRAINING = "dial.py"
"""Is in the command line of each process of a training."""
_NUMBERS = count(1)
"""A card counts by the names of jobs, so no two have the same."""

Object = dict[str, Any]


@dataclass(frozen=True)
class Pair:
    """Such jobs. `card`: its UUID; `high`, `low`: the names of the jobs."""

    team: Team
    node: Node
    card: str
    high: str
    low: str

    def goes_on(self, name: str, *, steps: int = 10) -> None:
        """Return when a job has begun the kernels of so many more steps."""
        wanted = kernels(self.node, self.card, name) + steps * STEP_KERNELS
        until(
            lambda: kernels(self.node, self.card, name) >= wanted,
            what=f"{name} goes on",
            account=self.team.said,
        )

    def pace(self) -> float:
        """Return the kernels that low begins for each one of high, from now on."""
        before = {one: kernels(self.node, self.card, one) for one in (self.low, self.high)}
        self.goes_on(self.high)
        low, high = (kernels(self.node, self.card, one) - n for one, n in before.items())
        return low / high

    def uids(self) -> dict[str, str]:
        """Return the uids of their pods, by job."""
        return {name: self.team.running(name)["metadata"]["uid"] for name in (self.high, self.low)}

    def trains_on(self, *, in_pods: dict[str, str]) -> None:
        """Check that both go on, in these pods and on the same card, and that low gives way."""
        assert card_of(self.team, self.node, self.high, self.low) == self.card
        for name in in_pods:
            self.goes_on(name)
        assert self.uids() == in_pods
        assert late(self.node, self.card, self.low) <= 0.01

    def kill(self, name: str) -> None:
        """Kill the training of a job within a micro-step: it has no time to say anything."""
        uid = self.team.running(name)["metadata"]["uid"]
        pids = self.node.pod_processes(uid, running=TRAINING)
        until(
            lambda: counted(self.node, self.card)[name]["micro_steps"],
            what=f"the card has work of {name}",
            account=self.team.said,
        )
        for pid in pids:
            with suppress(ProcessLookupError):  # a worker goes with the training
                os.kill(pid, signal.SIGKILL)


def named(role: str) -> str:
    """Return a name that no other job has."""
    return f"{role}-{next(_NUMBERS)}"


def beside_high(team: Team, node: Node, *, queue: int = 0, disables: bool = False) -> Pair:
    """Have a job of high priority train, and one of low on its card; see `dialled`.

    Before one without a hook comes, that of high has been timed with the card to itself: later it
    never has that.
    """
    high, low = named("high"), named("low")
    team.submit(dialled(high, HIGH, load_ms=LOAD_MS, steps=ENDLESS))
    team.running(high)
    if disables:
        until(
            lambda: any("lossPermille" in one for one in sharers(team, node)),
            what=f"{high} is timed",
            account=team.said,
        )
    team.submit(dialled(low, LOW, steps=ENDLESS, queue=queue, disables=disables))
    team.running(low)
    pair = Pair(team, node, card_of(team, node, high, low), high, low)
    for name in (high, low):
        pair.goes_on(name)
    return pair


def card_of(team: Team, node: Node, *jobs: str) -> str:
    """Return the card that the pods of these jobs share, and no others, once it is shown."""
    slot = until(
        lambda: slot_of(team, node, *jobs),
        what=f"{', '.join(jobs)} are shown on one card",
        account=team.said,
    )
    return str(slot["status"]["card"])


def slot_of(team: Team, node: Node, *jobs: str) -> Object | None:
    """Return the slot that the pods of these jobs share, None if there is none."""
    pods = {f"{name}-master-0" for name in jobs}
    for slot in slots(team.bed, node.name):
        if {one["pod"] for one in sharers_of(slot)} == pods:
            return slot
    return None


def sharers_of(slot: Object) -> list[Object]:
    """Return the sharers that a SharedGPU shows."""
    return list(slot["status"].get("sharers", []))


def sharers(team: Team, node: Node) -> list[Object]:
    """Return the sharers of all cards of a node."""
    return [one for slot in slots(team.bed, node.name) for one in sharers_of(slot)]


def kernels(node: Node, card: str, name: str) -> int:
    """Return how many kernels a job has begun on a card, 0 before its first."""
    return int(counted(node, card).get(name, {"kernels": 0})["kernels"])
