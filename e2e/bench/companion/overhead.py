"""The cost for a job of reading its progress and of possible resizes, without any gain.

One job alone on a node of one CPU, so that no gain is possible: on plain Kubernetes twice, managed
by kfext (its log and usage are read twice a minute), and open to resizes (every ten seconds). Many
short runs, the arms in turn. Compared are the time from its first step to its last, and its two
factors: the CPU time, which other work on the machine changes by some percent, and the time for
each CPU second, which shows the CPU that others used on the node.
Kubelet, API server and kfext run beside the node's CPU: the last column.
"""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

from e2e.bench.companion.arms import AGAIN, PLAIN, Kfext, plain_and, resizing
from e2e.bench.companion.measure import estimate, known_steps, measure_steps
from e2e.bench.companion.run import Bench, Outcome, Runs
from e2e.bench.companion.site import one_cpu
from e2e.bench.companion.tables import changes, percent, titled
from e2e.bench.companion.workload import StepCpu, alone
from e2e.bench.report import OVERHEAD, spread, table
from e2e.testbed.progress import say

READ, OPEN = "its progress is read", "it may be resized"
_WORK, _QUICK_WORK = 65.0, 20.0
"""CPU seconds of the job: enough for two reads in the slower of both arms, and six in the other."""


def measure(*, quick: bool, repeats: int, anew: bool) -> str:
    """Run the missing runs, and return the table."""
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
    """Return a table with a row for each arm: changes of pairs against `plain`."""
    head = (
        "arm", "time of the steps", "CPU of the steps", "time for a CPU second", "target of that",
        "resizes", "cores in use beside the node",
    )  # fmt: skip
    rows = [_row(runs, arm) for arm in runs]
    return table(f"One job alone, with nothing to gain; repeats: {len(runs[PLAIN])}", head, rows)


def _row(runs: Runs, arm: str) -> tuple[str, ...]:
    outcomes = runs[arm]
    last = (
        spread([outcome.resizes for outcome in outcomes], digits=0),
        spread([outcome.beside for outcome in outcomes]),
    )
    if arm == PLAIN:
        figures = (f"{spread(_of(outcomes, figure), digits=2)} s" for figure in _FIGURES)
        return (arm, *figures, "", *last)
    by_figure = [changes(_of(runs[PLAIN], figure), _of(outcomes, figure)) for figure in _FIGURES]
    # Other work on the machine changes the CPU time of a step by more than the target.
    judged = "" if arm == AGAIN else OVERHEAD.judge(median(by_figure[-1]))
    return (titled(arm), *map(percent, by_figure), judged, *last)


def _of(outcomes: Sequence[Outcome], figure: Callable[[Outcome], float]) -> list[float]:
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
