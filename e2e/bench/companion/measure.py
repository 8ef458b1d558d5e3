"""The benchmark: calibration, then every schedule under every arm, the arms in turn."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from e2e.bench.companion import calibrate, split, workload
from e2e.bench.companion.arms import DEAD, OURS, arms, grid, killed, plain_and, resizing
from e2e.bench.companion.bench import Bench
from e2e.bench.companion.site import one_cpu
from e2e.bench.companion.store import Store
from e2e.bench.companion.tables import arms_table, jobs_table, shift_table
from e2e.testbed.progress import say

NAME = "bench-companion"
PARTS = ("three", "ten", "killed", "shift")
_HERE = Path(__file__).parent
_QUICK_PART = 0.1
"""Of the steps of the jobs between whose components CPU is shifted."""


def measure(
    *, quick: bool, repeats: int, only_calibrate: bool, anew: bool, parts: Sequence[str] = PARTS
) -> str:
    """Measure what is not stored yet, and return the tables; `anew` forgets what is stored."""
    chosen = () if only_calibrate else parts
    schedules = workload.QUICK if quick else workload.FULL
    jobs = [
        Bench(one, arms(one.interval), repeats=repeats, grid=grid(one.interval))
        for one in schedules
        if one.name in chosen
    ]
    if "killed" in chosen:
        # The runs of plain Kubernetes are those of part `three`.
        jobs.append(Bench(schedules[0], plain_and(DEAD, killed), repeats=repeats))
    splits = [
        Bench(one, plain_and(OURS, resizing), repeats=repeats)
        for one in split.schedules(_QUICK_PART if quick else 1)
        if "shift" in chosen
    ]
    benches = [*jobs, *splits]
    calibration = Store([str(quick)], [_HERE / "pods.py", _HERE / "calibrate.py"])
    if anew:
        calibration.forget()
        for bench in benches:
            bench.forget()
    say(estimate(benches))
    if not calibrate.complete(calibration) or any(bench.missing() for bench in benches):
        with one_cpu(NAME) as site:
            with site.namespace("calibrate", managed=False) as pods:
                calibrate.measure(pods, calibration, quick=quick)
            say(calibrate.table_of(calibration))
            if benches:
                site.warm_up()
            for bench in benches:
                bench.measure(site)
    tables = [calibrate.table_of(calibration)]
    for bench in jobs:
        runs = bench.runs()
        tables += [arms_table(bench.schedule, runs), jobs_table(bench.schedule, runs)]
    if splits:
        tables.append(shift_table({bench.schedule.name: bench.runs() for bench in splits}))
    return "\n\n".join(tables)


def estimate(benches: Iterable[Bench]) -> str:
    """Return how many runs are missing and about how long they take, by schedule."""
    found = [
        f"{bench.schedule.name}: {len(bench.missing())} runs, about {bench.seconds() / 60:.0f} min"
        for bench in benches
    ]
    return f"to run: {'; '.join(found) or 'nothing'}"
