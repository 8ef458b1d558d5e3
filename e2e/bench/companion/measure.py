"""The benchmark: calibration, then every schedule under every arm, the arms in turn."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from e2e.bench.companion import calibrate, split, steps
from e2e.bench.companion.arms import DEAD, OURS, arms, grid, killed, plain_and, resizing
from e2e.bench.companion.bench import Bench, best
from e2e.bench.companion.site import one_cpu
from e2e.bench.companion.tables import arms_table, jobs_table, shift_table
from e2e.bench.companion.workload import StepCpu, few_and_many
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
    calibration = Store("calibration", [str(quick)], [_HERE / "pods.py", _HERE / "calibrate.py"])
    step_cpu = steps.known()

    def of_jobs() -> list[Bench]:
        return _of_jobs(chosen, step_cpu, quick=quick, repeats=repeats) if step_cpu else []

    splits = _of_splits(chosen, quick=quick, repeats=repeats)
    if anew:
        calibration.forget()
        for bench in (*of_jobs(), *splits):
            bench.forget()
    if step_cpu:
        say(estimate([*of_jobs(), *splits]))
    begun = calibrate.complete(calibration) and (step_cpu or not chosen)
    if not begun or any(bench.missing() for bench in (*of_jobs(), *splits)):
        with one_cpu(NAME) as site:
            with site.namespace("calibrate", managed=False) as pods:
                calibrate.measure(pods, calibration, quick=quick)
            say(calibrate.table_of(calibration))
            if chosen:
                step_cpu = steps.measure(site)
            for number in range(len(of_jobs())):
                # Anew each time: an arm of one may be chosen by what came of another.
                of_jobs()[number].measure(site)
            for bench in splits:
                bench.measure(site)
    tables = [calibrate.table_of(calibration)]
    for bench in of_jobs():
        runs = bench.runs()
        tables += [arms_table(bench.schedule, runs), jobs_table(bench.schedule, runs)]
    if splits:
        tables.append(shift_table({bench.schedule.name: bench.runs() for bench in splits}))
    return "\n\n".join(tables)


def _of_jobs(parts: Sequence[str], step_cpu: StepCpu, *, quick: bool, repeats: int) -> list[Bench]:
    """Return the benches of jobs that share a node.

    FlowCon's grid is tried on three jobs; ten of them run under the best of it as well.
    """
    few, many = few_and_many(step_cpu, quick=quick)
    cells = grid(few.interval)
    three = Bench(few, arms(few.interval), repeats=repeats, grid=cells)
    tuned = best(three.runs(), list(cells))
    found = {
        "three": three,
        "ten": Bench(many, {**arms(many.interval), tuned: cells[tuned]}, repeats=repeats),
        # Named apart, so that it is compared with runs of the same day and machine.
        "killed": Bench(replace(few, name="killed"), plain_and(DEAD, killed), repeats=repeats),
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
