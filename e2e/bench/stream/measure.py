"""The benchmark: runs a stream under every arm in turn, unless the runs are stored.

Changes in the tables are against `plain` in the same repeat, in percent.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from e2e.bench.companion.arms import PLAIN, PLAIN_AGAIN
from e2e.bench.companion.site import NODES, Site, four_nodes
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
"""The outcomes of each arm, in order of repeats."""
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
"""The time after the stream to end the last jobs and to delete the namespace."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of `arms_table`: a value of each run. `compared`: whether its changes mean anything."""

    title: str
    value: Callable[[Outcome], float]
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
    """Return a table with a row for each figure: its values, and its changes against `plain`."""
    rows = []
    for figure in FIGURES:
        row = [figure.title]
        for name, outcomes in runs.items():
            values = [figure.value(run) for run in outcomes]
            row.append(spread(values, digits=figure.digits))
            if name != PLAIN:
                before = [figure.value(run) for run in runs[PLAIN]]
                row.append(percent(changes(before, values)) if figure.compared else "")
        rows.append([*row, _PUBLISHED.get(figure.title, "")])
    head = [""]
    for name in runs:
        head += [PLAIN] if name == PLAIN else [title_of(name), "against plain"]
    repeats = min(len(outcomes) for outcomes in runs.values())
    return table(f"{title}; repeats: {repeats}", [*head, "published"], rows)


def worst_table(runs: Runs) -> str:
    """Return a table with a row for each arm: its effect on the mean, best and worst job."""
    most, rows = noise(elapsed(runs, PLAIN_AGAIN)), []
    for name in runs:
        if name != PLAIN:
            jobs = elapsed(runs, name)
            medians = {job: median(values) for job, values in jobs.items()}
            best, worst = (choose(medians, key=medians.__getitem__) for choose in (min, max))
            mean = [fmean(repeat) for repeat in zip(*jobs.values(), strict=True)]
            cells = (f"{job}: {percent(jobs[job])}" for job in (best, worst))
            rows.append((title_of(name), percent(mean), *cells, *beyond(jobs, most)))
    head = (
        "elapsed against plain", "mean of the jobs", "best job", "worst job",
        f"jobs improved by over {most:.1f} %", "jobs worse by over that",
    )  # fmt: skip
    return table("Effect of each arm on a job", head, rows)


def elapsed(runs: Runs, arm: str) -> dict[str, list[float]]:
    """Return the changes of the elapsed time of each job under an arm, in percent, by repeat."""

    def seconds(name: str, job: str) -> list[float]:
        return [run.jobs[job].elapsed(run.until) for run in runs[name]]

    return {job: changes(seconds(PLAIN, job), seconds(arm, job)) for job in runs[PLAIN][0].jobs}


def jobs_table(runs: Runs) -> str:
    """Return a table with a row for each job: median seconds it waited and ran under each arm."""
    head = ["job", "comes at s"]
    for name in runs:
        head += [f"{title_of(name)}: wait", "run"]
    rows = []
    for job, first in runs[PLAIN][0].jobs.items():
        row = [job, f"{first.submitted:.0f}"]
        for outcomes in runs.values():
            stories = [(run.jobs[job], run.until) for run in outcomes]
            prefix = "" if all(story.succeeded for story, _ in stories) else "> "
            row.append(f"{median(story.wait(until) for story, until in stories):.0f}")
            row.append(f"{prefix}{median(story.run(until) for story, until in stories):.0f}")
        rows.append(row)
    return table("Job by job", head, rows)


def title_of(arm: str) -> str:
    return f"{arm} (A/A)" if arm == PLAIN_AGAIN else arm


def measure(*, quick: bool, shape: str, minutes: float, repeats: int, anew: bool) -> str:
    """Make the missing runs, and return the tables; `anew` first deletes the stored runs."""
    minutes = QUICK_MINUTES if quick else minutes
    if shape == SERVERS:
        job_arrivals, load = with_servers(minutes=minutes), f", load {SERVER_LOAD:g}"
    else:
        job_arrivals, load = arrivals(FEW if quick else JOBS, minutes=minutes), ""
    chosen = arms(QUICK_PARAMETERS if quick else {})
    bench = stores_of(chosen, job_arrivals, minutes=minutes, repeats=repeats)
    if anew:
        bench.forget()
    missing = len(bench.missing())
    say(f"to run: {missing} runs, about {missing * (minutes + _AROUND_MINUTES):.0f} minutes")
    if missing:
        with four_nodes("bench-stream") as site:
            with step("warm up the files of the training jobs"):
                _run_arm(site, chosen[PLAIN], _warm_up(), minutes=0.1)
            bench.measure(
                lambda repeat, name: _run_named(
                    site, chosen, name, job_arrivals, minutes, repeat=repeat
                )
            )
    runs = {name: list(map(Outcome.restore, stored)) for name, stored in bench.runs().items()}
    title = (
        f"{len(job_arrivals)} jobs within {job_arrivals[-1].seconds:.0f} s{load} on {NODES} nodes, "
        f"{MILLICORES}m a pod, seed {SEED}"
    )
    return "\n\n".join((arms_table(runs, title=title), worst_table(runs), jobs_table(runs)))


def stores_of(
    chosen: Arms, job_arrivals: Sequence[Arrival], *, minutes: float, repeats: int
) -> Interleaved:
    inputs = repr((job_arrivals, minutes))
    stores = {
        name: Store(f"stream {name}", [inputs, repr(arm.scale)], [*_SOURCES, *arm.sources])
        for name, arm in chosen.items()
    }
    return Interleaved(stores, repeats=repeats)


def _run_named(
    site: Site,
    chosen: Arms,
    name: str,
    job_arrivals: Sequence[Arrival],
    minutes: float,
    *,
    repeat: int,
) -> Object:
    with step(f"{len(job_arrivals)} jobs, {name}, repeat {repeat + 1}"):
        return _run_arm(site, chosen[name], job_arrivals, minutes=minutes).stored()


def _run_arm(site: Site, arm: Arm, job_arrivals: Sequence[Arrival], *, minutes: float) -> Outcome:
    with site.namespace("stream", managed=arm.managed) as pods:
        return run(pods, arm, job_arrivals, nodes(site.bed), minutes=minutes)


def _warm_up() -> list[Arrival]:
    """Return a job of each kind, so that the first arm does not pay for cold files."""
    kinds = {job.kind: job for job in FEW if job.elastic}
    return [Arrival(0.0, job) for job in kinds.values()]
