"""The benchmark: a stream under every arm in turn; stored runs are not repeated.

Changes in the tables are against `plain` in the same repeat, in percent.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from e2e.bench.companion.arms import AGAIN, PLAIN
from e2e.bench.companion.site import COUNT, Site, four_nodes
from e2e.bench.companion.tables import beyond, changes, noise, percent
from e2e.bench.report import spread, table
from e2e.bench.store import Interleaved, Store
from e2e.bench.stream.run import QUICK_PARAMETERS, Arm, Arms, Outcome, Story, arms, run
from e2e.bench.stream.workload import (
    FEW,
    JOBS,
    MILLICORES,
    SEED,
    SERVER_LOAD,
    Arrival,
    arrivals,
    with_servers,
)
from e2e.testbed import paths
from e2e.testbed.progress import say, step
from e2e.testbed.realnodes import nodes

Runs = Mapping[str, Sequence[Outcome]]
"""The outcomes of each arm, by repeat."""
_PUBLISHED = {"CPU used %": "+20 to +30 %", "elapsed s, mean": "-65 %"}
"""The gains that DRAGON's authors report for their own cluster, against plain Kubernetes."""
Object = dict[str, Any]
_HERE = Path(__file__).parent
_SOURCES = (
    *(_HERE / f"{name}.py" for name in ("workload", "run")),
    paths.REPOSITORY / "e2e/harness/elastic_jobs.py",
    _HERE.parent / "companion" / "site.py",
    paths.REPOSITORY / "e2e/jobs",
)
NINE, SERVERS = "nine", "servers"
SHAPES = (NINE, SERVERS)
QUICK_MINUTES = 2.0
_AROUND_MINUTES = 1.5
"""The time in a run to end the last jobs and to delete the namespace."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a run; `compared`: whether its changes are meaningful."""

    title: str
    of: Callable[[Outcome], float]
    digits: int = 0
    compared: bool = True


def _mean(time: Callable[[Story, float], float]) -> Callable[[Outcome], float]:
    return lambda outcome: fmean(time(job, outcome.until) for job in outcome.jobs.values())


def _sum(count: Callable[[Story], int]) -> Callable[[Outcome], float]:
    return lambda outcome: sum(count(job) for job in outcome.jobs.values())


FIGURES = (
    Figure("CPU used %", lambda run: 100 * run.used / run.capacity, 1),
    Figure("CPU reserved %", lambda run: 100 * run.reserved / run.capacity, 1),
    Figure("elapsed s, mean", _mean(Story.elapsed)),
    Figure("wait s, mean", _mean(Story.wait), compared=False),
    Figure("run s, mean", _mean(Story.run)),
    Figure("makespan s", lambda run: run.until),
    Figure("changes of size", _sum(lambda story: story.rescales), compared=False),
    Figure("repeated steps", _sum(lambda story: story.redone), compared=False),
    Figure("not ended well", _sum(lambda story: not story.succeeded), compared=False),
)


def arms_table(runs: Runs, *, title: str) -> str:
    """Return a table with a row for each figure: its values, and the medians of paired changes."""
    rows = []
    for figure in FIGURES:
        row = [figure.title]
        for name, outcomes in runs.items():
            values = [figure.of(run) for run in outcomes]
            row.append(spread(values, digits=figure.digits))
            if name != PLAIN:
                before = [figure.of(run) for run in runs[PLAIN]]
                row.append(percent(changes(before, values)) if figure.compared else "")
        rows.append([*row, _PUBLISHED.get(figure.title, "")])
    head = [""]
    for name in runs:
        head += [PLAIN] if name == PLAIN else [titled(name), "against plain"]
    repeats = min(len(outcomes) for outcomes in runs.values())
    return table(f"{title}; repeats: {repeats}", [*head, "published"], rows)


def worst_table(runs: Runs) -> str:
    """Return a table with a row for each arm: its effect on the best, mean and worst job."""
    most, rows = noise(elapsed(runs, AGAIN)), []
    for name in runs:
        if name != PLAIN:
            jobs = elapsed(runs, name)
            medians = {job: median(values) for job, values in jobs.items()}
            best, worst = (choose(medians, key=medians.__getitem__) for choose in (min, max))
            mean = [fmean(some) for some in zip(*jobs.values(), strict=True)]
            cells = (f"{job}: {percent(jobs[job])}" for job in (best, worst))
            rows.append((titled(name), percent(mean), *cells, *beyond(jobs, most)))
    head = (
        "elapsed against plain", "mean of the jobs", "best job", "worst job",
        f"jobs improved by over {most:.1f} %", "jobs worse by over that",
    )  # fmt: skip
    return table("Effect of each arm on a job", head, rows)


