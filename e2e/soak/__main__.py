"""Run a soak: `make soak` (MINUTES=30 NODES=200 SEED=1 AUTOSCALER=1)."""

import os
import sys

import click

from e2e.harness.kfext_process import Kfext
from e2e.soak.run import Soak, add_autoscaler, fake_programs
from e2e.testbed import lifecycle
from e2e.testbed.progress import say


@click.command(
    help="Random submits, deletions, node failures and kills; then everything must add up."
)
@click.option("--minutes", default=30.0, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--nodes", default=200, show_default=True, help="Fake nodes of 8 GPUs.")
@click.option("--autoscaler", is_flag=True, help="Run Karpenter, which adds a few nodes.")
def main(*, minutes: float, seed: int, nodes: int, autoscaler: bool) -> None:
    """Run the soak; exit with 1 and a list of the broken rules, if any."""
    name = f"soak-{os.getpid()}"
    with lifecycle.running(name, fast=True) as bed, fake_programs(bed) as programs:
        if autoscaler:
            add_autoscaler(bed, nodes=nodes)
        with Kfext.installed(bed) as kfext:
            soak = Soak(kfext, programs, seed=seed, nodes=nodes, autoscaler=autoscaler)
            broken_rules = soak.run(minutes * 60)
    if broken_rules:
        sys.exit(f"seed {seed}: broken rules:\n" + "\n".join(broken_rules))
    say("no rule was broken")


if __name__ == "__main__":
    main()
