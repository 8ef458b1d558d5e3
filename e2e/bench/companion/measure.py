"""The benchmark: calibration, then every schedule under every arm, the arms in turn."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from e2e.bench.companion import calibrate, split, workload
from e2e.bench.companion.arms import DEAD, OURS, arms, grid, killed, plain_and, resizing
from e2e.bench.companion.bench import Bench, best
from e2e.bench.companion.site import one_cpu
from e2e.bench.companion.tables import arms_table, jobs_table, shift_table
from e2e.bench.store import Store
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

    def benches() -> list[Bench]:
        of_jobs = _of_jobs(chosen, quick=quick, repeats=repeats)
        return [*of_jobs, *_of_splits(chosen, quick=quick, repeats=repeats)]

    calibration = Store([str(quick)], [_HERE / "pods.py", _HERE / "calibrate.py"])
    if anew:
        calibration.forget()
        for bench in benches():
            bench.forget()
    say(estimate(benches()))
    if not calibrate.complete(calibration) or any(bench.missing() for bench in benches()):
        with one_cpu(NAME) as site:
            with site.namespace("calibrate", managed=False) as pods:
                calibrate.measure(pods, calibration, quick=quick)
            say(calibrate.table_of(calibration))
            if chosen:
                site.warm_up()
            for number in range(len(benches())):
                # Anew each time: an arm of one may be chosen by what came of another.
                benches()[number].measure(site)
    tables = [calibrate.table_of(calibration)]
    for bench in _of_jobs(chosen, quick=quick, repeats=repeats):
        runs = bench.runs()
        tables += [arms_table(bench.schedule, runs), jobs_table(bench.schedule, runs)]
    if splits := _of_splits(chosen, quick=quick, repeats=repeats):
        tables.append(shift_table({bench.schedule.name: bench.runs() for bench in splits}))
    return "\n\n".join(tables)


def _of_jobs(parts: Sequence[str], *, quick: bool, repeats: int) -> list[Bench]:
    """Return the benches of jobs that share a node.

    FlowCon's grid is tried on three jobs; ten of them run under the best of it as well.
    """
    few, many = workload.QUICK if quick else workload.FULL
    cells = grid(few.interval)
    three = Bench(few, arms(few.interval), repeats=repeats, grid=cells)
    tuned = best(three.runs(), list(cells))
    found = {
        "three": three,
        "ten": Bench(many, {**arms(many.interval), tuned: cells[tuned]}, repeats=repeats),
        # The runs of plain Kubernetes are those of part `three`.
        "killed": Bench(few, plain_and(DEAD, killed), repeats=repeats),
    }
    return [bench for part, bench in found.items() if part in parts]


def _of_splits(parts: Sequence[str], *, quick: bool, repeats: int) -> list[Bench]:
    """Return those of jobs between whose components CPU is shifted."""
    return [
        Bench(one, plain_and(OURS, resizing), repeats=repeats)
        for one in split.schedules(_QUICK_PART if quick else 1)
        if "shift" in parts
    ]


def estimate(benches: Iterable[Bench]) -> str:
    """Return how many runs are missing and about how long they take, by schedule."""
    found = [
        f"{bench.schedule.name}: {len(bench.missing())} runs, about {bench.seconds() / 60:.0f} min"
        for bench in benches
    ]
    return f"to run: {'; '.join(found) or 'nothing'}"
