"""What the runs come to. Changes are against `plain` in the same repeat, in percent."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from e2e.bench.companion.arms import AGAIN, PLAIN
from e2e.bench.companion.tables import beyond, changes, noise, percent
from e2e.bench.report import spread, table
from e2e.bench.stream.story import Outcome, Story

Runs = Mapping[str, Sequence[Outcome]]
"""The outcomes of each arm, by repeat."""
_PUBLISHED = {"CPU used %": "+20 to +30 %", "elapsed s, mean": "-65 %"}
"""What DRAGON's authors report of their own cluster and jobs, against plain Kubernetes."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a run; `compared`: whether its changes mean anything."""

    title: str
    of: Callable[[Outcome], float]
    digits: int = 0
    compared: bool = True


def _mean(of: Callable[[Story, float], float]) -> Callable[[Outcome], float]:
    return lambda outcome: fmean(of(one, outcome.until) for one in outcome.jobs.values())


def _sum(of: Callable[[Story], int]) -> Callable[[Outcome], float]:
    return lambda outcome: sum(of(one) for one in outcome.jobs.values())


FIGURES = (
    Figure("CPU used %", lambda one: 100 * one.used / one.capacity, 1),
    Figure("CPU reserved %", lambda one: 100 * one.reserved / one.capacity, 1),
    Figure("elapsed s, mean", _mean(Story.elapsed)),
    Figure("wait s, mean", _mean(Story.wait), compared=False),
    Figure("run s, mean", _mean(Story.run)),
    Figure("makespan s", lambda one: one.until),
    Figure("changes of size", _sum(lambda one: one.rescales), compared=False),
    Figure("steps done again", _sum(lambda one: one.redone), compared=False),
    Figure("not ended well", _sum(lambda one: not one.succeeded), compared=False),
)


def arms_table(runs: Runs, *, title: str) -> str:
    """Return a row for each figure: its values, and the medians of its changes by pairs."""
    rows = []
    for figure in FIGURES:
        row = [figure.title]
        for name, found in runs.items():
            values = [figure.of(one) for one in found]
            row.append(spread(values, digits=figure.digits))
            if name != PLAIN:
                before = [figure.of(one) for one in runs[PLAIN]]
                row.append(percent(changes(before, values)) if figure.compared else "")
        rows.append([*row, _PUBLISHED.get(figure.title, "")])
    head = [""]
    for name in runs:
        head += [PLAIN] if name == PLAIN else [titled(name), "against plain"]
    repeats = min(len(found) for found in runs.values())
    return table(f"{title}; repeats: {repeats}", [*head, "published"], rows)


def worst_table(runs: Runs) -> str:
    """Return a row for each arm: what it did to the best, the mean and the worst job."""
    most, rows = noise(elapsed(runs, AGAIN)), []
    for name in runs:
        if name != PLAIN:
            jobs = elapsed(runs, name)
            medians = {job: median(found) for job, found in jobs.items()}
            best, worst = (choose(medians, key=medians.__getitem__) for choose in (min, max))
            mean = [fmean(some) for some in zip(*jobs.values(), strict=True)]
            cells = (f"{one}: {percent(jobs[one])}" for one in (best, worst))
            rows.append((titled(name), percent(mean), *cells, *beyond(jobs, most)))
    head = (
        "elapsed against plain", "mean of the jobs", "best job", "worst job",
        f"jobs improved by over {most:.1f} %", "jobs worse by over that",
    )  # fmt: skip
    return table("What each arm does to a job", head, rows)


def elapsed(runs: Runs, arm: str) -> dict[str, list[float]]:
    """Return the change of the time of each job under an arm, by repeat."""

    def seconds(name: str, job: str) -> list[float]:
        return [one.jobs[job].elapsed(one.until) for one in runs[name]]

    return {job: changes(seconds(PLAIN, job), seconds(arm, job)) for job in runs[PLAIN][0].jobs}


def jobs_table(runs: Runs) -> str:
    """Return a row for each job: the median of its wait and its run under each arm, in seconds."""
    head = ["job", "comes at s"]
    for name in runs:
        head += [f"{titled(name)}: wait", "run"]
    rows = []
    for job, first in runs[PLAIN][0].jobs.items():
        row = [job, f"{first.submitted:.0f}"]
        for found in runs.values():
            stories = [(one.jobs[job], one.until) for one in found]
            more = "" if all(story.succeeded for story, _ in stories) else "> "
            row.append(f"{median(story.wait(until) for story, until in stories):.0f}")
            row.append(f"{more}{median(story.run(until) for story, until in stories):.0f}")
        rows.append(row)
    return table("Job by job", head, rows)


def titled(arm: str) -> str:
    """Return how a table names an arm."""
    return f"{arm} (A/A)" if arm == AGAIN else arm
