"""What the runs of all arms come to, as tables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from e2e.bench.cluster.arms import GREEDILY, KFEXT, PLAIN, Outcome
from e2e.bench.cluster.story import Story
from e2e.bench.report import table

# What the papers say of their own clusters and jobs; sources: the design's table of systems.
_PUBLISHED = {
    ("training s, mean", PLAIN.name): "-42.3 % (CMS-DL)",
    ("training s, mean", GREEDILY.name): "-12.3 % (CMS-DL)",
    ("elapsed s, mean", PLAIN.name): "-65 % (DRAGON)",
    ("CPU utilisation %", PLAIN.name): "+20 to +30 % (DRAGON)",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of an arm, and how it is printed."""

    title: str
    of: Callable[[Outcome], float]
    digits: int = 0

    def show(self, outcome: Outcome) -> str:
        """Return the cell of one arm."""
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
    Figure("s in part, mean", _over_jobs(fmean, Story.held_in_part)),
    Figure("GB on links", lambda outcome: outcome.wire_bytes / 1e9, 1),
    Figure("not finished", lambda outcome: sum(not story.trained for story in outcome.stories)),
)


def arms_table(outcomes: Sequence[Outcome], *, title: str) -> str:
    """Return one row for each figure, one column for each arm."""
    head = ["", *(outcome.arm.title for outcome in outcomes)]
    rows = [[one.title, *(one.show(outcome) for outcome in outcomes)] for one in FIGURES]
    return table(title, head, rows)


def gains_table(outcomes: Sequence[Outcome]) -> str:
    """Return by how much kfext changes each figure, beside what was published."""
    by_arm = {outcome.arm.name: outcome for outcome in outcomes}
    rows = []
    for one in FIGURES[:6]:
        row = [one.title]
        for arm in (PLAIN, GREEDILY):
            row.append(change(one.of(by_arm[arm.name]), one.of(by_arm[KFEXT.name])))
            row.append(_PUBLISHED.get((one.title, arm.name), ""))
        rows.append(row)
    head = ["kfext against", PLAIN.title, "published", GREEDILY.title, "published"]
    return table("What kfext changes", head, rows)


def change(before: float, after: float) -> str:
    """Return how much more or less `after` is, e.g. `-12.3 %`."""
    return f"{100 * (after / before - 1):+.1f} %"


def jobs_table(outcomes: Sequence[Outcome]) -> str:
    """Return a row for each job: seconds, nodes and CPU of a step under each arm."""
    stories = [{story.job.name: story for story in outcome.stories} for outcome in outcomes]
    head = ["job", "pods", "MB a step", "steps"]
    for outcome in outcomes:
        head += [f"{outcome.arm.name}: training s", "elapsed s", "nodes", "CPU ms a step"]
    rows = []
    for name in sorted(stories[0]):
        job = stories[0][name].job
        row = [name, job.size, f"{job.megabytes:g}", _steps(stories[0][name])]
        for outcome, of in zip(outcomes, stories, strict=True):
            row += _cells(of[name], until=outcome.until)
        rows.append(row)
    return table("Job by job", head, rows)


def _cells(story: Story, *, until: float) -> list[str]:
    more = "" if story.trained else "> "
    cpu = story.totals.get("cpu_seconds", 0.0) / story.totals.get("steps", 1)
    return [
        f"{more}{story.training(until):.0f}",
        f"{more}{story.elapsed(until):.0f}",
        str(len(set(story.homes.values()))),
        f"{1000 * cpu:.1f}" if story.totals else "-",
    ]


def _steps(story: Story) -> str:
    return f"{story.totals['steps']:.0f}" if story.totals else "-"
