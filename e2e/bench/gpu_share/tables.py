"""What the runs come to: ratios with intervals, whether losses agree, and the tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from e2e.bench.gpu_share.group import EXCLUSIVE as ONE_BY_ONE
from e2e.bench.gpu_share.group import GroupOutcome
from e2e.bench.gpu_share.run import (
    AGAIN,
    EXCLUSIVE,
    HIGH,
    HOOKED,
    LOADS,
    LOW,
    LOW_ALONE,
    Arm,
    Outcome,
)
from e2e.bench.report import (
    GROUP_COMPLETION,
    GROUP_UTILISATION,
    HIGH_LOSS,
    HOOK_OVERHEAD,
    LOW_EFFICIENCY,
    quantile,
    spread,
    table,
)

Blocks = Sequence[Sequence[float]]
"""The rates of one job in one arm, by repeat and by second."""
_DRAWS = 2000
_SEED = 1
_Array = np.ndarray[Any, Any]
Runs = Mapping[Arm, Sequence[Outcome]]
"""The outcomes of each arm, by repeat."""


def agreed(runs: Iterable[Mapping[str, str]]) -> tuple[int, bool]:
    """Return the last step that two runs or more were compared at, and whether all agree."""
    seen: dict[int, list[str]] = {}
    for run in runs:
        for count, digest in run.items():
            seen.setdefault(int(count), []).append(digest)
    compared = {count: found for count, found in seen.items() if len(found) > 1}
    return max(compared, default=0), all(len({*found}) == 1 for found in compared.values())


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its interval of 95 %."""

    value: float
    low: float
    high: float

    def percent(self) -> str:
        """Return it in percent, e.g. `2.5 (1.9 to 3.2)`."""
        return f"{100 * self.value:.1f} ({100 * self.low:.1f} to {100 * self.high:.1f})"


def ratio(of: Blocks, to: Blocks) -> Estimate:
    """Return the mean of an arm divided by the other's, and a bootstrap interval.

    Repeats are drawn, the same ones for both arms, and of each the seconds (A. Davison and
    D. Hinkley, "Bootstrap Methods and their Application", 1997, 3.8).
    """
    pairs = [(np.array(own), np.array(other)) for own, other in zip(of, to, strict=False)]
    draw = np.random.default_rng(_SEED)

    def means(pair: tuple[_Array, _Array]) -> tuple[float, float]:
        own, other = (values[draw.integers(len(values), size=len(values))] for values in pair)
        return own.mean(), other.mean()

    drawn = []
    for _ in range(_DRAWS):
        chosen = [means(pairs[place]) for place in draw.integers(len(pairs), size=len(pairs))]
        drawn.append(sum(own for own, _ in chosen) / sum(other for _, other in chosen))
    value = sum(own.mean() for own, _ in pairs) / sum(other.mean() for _, other in pairs)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Estimate(float(value), float(low), float(high))


def mapped(estimate: Estimate, function: Callable[[float], float]) -> Estimate:
    """Return the estimate of a monotonic function of a figure."""
    ends = sorted((function(estimate.low), function(estimate.high)))
    return Estimate(function(estimate.value), *ends)


def bound(high: float, low: float) -> float:
    """Return what low can get at most without a loss for high, by how busy each is alone."""
    return min(1.0, (1 - high) / low)


def all_of(card: str, runs: Runs, seconds: float) -> str:
    """Return all tables; `seconds`: of a window."""
    found = [
        shares_table(card, runs, u, seconds)
        for u in LOADS
        if {_exclusive(u), LOW_ALONE} <= runs.keys()
    ]
    if any(arm.name == HOOKED for arm in runs):
        found.append(overhead_table(card, runs))
    return "\n\n".join([*found, losses_table(card, runs)])


def shares_table(card: str, runs: Runs, u: float, seconds: float) -> str:
    """Return a row for each arm with a job of high priority of that u, but that alone."""
    head = (
        "arm", "high loses, %", "low share, %", "low share / bound", "preemption p50 ms", "p99 ms",
        "longest micro-step ms", "card busy, %", "jobs wait for a CPU, %", "targets",
    )  # fmt: skip
    alone, low_alone = runs[_exclusive(u)], runs[LOW_ALONE]
    high_busy, low_busy = (fmean(run.busy for run in some) for some in (alone, low_alone))
    most = bound(high_busy, low_busy)
    rows = []
    for arm, some in runs.items():
        if arm.u != u or arm.name in {EXCLUSIVE, HOOKED}:
            continue
        loss = mapped(ratio(_blocks(some, HIGH), _blocks(alone, HIGH)), lambda part: 1 - part)
        cells = [arm.name, loss.percent(), *[""] * 5]
        targets = ""
        if arm.low:
            share = ratio(_blocks(some, LOW), _blocks(low_alone, LOW))
            efficiency = mapped(share, lambda part: part / most)
            shown = f"{efficiency.value:.2f} ({efficiency.low:.2f} to {efficiency.high:.2f})"
            cells[2:] = [share.percent(), shown, *_preemption(some), _micro_step(some)]
            if arm.sharing is not None:
                judged = HIGH_LOSS.judge(100 * loss.value), LOW_EFFICIENCY.judge(efficiency.value)
                targets = "; ".join(judged)
        busy = f"{100 * fmean(run.busy for run in some):.0f}"
        rows.append((*cells, busy, _cpu_wait(some), targets))
    repeats = min(len(some) for arm, some in runs.items() if arm.u == u)
    title = (
        f"{card}, u_h {high_busy:.2f}, u_l {low_busy:.2f}, bound {100 * most:.0f} %; repeats: "
        f"{repeats} of {seconds:.0f} s; in brackets the interval of 95 %"
    )
    return table(title, head, rows)


