"""The benchmark with real compute: runs every arm in turn on one cluster, and builds the tables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from e2e.bench.bed import Bench
from e2e.bench.cluster.run import Outcome, Story, run
from e2e.bench.cluster.workload import (
    ARMS,
    FEW,
    GREEDILY,
    JOBS,
    KFEXT,
    PLAIN,
    SEED,
    Arm,
    Arrival,
    arrivals,
)
from e2e.bench.report import table
from e2e.testbed import lifecycle
from e2e.testbed.cluster import Testbed
from e2e.testbed.progress import step
from e2e.testbed.realnodes import Node, nodes
from e2e.testbed.realnodes.node import shape

# Gains that the papers report for their own clusters and jobs.
_PUBLISHED = {
    ("training s, mean", PLAIN.name): "-42.3 % (CMS-DL)",
    ("training s, mean", GREEDILY.name): "-12.3 % (CMS-DL)",
    ("elapsed s, mean", PLAIN.name): "-65 % (DRAGON)",
    ("CPU utilisation %", PLAIN.name): "+20 to +30 % (DRAGON)",
}
NAME = "bench-cluster"
NODES = 4
LINKS = ("1gbit", "200mbit", "10gbit", "25gbit", "none")
NETWORKS = ("pod", "host")
QUICK_MINUTES = 1.0


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the tables: a value of each arm's outcome, and its number of decimals."""

    title: str
    of: Callable[[Outcome], float]
    digits: int = 0

    def show(self, outcome: Outcome) -> str:
        return f"{self.of(outcome):.{self.digits}f}"


def _over_jobs(
    choose: Callable[[Sequence[float]], float], of: Callable[[Story, float], float]
) -> Callable[[Outcome], float]:
    return lambda outcome: choose([of(story, outcome.until) for story in outcome.stories])


def _nodes(story: Story, _until: float) -> float:
    return len(set(story.homes.values()))


def _cpu(story: Story, _until: float) -> float:
    return sum(story.cpu_seconds.values())


FIGURES = (
    Figure("training s, mean", _over_jobs(fmean, Story.training)),
    Figure("training s, worst", _over_jobs(max, Story.training)),
    Figure("elapsed s, mean", _over_jobs(fmean, Story.elapsed)),
    Figure("elapsed s, worst", _over_jobs(max, Story.elapsed)),
    Figure("makespan s", lambda outcome: outcome.until),
    Figure("CPU utilisation %", lambda outcome: 100 * outcome.cpu_seconds / outcome.capacity, 1),
    Figure("nodes per job", _over_jobs(fmean, _nodes), 2),
    Figure("CPU s per job", _over_jobs(fmean, _cpu), 1),
    Figure("s in part, mean", _over_jobs(fmean, Story.held_by_partial_gang)),
    Figure("GB on links", lambda outcome: outcome.wire_bytes / 1e9, 1),
    Figure("not finished", lambda outcome: sum(not story.trained for story in outcome.stories)),
)


def arms_table(outcomes: Sequence[Outcome], *, title: str) -> str:
    """Return a table with a row for each figure and a column for each arm."""
    head = ["", *(outcome.arm.title for outcome in outcomes)]
    rows = [[figure.title, *(figure.show(outcome) for outcome in outcomes)] for figure in FIGURES]
    return table(title, head, rows)


def gains_table(outcomes: Sequence[Outcome]) -> str:
    """Return a table of how kfext changes each figure, beside the published changes."""
    by_arm = {outcome.arm.name: outcome for outcome in outcomes}
    rows = []
    for figure in FIGURES[:6]:
        row = [figure.title]
        for arm in (PLAIN, GREEDILY):
            row.append(change(figure.of(by_arm[arm.name]), figure.of(by_arm[KFEXT.name])))
            row.append(_PUBLISHED.get((figure.title, arm.name), ""))
        rows.append(row)
    head = ["kfext against", PLAIN.title, "published", GREEDILY.title, "published"]
    return table("Changes by kfext", head, rows)


def change(before: float, after: float) -> str:
    """Return the relative change, e.g. `-12.3 %`."""
    return f"{100 * (after / before - 1):+.1f} %"


def jobs_table(outcomes: Sequence[Outcome]) -> str:
    """Return a table with a row for each job: seconds, nodes and CPU per step under each arm."""
    stories = [{story.job.name: story for story in outcome.stories} for outcome in outcomes]
    head = ["job", "pods", "MB a step", "steps"]
    for outcome in outcomes:
        head += [f"{outcome.arm.name}: training s", "elapsed s", "nodes", "CPU ms a step"]
    rows = []
    for name in sorted(stories[0]):
        job = stories[0][name].job
        row = [name, job.size, f"{job.megabytes:g}", _steps(stories[0][name])]
        for outcome, by_name in zip(outcomes, stories, strict=True):
            row += _cells(by_name[name], until=outcome.until)
        rows.append(row)
    return table("Job by job", head, rows)


def _cells(story: Story, *, until: float) -> list[str]:
    prefix = "" if story.trained else "> "
    cpu = story.totals.get("cpu_seconds", 0.0) / story.totals.get("steps", 1)
    return [
        f"{prefix}{story.training(until):.0f}",
        f"{prefix}{story.elapsed(until):.0f}",
        str(len(set(story.homes.values()))),
        f"{1000 * cpu:.1f}" if story.totals else "-",
    ]


def _steps(story: Story) -> str:
    return f"{story.totals['steps']:.0f}" if story.totals else "-"


def measure(*, quick: bool, minutes: float, link: str, network: str) -> str:
    """Run all arms and return the tables; `quick` runs a few short jobs."""
    minutes = QUICK_MINUTES if quick else minutes
    job_arrivals = arrivals(FEW if quick else JOBS, seconds=60 * minutes)
    with lifecycle.running(NAME, real_nodes=NODES) as bed:
        # kfext runs outside the nodes, like the scheduler and the operator: nodes only train.
        Bench(bed).install()
        members = nodes(bed)
        with step("warm up the files of the training jobs"):
            _warm_up(bed, members)
        for node in members:
            if link != "none":
                shape(node, link)
        outcomes = []
        for arm in ARMS:
            with step(
                f"{len(job_arrivals)} jobs, {arm.title}", expect=f"{1.3 * minutes + 1:.0f} minutes"
            ):
                chosen = network if arm.managed else ""
                outcomes.append(
                    run(bed, arm, job_arrivals, members, minutes=minutes, network=chosen)
                )
        title = (
            f"{len(job_arrivals)} jobs within {minutes:g} minutes on {NODES} nodes of "
            f"{members[0].millicores}m, links {link}, network {network}, seed {SEED}"
        )
    tables = (arms_table(outcomes, title=title), gains_table(outcomes), jobs_table(outcomes))
    return "\n\n".join(tables)


def _warm_up(bed: Testbed, members: list[Node]) -> None:
    """Train one job of each kind briefly, so that the first arm does not pay for cold files."""
    chosen = [Arrival(0.0, job) for job in FEW[:1] + FEW[2:3]]
    run(bed, Arm("warm", PLAIN.title), chosen, members, minutes=0.01)
