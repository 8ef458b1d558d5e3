"""Tables of the runs, with ratios and their intervals, and whether losses agree."""

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
    PAUSES,
    Arm,
    Outcome,
    exclusive,
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
_WAITS = ("blocks", "polls")
"""The waits of `wakes.py`."""
_SPANS = tuple(
    f"{before} to {after}" for before, after in ((HIGH, LOW), (LOW, LOW), (LOW, HIGH), (HIGH, HIGH))
)
_DRAWS = 2000
_SEED = 1
_Array = np.ndarray[Any, Any]
Runs = Mapping[Arm, Sequence[Outcome]]
"""The outcomes of each arm, by repeat."""


def agreed(runs: Iterable[Mapping[str, str]]) -> tuple[int, bool]:
    """Return the last step at which two or more runs were compared, and whether all agree."""
    seen: dict[int, list[str]] = {}
    for run in runs:
        for count, digest in run.items():
            seen.setdefault(int(count), []).append(digest)
    compared = {count: same for count, same in seen.items() if len(same) > 1}
    return max(compared, default=0), all(len({*same}) == 1 for same in compared.values())


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its interval of 95 %."""

    value: float
    low: float
    high: float

    def percent(self) -> str:
        """Return it in percent, e.g. `2.5 (1.9 to 3.2)`."""
        return f"{100 * self.value:.1f} ({100 * self.low:.1f} to {100 * self.high:.1f})"


def ratio(arm: Blocks, reference: Blocks) -> Estimate:
    """Return the mean of an arm divided by the reference's, and a bootstrap interval.

    Repeats are drawn, the same for both arms, and then their seconds (A. Davison and
    D. Hinkley, "Bootstrap Methods and their Application", 1997, 3.8).
    """
    pairs = [(np.array(own), np.array(other)) for own, other in zip(arm, reference, strict=False)]
    draw = np.random.default_rng(_SEED)

    def means(pair: tuple[_Array, _Array]) -> tuple[float, float]:
        own, other = (values[draw.integers(len(values), size=len(values))] for values in pair)
        return own.mean(), other.mean()

    drawn = []
    for _ in range(_DRAWS):
        chosen = [means(pairs[index]) for index in draw.integers(len(pairs), size=len(pairs))]
        drawn.append(sum(own for own, _ in chosen) / sum(other for _, other in chosen))
    value = sum(own.mean() for own, _ in pairs) / sum(other.mean() for _, other in pairs)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Estimate(float(value), float(low), float(high))


def mapped(estimate: Estimate, function: Callable[[float], float]) -> Estimate:
    """Return the estimate of a monotonic function of a figure."""
    ends = sorted((function(estimate.low), function(estimate.high)))
    return Estimate(function(estimate.value), *ends)


def bound(high: float, low: float) -> float:
    """Return the largest share of low without a loss for high, by the busy part of each alone."""
    return min(1.0, (1 - high) / low)


def all_of(card: str, runs: Runs, seconds: float) -> str:
    """Return all tables; `seconds`: the length of a window."""
    tables = [
        shares_table(card, runs, u, pauses, seconds)
        for pauses in PAUSES
        for u in LOADS
        if {exclusive(u, pauses), LOW_ALONE} <= runs.keys()
    ]
    if any(arm.name == HOOKED for arm in runs):
        tables.append(overhead_table(card, runs))
    return "\n\n".join([*tables, losses_table(card, runs)])


def shares_table(card: str, runs: Runs, u: float, pauses: str, seconds: float) -> str:
    """Return a table with a row for each arm of two jobs, for this job of high priority."""
    head = (
        "arm", "high loses, %", "low share, %", "low share / bound", "preemption p50 ms", "p99 ms",
        "longest micro-step ms", "gates a second", "blocking wake p50 ms", "p99 ms",
        "CPU of high, %", "CPU of low, %", "card busy, %", "jobs wait for a CPU, %",
        "rest: before / between / after low's work / without it", "targets",
    )  # fmt: skip
    alone, low_alone = runs[exclusive(u, pauses)], runs[LOW_ALONE]
    high_busy, low_busy = (fmean(run.busy for run in some) for some in (alone, low_alone))
    most = bound(high_busy, low_busy)
    rows = []
    for arm, some in runs.items():
        if (arm.u, arm.pauses) != (u, pauses) or arm.name in {EXCLUSIVE, HOOKED}:
            continue
        loss = mapped(ratio(_blocks(some, HIGH), _blocks(alone, HIGH)), lambda part: 1 - part)
        cells = [arm.name, loss.percent(), *[""] * 10]
        targets = ""
        if arm.low:
            share = ratio(_blocks(some, LOW), _blocks(low_alone, LOW))
            efficiency = mapped(share, lambda part: part / most)
            shown = f"{efficiency.value:.2f} ({efficiency.low:.2f} to {efficiency.high:.2f})"
            gates = _spread([run.gates for run in some], digits=0)
            cells[2:10] = [
                share.percent(), shown, *_times(run.preempted for run in some), _micro_step(some),
                gates, *_times(run.wakes for run in some),
            ]  # fmt: skip
            if arm.sharing is not None:
                judged = [HIGH_LOSS.judge(100 * loss.value)]
                if u in LOW_EFFICIENCY:
                    judged.append(LOW_EFFICIENCY[u].judge(efficiency.value))
                targets = "; ".join(judged)
        cells[10:] = [_cpu(some, HIGH), _cpu(some, LOW)]
        busy = f"{100 * fmean(run.busy for run in some):.0f}"
        rest = _rest(some, 1 - high_busy)
        rows.append((*cells, busy, _cpu_wait(some), rest, targets))
    repeats = min(len(some) for arm, some in runs.items() if (arm.u, arm.pauses) == (u, pauses))
    title = (
        f"{card}, {pauses} pauses, u_h {high_busy:.2f}, u_l {low_busy:.2f}, bound "
        f"{100 * most:.0f} %; repeats: {repeats} of {seconds:.0f} s; in brackets the interval of "
        f"95 %"
    )
    return table(title, head, rows)


def wakes_table(card: str, lines: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the delays of a waiting thread, and the costs of a gate."""
    lengths = [line for line in lines if "ms" in line]
    rows = [
        (f"{line['ms']:g}", *(f"{late:.0f}" for how in _WAITS for late in line[how]))
        for line in lengths
    ]
    costs = {name: cost for line in lines if "ms" not in line for name, cost in line.items()}
    title = (
        f"{card}: microseconds until a thread wakes; a gate takes {costs['gate_us']:.0f}, the "
        f"Python of an optimizer's step {costs['optimizer_us']:.0f}"
    )
    head = ("work, ms", *(f"{how}, {part}" for how in _WAITS for part in ("p50", "p90", "p99")))
    return table(title, head, rows)