def overhead_table(card: str, runs: Runs) -> str:
    """Return how much slower each job is alone with the hook, and what two runs without differ."""
    rows = []
    for job, alone in ((HIGH, _exclusive(LOADS[0])), (LOW, LOW_ALONE)):
        for name in (HOOKED, AGAIN):
            arm = next((arm for arm in runs if arm.name == name and arm.u == alone.u), None)
            if arm is None or alone not in runs:
                continue
            slower = mapped(ratio(_blocks(runs[arm], job), _blocks(runs[alone], job)), _slower)
            judged = HOOK_OVERHEAD[job].judge(100 * slower.value) if name == HOOKED else ""
            waits = _cpu_wait(runs[arm])
            rows.append((job, name, slower.percent(), waits, judged))
    return table(
        f"{card}: the hook of a job that is alone",
        ("job", "", "slower, %", "jobs wait for a CPU, %", "target"),
        rows,
    )


def losses_table(card: str, runs: Runs) -> str:
    """Return whether the losses of each job are the same, bit by bit, in all arms."""
    rows = []
    for job in (HIGH, LOW):
        found = [run.losses[job] for some in runs.values() for run in some if job in run.losses]
        steps, same = agreed(found)
        verdict = ("equal" if same else "DIFFERENT: MISS") if steps else "not measured"
        rows.append((job, str(len(found)), str(steps), verdict))
    head = ("job", "runs, with and without the hook", "steps compared, at most", "losses")
    return table(f"{card}: the losses of all steps, bit by bit", head, rows)


def group_table(card: str, runs: Mapping[str, Sequence[GroupOutcome]], seconds: float) -> str:
    """Return a row for each way in which the six jobs got the card."""
    head = (
        "way", "last job ends s", "change", "mean job ends s", "change", "card busy, %",
        "points more", "targets",
    )  # fmt: skip
    before = runs.get(ONE_BY_ONE.name, [])
    rows = []
    for name, some in runs.items():
        last, mean = [run.makespan for run in some], [_mean(run) for run in some]
        busy = [100 * run.busy for run in some]
        changes = ["", "", "", ""]
        if name != ONE_BY_ONE.name and before:
            pairs = list(zip(some, before, strict=False))
            sooner = fmean(100 * (run.makespan / old.makespan - 1) for run, old in pairs)
            changed = fmean(100 * (_mean(run) / _mean(old) - 1) for run, old in pairs)
            points = fmean(100 * (run.busy - old.busy) for run, old in pairs)
            judged = GROUP_COMPLETION.judge(sooner), GROUP_UTILISATION.judge(points)
            changes = [f"{sooner:+.0f} %", f"{changed:+.0f} %", f"{points:+.0f}", "; ".join(judged)]
        rows.append(
            (
                name,
                spread(last, digits=0),
                changes[0],
                spread(mean, digits=0),
                changes[1],
                spread(busy, digits=0),
                *changes[2:],
            )
        )
    repeats = min((len(some) for some in runs.values()), default=0)
    jobs = f"six jobs of {seconds:.0f} s each, three of each priority"
    return table(f"{card}: {jobs}, one card; repeats: {repeats}", head, rows)


def _exclusive(u: float) -> Arm:
    return Arm(EXCLUSIVE, u, low=False)


def _blocks(runs: Sequence[Outcome], job: str) -> Blocks:
    return [run.rates[job] for run in runs]


def _slower(part: float) -> float:
    return 1 / part - 1


def _preemption(runs: Sequence[Outcome]) -> tuple[str, str]:
    found = [1000 * seconds for run in runs for seconds in run.preempted]
    if not found:
        return "", ""
    return f"{quantile(found, 0.5):.1f}", f"{quantile(found, 0.99):.1f}"


def _micro_step(runs: Sequence[Outcome]) -> str:
    found = [1000 * run.micro_step for run in runs if run.micro_step is not None]
    return spread(found, digits=1) if found else ""


def _cpu_wait(runs: Sequence[Outcome]) -> str:
    return spread([100 * run.cpu_wait for run in runs], digits=0)


def _mean(outcome: GroupOutcome) -> float:
    return fmean(outcome.ended.values())
