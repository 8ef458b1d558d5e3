"""The cost for a job of reading its progress and of possible resizes, without any gain.

One job runs alone on a node of one CPU, so that no gain is possible: on plain Kubernetes (twice),
managed by kfext (which reads its log and usage twice a minute), and open to resizes (which are
considered every ten seconds). There are many short runs, the arms in turn. The arms are compared by
the time from the job's first step to its last, and by its two factors: the CPU time, which other
work on the machine changes by some percent, and the time per CPU second, which grows with the CPU
that other processes use on the node. Kubelet, API server and kfext do not run on the node's CPU;
the last column is theirs.
"""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

from e2e.bench.companion.arms import PLAIN, PLAIN_AGAIN, Kfext, plain_and, resizing
from e2e.bench.companion.measure import estimate, known_steps, measure_steps
from e2e.bench.companion.run import Bench, Outcome, Runs
from e2e.bench.companion.site import one_cpu
from e2e.bench.companion.tables import changes, percent, title_of
from e2e.bench.companion.workload import StepCpu, alone
from e2e.bench.report import OVERHEAD, spread, table
from e2e.testbed.progress import say

READ, OPEN = "its progress is read", "it may be resized"
_WORK, _QUICK_WORK = 65.0, 20.0
"""CPU seconds of the job: enough for two reads of its log, or for six decisions on a resize."""


def measure(*, quick: bool, repeats: int, anew: bool) -> str:
    arms = {**plain_and(READ, partial(Kfext, {})), OPEN: resizing}
    work = _QUICK_WORK if quick else _WORK

    def bench(step_cpu: StepCpu) -> Bench:
        return Bench(alone(work=work, step_cpu=step_cpu), arms, repeats=repeats)

    step_cpu = known_steps()
    if anew and step_cpu is not None:
        bench(step_cpu).forget()
    if step_cpu is not None:
        say(estimate([bench(step_cpu)]))
    if step_cpu is None or bench(step_cpu).missing():
        with one_cpu("bench-overhead") as site:
            step_cpu = measure_steps(site)
            bench(step_cpu).measure(site)
    return overhead_table(bench(step_cpu).runs())


def overhead_table(runs: Runs) -> str:
    """Return a table with a row for each arm: its changes against `plain` in the same repeat."""
    head = (
        "arm", "time of the steps", "CPU of the steps", "time for a CPU second", "target of that",
        "resizes", "cores in use beside the node",
    )  # fmt: skip
    rows = [_row(runs, arm) for arm in runs]
    return table(f"One job alone, with nothing to gain; repeats: {len(runs[PLAIN])}", head, rows)


def _row(runs: Runs, arm: str) -> tuple[str, ...]:
    outcomes = runs[arm]
    counts = (
        spread([outcome.resizes for outcome in outcomes], digits=0),
        spread([outcome.beside for outcome in outcomes]),
    )
    if arm == PLAIN:
        figures = (f"{spread(_values(outcomes, figure), digits=2)} s" for figure in _FIGURES)
        return (arm, *figures, "", *counts)
    changes_by_figure = [
        changes(_values(runs[PLAIN], figure), _values(outcomes, figure)) for figure in _FIGURES
    ]
    # Other work on the machine changes the CPU time of a step by more than the target.
    judged = "" if arm == PLAIN_AGAIN else OVERHEAD.judge(median(changes_by_figure[-1]))
    return (title_of(arm), *map(percent, changes_by_figure), judged, *counts)


def _values(outcomes: Sequence[Outcome], figure: Callable[[Outcome], float]) -> list[float]:
    return [figure(outcome) for outcome in outcomes]


def _training(outcome: Outcome) -> float:
    (job,) = outcome.jobs.values()
    return job.training


def _cpu(outcome: Outcome) -> float:
    (job,) = outcome.jobs.values()
    return job.cpu


def _time_for_cpu(outcome: Outcome) -> float:
    return _training(outcome) / _cpu(outcome)


_FIGURES = (_training, _cpu, _time_for_cpu)
