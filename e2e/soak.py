"""The soak: random submits, deletes, node losses and kills, and then the books must balance.

Run with `make soak` (MINUTES=5 SEED=1). The checks read the API server alone; they share no code
with the controller.
"""

import random
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field

import click

from e2e.harness.jobs import PLURAL, job, workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.space import Space
from e2e.testbed import lifecycle
from e2e.testbed.progress import say

GPUS_PER_NODE = 8
_EACH = {"nvidia.com/gpu": "1", "cpu": "1"}
_PAUSE_SECONDS = 0.5
_QUIET_SECONDS = 180.0


@dataclass
class Soak:
    """One run; `done` counts what happened."""

    space: Space
    dice: random.Random
    jobs: dict[str, str] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def act(self) -> None:
        """Do one random thing."""
        actions = {self.submit: 10, self.delete: 8, self.kill_controller: 1, self.lose_node: 1}
        (action,) = self.dice.choices(list(actions), weights=list(actions.values()))
        action()
        self.done[action.__name__] += 1

    def submit(self) -> None:
        name = f"job-{self.done['submit']}"
        colocation = self.dice.choice(["preferred", "required"])
        annotations = {"kfext.dev/colocation": colocation}
        if self.dice.random() < 0.3:
            replicas = {"PS": 1, "Worker": self.dice.randint(1, 5)}
            made = job(name, replicas, kind="TFJob", each=_EACH, annotations=annotations)
        else:
            made = workers(name, self.dice.randint(1, 12), each=_EACH, annotations=annotations)
        self.space.submit(made)
        self.jobs[name] = made["kind"]

    def delete(self) -> None:
        if self.jobs:
            name = self.dice.choice(sorted(self.jobs))
            self.space.kube.delete(self.space.path(PLURAL[self.jobs.pop(name)], name))

    def kill_controller(self) -> None:
        self.space.kfext.kill_controller()
        self.space.kfext.restart_killed_controller()

    def lose_node(self) -> None:
        self.space.lose_node(self.dice.choice(self.space.standing_nodes))
        self.space.nodes(1, cpu="64", memory="256Gi", gpu=str(GPUS_PER_NODE))

    # --- the books ----------------------------------------------------------------------------

    def overcommitted(self) -> list[str]:
        """Return the nodes whose pods request more GPUs than there are."""
        used: dict[str, int] = defaultdict(int)
        for pod in self.space.pods(ending=True):
            if pod["status"].get("phase") in {"Pending", "Running"}:
                used[pod["spec"].get("nodeName", "")] += 1
        return [node for node, count in used.items() if node and count > GPUS_PER_NODE]

    def unsettled(self) -> list[str]:
        """Return the jobs that are neither wholly bound nor wholly without pods."""
        odd = []
        for name, kind in self.jobs.items():
            specs = self.space.job(name, kind)["spec"]
            replicas = next(value for key, value in specs.items() if key.endswith("ReplicaSpecs"))
            wanted = sum(one["replicas"] for one in replicas.values())
            homes = self.space.homes(name)
            whole = len(homes) == wanted and all(homes.values())
            waits = not homes and self.space.view(name, kind).get("phase") == "Queued"
            if not whole and not waits:
                odd.append(f"{name}: {sum(map(bool, homes.values()))} of {wanted} pods bound")
        return odd


@click.command(help=__doc__)
@click.option("--minutes", default=5.0, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--nodes", default=12, show_default=True, help="Fake nodes of 8 GPUs.")
def main(*, minutes: float, seed: int, nodes: int) -> None:
    """Run the soak; exit 1 with what does not balance."""
    with lifecycle.running("soak", fake_nodes=1, fast=True) as bed:
        kfext = Kfext(bed)
        kfext.install()
        try:
            wrong = _run(Soak(Space(kfext, "soak"), random.Random(seed)), minutes, nodes)
        finally:
            kfext.proxy.stop()
    if wrong:
        sys.exit("the books do not balance:\n" + "\n".join(wrong))
    say("the books balance")


def _run(soak: Soak, minutes: float, nodes: int) -> list[str]:
    """Act at random for some minutes, wait for quiet, and return what is then wrong."""
    space = soak.space
    space.create()
    space.nodes(nodes, cpu="64", memory="256Gi", gpu=str(GPUS_PER_NODE))
    end = time.monotonic() + minutes * 60
    while time.monotonic() < end:
        soak.act()
        if crowded := soak.overcommitted():
            return [f"more pods than GPUs on {crowded}"]
        time.sleep(_PAUSE_SECONDS)
    say(f"  did {dict(soak.done)}; waiting for quiet")
    deadline = time.monotonic() + _QUIET_SECONDS
    while (odd := soak.unsettled()) and time.monotonic() < deadline:
        time.sleep(1)
    wrong = [*odd, *soak.overcommitted()]
    for plural in PLURAL.values():
        space.kube.delete(space.path(plural))
    space.until(lambda: not space.pods(ending=True), "every pod is gone")
    claims = space.kfext.metric("kfext_ledger_claims")
    if claims:
        wrong.append(f"the ledger still has {claims:g} claims without a pod in the cluster")
    if wrong:
        say(space.account())
    return wrong


if __name__ == "__main__":
    main()
