"""Tables of the runs; most values are changes in percent against `plain` in the same repeat."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median

from e2e.bench.companion.arms import KFEXT, PLAIN, PLAIN_AGAIN
from e2e.bench.companion.run import Outcome, Runs
from e2e.bench.companion.site import MILLICORES
from e2e.bench.companion.workload import Schedule
from e2e.bench.report import spread, table
from kfext.state.running.cpu.contest import SPARE

_NODE_MILLICORES = 1000
"""The millicores of the node."""
ByJob = Mapping[str, Sequence[float]]
"""The changes of the time of each job, in percent and by repeat."""


def raised_request(count: int) -> int:
    """Return the request that kfext's rule gives the boosted pod among `count`, in millicores."""
    return round(MILLICORES + (1 - SPARE) * (_NODE_MILLICORES - count * MILLICORES))


def best_change(count: int) -> float:
    """Return the best possible change of the prioritised job's time among `count`, in percent.

    The other jobs keep their requests, which are weights, so they still get a little CPU.
    """
    share = raised_request(count) / (raised_request(count) + (count - 1) * MILLICORES)
    return 100 * (1 / (count * share) - 1)


def changes(before: Sequence[float], after: Sequence[float]) -> list[float]:
    """Return the change of each repeat in percent; the longer sequence is cut to the shorter."""
    return [100 * (new / old - 1) for old, new in zip(before, after, strict=False)]


def by_job(runs: Runs, arm: str) -> dict[str, list[float]]:
    """Return the change of the time of each job under an arm, by repeat."""

    def seconds(name: str, job: str) -> list[float]:
        return [run.jobs[job].seconds for run in runs[name]]

    return {job: changes(seconds(PLAIN, job), seconds(arm, job)) for job in runs[PLAIN][0].jobs}


def noise(again: ByJob) -> float:
    """Return the largest change of a job between two equal arms."""
    return max(abs(change) for values in again.values() for change in values)


def beyond(changes_by_job: ByJob, most: float) -> tuple[str, str]:
    """Return how many jobs improved, and worsened, by more than `most` percent in the median."""
    medians = [median(of_repeats) for of_repeats in changes_by_job.values()]
    return str(sum(change < -most for change in medians)), str(
        sum(change > most for change in medians)
    )


def arms_table(schedule: Schedule, runs: Runs) -> str:
    """Return a table with a row for each arm, and a row with the best possible change."""
    most = noise(by_job(runs, PLAIN_AGAIN))
    head = (
        "arm", "mean job", "best job", "worst job", "makespan",
        f"jobs improved by over {most:.1f} %", "jobs worse by over that",
        "resizes", "cores in use beside the node",
    )  # fmt: skip
    rows = [_plain_row(runs), *(_row(runs, arm, most) for arm in runs if arm != PLAIN)]
    count = len(schedule.arrivals)
    best = f"{best_change(count):+.0f} %"
    rows.append((f"arithmetic: the favourite among {count}", "", best, *[""] * (len(head) - 3)))
    repeats = len(runs[PLAIN])
    return table(f"{schedule.title}; repeats: {repeats}", head, rows)


def _plain_row(runs: Runs) -> tuple[str, ...]:
    outcomes = runs[PLAIN]
    seconds = [[job.seconds for job in run.jobs.values()] for run in outcomes]
    return (
        PLAIN,
        f"{spread([fmean(sample) for sample in seconds], digits=0)} s",
        f"{spread([min(sample) for sample in seconds], digits=0)} s",
        f"{spread([max(sample) for sample in seconds], digits=0)} s",
        f"{spread([run.makespan for run in outcomes], digits=0)} s",
        "", "", "",
        spread([run.beside for run in outcomes]),
    )  # fmt: skip


def _row(runs: Runs, arm: str, most: float) -> tuple[str, ...]:
    outcomes, plain, jobs = runs[arm], runs[PLAIN], by_job(runs, arm)
    medians = {job: median(some) for job, some in jobs.items()}
    best, worst = min(medians, key=medians.__getitem__), max(medians, key=medians.__getitem__)
    return (
        title_of(arm),
        percent(changes(*([_mean(run) for run in some] for some in (plain, outcomes)))),
        percent(jobs[best]),
        percent(jobs[worst]),
        percent(changes(*([run.makespan for run in some] for some in (plain, outcomes)))),
        *beyond(jobs, most),
        spread([run.resizes for run in outcomes], digits=0),
        spread([run.beside for run in outcomes]),
    )


def title_of(arm: str) -> str:
    return f"{arm} (A/A)" if arm == PLAIN_AGAIN else arm


def _mean(outcome: Outcome) -> float:
    return fmean(job.seconds for job in outcome.jobs.values())


def percent(values: Sequence[float]) -> str:
    """Return median and range of changes, e.g. `-3.1 % (-4.0 to +0.2)`."""
    return f"{median(values):+.1f} % ({min(values):+.1f} to {max(values):+.1f})"


def jobs_table(schedule: Schedule, runs: Runs) -> str:
    """Return a table with a row for each job: its time under `plain`, and changes in other arms."""
    others = [arm for arm in runs if arm != PLAIN]
    head = ("job", "comes after s", "steps", "start-up CPU s", "CPU s", "loss", "plain s", *others)
    rows = []
    for arrival in schedule.arrivals:
        plain = [outcome.jobs[arrival.name] for outcome in runs[PLAIN]]
        rows.append(
            (
                arrival.name,
                f"{arrival.seconds:.0f}",
                str(arrival.steps),
                spread([job.startup_cpu for job in plain], digits=1),
                spread([job.cpu for job in plain], digits=1),
                f"{median(job.loss for job in plain):.4f}",
                spread([job.seconds for job in plain], digits=0),
                *(percent(by_job(runs, arm)[arrival.name]) for arm in others),
            )
        )
    return table(f"{schedule.title}, job by job", head, rows)


def shift_table(by_split: Mapping[str, Runs]) -> str:
    """Return a table with a row for each split of the CPU between a job's server and worker."""
    head = ("limits", "plain s", "plain again (A/A)", KFEXT, "resizes")
    rows = []
    for name, runs in by_split.items():
        ((_, kfext),) = by_job(runs, KFEXT).items()
        ((_, again),) = by_job(runs, PLAIN_AGAIN).items()
        plain = spread([run.makespan for run in runs[PLAIN]], digits=0)
        resizes = spread([run.resizes for run in runs[KFEXT]], digits=0)
        rows.append((name, plain, percent(again), percent(kfext), resizes))
    repeats = min(len(runs[KFEXT]) for runs in by_split.values())
    return table(
        f"A job of a server and a worker, limits as written; repeats: {repeats}", head, rows
    )
