"""What it costs a job that its progress is read, and that it may be resized, if it gains nothing.

One job alone on a node of one CPU, so that nothing can be won: on plain Kubernetes twice, managed
by kfext (its log and use are read twice a minute), and open to resizes (every ten seconds). Many
short runs, the arms in turn. Compared are the time from its first step to its last, and its parts:
the CPU that it took for them, which neighbours of the machine change by some percent, and the time
that passed for each second of it, which is what others took of the node's CPU.
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
"""CPU seconds of the job: two reads in the slower of both arms, six in the other."""


def measure(*, quick: bool, repeats: int, anew: bool) -> str:
    """Measure what is not stored yet, and return the table."""
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
    """Return a row for each arm: changes of pairs against `plain`."""
    head = (
        "arm", "time of the steps", "CPU of the steps", "time for a CPU second", "target of that",
        "resizes", "cores in use beside the node",
    )  # fmt: skip
    rows = [_row(runs, arm) for arm in runs]
    return table(f"One job alone, with nothing to gain; repeats: {len(runs[PLAIN])}", head, rows)


def _row(runs: Runs, arm: str) -> tuple[str, ...]:
    found = runs[arm]
    last = (
        spread([outcome.resizes for outcome in found], digits=0),
        spread([outcome.beside for outcome in found]),
    )
    if arm == PLAIN:
        figures = (f"{spread(_of(found, of), digits=2)} s" for of in _FIGURES)
        return (arm, *figures, "", *last)
    found_changes = [changes(_of(runs[PLAIN], of), _of(found, of)) for of in _FIGURES]
    # Neighbours of the machine change what a step takes by more than the target is.
    judged = "" if arm == AGAIN else OVERHEAD.judge(median(found_changes[-1]))
    return (titled(arm), *map(percent, found_changes), judged, *last)


def _of(found: Sequence[Outcome], figure: Callable[[Outcome], float]) -> list[float]:
    return [figure(outcome) for outcome in found]


def _training(outcome: Outcome) -> float:
    (job,) = outcome.jobs.values()
    return job.training


def _cpu(outcome: Outcome) -> float:
    (job,) = outcome.jobs.values()
    return job.cpu


def _time_for_cpu(outcome: Outcome) -> float:
    return _training(outcome) / _cpu(outcome)


_FIGURES = (_training, _cpu, _time_for_cpu)
