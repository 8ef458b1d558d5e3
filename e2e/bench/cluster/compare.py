"""The benchmark: one cluster, every arm in turn, and the tables of it."""

from e2e.bench.bed import Bench
from e2e.bench.cluster.arms import ARMS, PLAIN, Arm
from e2e.bench.cluster.figures import arms_table, gains_table, jobs_table
from e2e.bench.cluster.run import run
from e2e.bench.cluster.workload import FEW, JOBS, SEED, Arrival, arrivals
from e2e.testbed import lifecycle
from e2e.testbed.cluster import Testbed
from e2e.testbed.progress import step
from e2e.testbed.realnodes import Node, nodes
from e2e.testbed.realnodes.shaping import shape

NAME = "bench-cluster"
NODES = 4
LINKS = ("1gbit", "200mbit", "none")
NETWORKS = ("pod", "host")
QUICK_MINUTES = 1.0


def measure(*, quick: bool, minutes: float, link: str, network: str) -> str:
    """Run all arms and return the tables; `quick` takes a few short jobs."""
    minutes = QUICK_MINUTES if quick else minutes
    coming = arrivals(FEW if quick else JOBS, seconds=60 * minutes)
    with lifecycle.running(NAME, real_nodes=NODES) as bed:
        # Beside the nodes, like the scheduler and the operator: the nodes are for training alone.
        Bench(bed).install()
        members = nodes(bed)
        with step("warm up: what training reads from disk"):
            _warm_up(bed, members)
        for node in members:
            if link != "none":
                shape(node, link)
        outcomes = []
        for arm in ARMS:
            with step(
                f"{len(coming)} jobs, {arm.title}", expect=f"{1.3 * minutes + 1:.0f} minutes"
            ):
                chosen = network if arm.managed else ""
                outcomes.append(run(bed, arm, coming, members, minutes=minutes, network=chosen))
        title = (
            f"{len(coming)} jobs within {minutes:g} minutes on {NODES} nodes of "
            f"{members[0].millicores}m, links {link}, network {network}, seed {SEED}"
        )
    tables = (arms_table(outcomes, title=title), gains_table(outcomes), jobs_table(outcomes))
    return "\n\n".join(tables)


def _warm_up(bed: Testbed, members: list[Node]) -> None:
    """Train one job of each kind for a moment: the first arm shall not pay for cold files."""
    chosen = [Arrival(0.0, job) for job in FEW[:1] + FEW[2:3]]
    run(bed, Arm("warm", PLAIN.title), chosen, members, minutes=0.01)