def elapsed(runs: Runs, arm: str) -> dict[str, list[float]]:
    """Return the change of the time of each job under an arm, by repeat."""

    def seconds(name: str, job: str) -> list[float]:
        return [run.jobs[job].elapsed(run.until) for run in runs[name]]

    return {job: changes(seconds(PLAIN, job), seconds(arm, job)) for job in runs[PLAIN][0].jobs}


def jobs_table(runs: Runs) -> str:
    """Return a table with a row for each job: its median wait and run under each arm, in s."""
    head = ["job", "comes at s"]
    for name in runs:
        head += [f"{titled(name)}: wait", "run"]
    rows = []
    for job, first in runs[PLAIN][0].jobs.items():
        row = [job, f"{first.submitted:.0f}"]
        for outcomes in runs.values():
            stories = [(run.jobs[job], run.until) for run in outcomes]
            more = "" if all(story.succeeded for story, _ in stories) else "> "
            row.append(f"{median(story.wait(until) for story, until in stories):.0f}")
            row.append(f"{more}{median(story.run(until) for story, until in stories):.0f}")
        rows.append(row)
    return table("Job by job", head, rows)


def titled(arm: str) -> str:
    """Return the name of an arm in a table."""
    return f"{arm} (A/A)" if arm == AGAIN else arm


def measure(*, quick: bool, shape: str, minutes: float, repeats: int, anew: bool) -> str:
    """Run the missing runs, and return the tables; `anew` first deletes the stored runs."""
    minutes = QUICK_MINUTES if quick else minutes
    if shape == SERVERS:
        coming, load = with_servers(minutes=minutes), f", load {SERVER_LOAD:g}"
    else:
        coming, load = arrivals(FEW if quick else JOBS, minutes=minutes), ""
    chosen = arms(QUICK_PARAMETERS if quick else {})
    bench = of_arms(chosen, coming, minutes=minutes, repeats=repeats)
    if anew:
        bench.forget()
    missing = len(bench.missing())
    say(f"to run: {missing} runs, about {missing * (minutes + _AROUND_MINUTES):.0f} minutes")
    if missing:
        with four_nodes("bench-stream") as site:
            with step("warm up the files of the trainings"):
                _one(site, chosen[PLAIN], _warm_up(), minutes=0.1)
            bench.measure(
                lambda repeat, name: _named(site, chosen, name, coming, minutes, repeat=repeat)
            )
    runs = {name: list(map(Outcome.restore, stored)) for name, stored in bench.runs().items()}
    title = (
        f"{len(coming)} jobs within {coming[-1].seconds:.0f} s{load} on {COUNT} nodes, "
        f"{MILLICORES}m a pod, seed {SEED}"
    )
    return "\n\n".join((arms_table(runs, title=title), worst_table(runs), jobs_table(runs)))


def of_arms(
    chosen: Arms, coming: Sequence[Arrival], *, minutes: float, repeats: int
) -> Interleaved:
    inputs = repr((coming, minutes))
    stores = {
        name: Store(f"stream {name}", [inputs, repr(arm.scale)], [*_SOURCES, *arm.sources])
        for name, arm in chosen.items()
    }
    return Interleaved(stores, repeats=repeats)


def _named(
    site: Site,
    chosen: Arms,
    name: str,
    coming: Sequence[Arrival],
    minutes: float,
    *,
    repeat: int,
) -> Object:
    with step(f"{len(coming)} jobs, {name}, repeat {repeat + 1}"):
        return _one(site, chosen[name], coming, minutes=minutes).stored()


def _one(site: Site, arm: Arm, coming: Sequence[Arrival], *, minutes: float) -> Outcome:
    with site.namespace("stream", managed=arm.managed) as pods:
        return run(pods, arm, coming, nodes(site.bed), minutes=minutes)


def _warm_up() -> list[Arrival]:
    """Return a job of each kind, so that the first arm does not pay for cold files."""
    kinds = {job.kind: job for job in FEW if job.elastic}
    return [Arrival(0.0, job) for job in kinds.values()]