def cluster_table(card: str, outcomes: Mapping[str, Any]) -> str:
    """Return a table with a row for each trial of the GPU demo, with the sharers shown by kfext."""
    alone = outcomes["alone"].step
    rows = [
        (
            name,
            f"{1000 * outcome.step:.1f}",
            f"{100 * (outcome.step / alone - 1):.1f}",
            "unknown" if outcome.other is None else f"{100 * outcome.other:.0f}",
            outcome.slot["status"]["card"],
            outcome.shown,
        )
        for name, outcome in outcomes.items()
    ]
    head = (
        "high trains",
        "step, ms",
        "slower, %",
        "low uses of the card, %",
        "card",
        "kfext shows",
    )
    return table(f"kubelet, plugin, reservation, agent and two jobs on {card}", head, rows)


def overhead_table(card: str, runs: Runs) -> str:
    """Return a table of the slowdown of each lone job by the hook, and of equal runs without it."""
    rows = []
    for job, alone in ((HIGH, exclusive(LOADS[0])), (LOW, LOW_ALONE)):
        for name in (HOOKED, AGAIN):
            arm = next((arm for arm in runs if arm.name == name and arm.u == alone.u), None)
            if arm is None or alone not in runs:
                continue
            slower = mapped(ratio(_blocks(runs[arm], job), _blocks(runs[alone], job)), _slower)
            judged = HOOK_OVERHEAD.judge(100 * slower.value) if name == HOOKED else ""
            used = (_cpu(runs[arm], job), _cpu(runs[alone], job))
            rows.append((job, name, slower.percent(), *used, _cpu_wait(runs[arm]), judged))
    head = ("job", "", "slower, %", "CPU, %", "without, %", "jobs wait for a CPU, %", "target")
    return table(f"{card}: the hook of a job that is alone", head, rows)


def losses_table(card: str, runs: Runs) -> str:
    """Return a table of whether the losses of each job are equal, bit by bit, in all arms."""
    rows = []
    for job in (HIGH, LOW):
        losses = [run.losses[job] for some in runs.values() for run in some if job in run.losses]
        steps, same = agreed(losses)
        verdict = ("equal" if same else "DIFFERENT: MISS") if steps else "not measured"
        rows.append((job, str(len(losses)), str(steps), verdict))
    head = ("job", "runs, with and without the hook", "steps compared, at most", "losses")
    return table(f"{card}: the losses of all steps, bit by bit", head, rows)


def group_table(card: str, runs: Mapping[str, Sequence[GroupOutcome]], seconds: float) -> str:
    """Return a table with a row for each way to share the card between six jobs."""
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


def _blocks(runs: Sequence[Outcome], job: str) -> Blocks:
    return [run.rates[job] for run in runs]


def _slower(part: float) -> float:
    return 1 / part - 1


def _times(runs: Iterable[Sequence[float]]) -> tuple[str, str]:
    """Return the median and the p99 of times, in milliseconds."""
    times = [1000 * seconds for run in runs for seconds in run]
    if not times:
        return "", ""
    return f"{quantile(times, 0.5):.1f}", f"{quantile(times, 0.99):.1f}"


def _micro_step(runs: Sequence[Outcome]) -> str:
    return _spread([run.micro_step for run in runs], digits=1, scale=1000)


def _rest(runs: Sequence[Outcome], pauses: float) -> str:
    """Return the fractions of high's pauses in which the card is idle."""
    if not all(run.idle for run in runs):
        return ""
    means = [fmean(run.idle.get(span, 0.0) for run in runs) / pauses for span in _SPANS]
    return " / ".join(f"{mean:.2f}" for mean in means)


def _cpu(runs: Sequence[Outcome], job: str) -> str:
    return _spread([run.cpu.get(job) for run in runs], digits=0, scale=100)


def _cpu_wait(runs: Sequence[Outcome]) -> str:
    return _spread([run.cpu_wait for run in runs], digits=0, scale=100)


def _spread(values: Iterable[float | None], *, digits: int, scale: float = 1.0) -> str:
    known = [scale * value for value in values if value is not None]
    return spread(known, digits=digits) if known else ""


def _mean(outcome: GroupOutcome) -> float:
    return fmean(outcome.ended.values())
