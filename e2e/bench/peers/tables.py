"""What the comparison prints: a table per workload, who says why, and where Kueue is better."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from e2e.bench.peers.kueue import VERSION
from e2e.bench.peers.runs import Run
from e2e.bench.peers.whynot import Answer
from e2e.bench.report import quantile, spread, table
from e2e.bench.targets import GANGS_TO_KUEUE, GANGS_TO_PLAIN, WAIT_TO_KUEUE, WHY_NOT

_GATING = ("kueue", "kfext")
_WHO = {
    "plain": "plain Kubernetes",
    "affinity": "pod affinity, preferred",
    "kueue": f"Kueue {VERSION}, TAS",
    "kfext": "kfext",
}


@dataclass(frozen=True, slots=True)
class Workload:
    """Gangs of `pods` pods that are submitted at once, and the runs of each arm so far."""

    title: str
    gangs: int
    pods: int
    runs: dict[str, list[Run]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Figure:
    """A column; `better` is 1 where greater is better, -1 where smaller is."""

    head: str
    of: Callable[[Run], float]
    digits: int = 2
    better: int = -1
    gated: bool = False


_FIGURES = (
    _Figure("created s", lambda run: run.created),
    _Figure("ungated s", lambda run: run.ungated, gated=True),
    _Figure("bound s", lambda run: run.bound),
    _Figure("created to ungated p50 s", lambda run: quantile(run.waits, 0.5), gated=True),
    _Figure("p99 s", lambda run: quantile(run.waits, 0.99), gated=True),
    _Figure("gangs/s", lambda run: run.rate, better=1),
    _Figure("nodes per job", lambda run: run.nodes),
    _Figure("own CPU s", lambda run: run.own_cpu, gated=True),
    _Figure("all CPU s", lambda run: run.all_cpu, digits=1),
)


def of(
    one: Workload, many: Workload, tight: Workload, answers: Mapping[str, Sequence[Answer]]
) -> str:
    """Return everything that is printed."""
    waits = _ratio(one, "kueue", "kfext", lambda run: quantile(run.waits, 0.5))
    plain = _ratio(many, "kfext", "plain", lambda run: run.rate)
    kueue = _ratio(many, "kfext", "kueue", lambda run: run.rate)
    judged = [
        f"- One gang, last created to last ungated, Kueue / kfext: {waits:.2f} "
        f"({WAIT_TO_KUEUE.judge(waits)}).",
        f"- {many.gangs} gangs, gangs/s, kfext / plain: {plain:.2f} "
        f"({GANGS_TO_PLAIN.judge(plain)}).",
        f"- {many.gangs} gangs, gangs/s, kfext / Kueue: {kueue:.2f} "
        f"({GANGS_TO_KUEUE.judge(kueue)}).",
    ]
    return "\n\n".join(
        [
            *(_workload(workload) for workload in (one, many, tight)),
            _why_not(answers),
            "Targets, from medians:\n\n" + "\n".join(judged),
            _better(one, many, tight, answers),
        ]
    )


def _workload(workload: Workload) -> str:
    repeats = len(next(iter(workload.runs.values())))
    rows = [
        (
            _WHO[name],
            *(
                spread([figure.of(run) for run in of], digits=figure.digits)
                if name in _GATING or not figure.gated
                else "-"
                for figure in _FIGURES
            ),
        )
        for name, of in workload.runs.items()
    ]
    heads = ("who", *(figure.head for figure in _FIGURES))
    plural = "s" if repeats > 1 else ""
    return table(f"{workload.title}; {repeats} repeat{plural}", heads, rows)


def _why_not(answers: Mapping[str, Sequence[Answer]]) -> str:
    rows = []
    for name, given in answers.items():
        seconds = [answer.seconds for answer in given]
        judged = f" {WHY_NOT.judge(median(seconds))}" if name == "kfext" else ""
        held = spread([answer.held for answer in given], digits=0)
        rows.append((_WHO[name], spread(seconds) + judged, held, given[-1].reason))
    return table(
        "Why does a gang not start that needs one node more than there are?",
        ("who", "seconds until it is said", "GPUs held in vain 2 s later", "what is said"),
        rows,
    )


def _ratio(workload: Workload, above: str, below: str, of: Callable[[Run], float]) -> float:
    return median(map(of, workload.runs[above])) / median(map(of, workload.runs[below]))


def _better(
    one: Workload, many: Workload, tight: Workload, answers: Mapping[str, Sequence[Answer]]
) -> str:
    """Say in which columns the median of Kueue is better than that of kfext."""
    found = []
    for workload in (one, many, tight):
        for figure in _FIGURES:
            kueue, kfext = (median(map(figure.of, workload.runs[name])) for name in _GATING)
            if figure.better * (kueue - kfext) > 0:
                figures = f"{kueue:.{figure.digits}f} against {kfext:.{figure.digits}f}"
                found.append(f"{workload.gangs} x {workload.pods}: {figure.head} {figures}")
    said = [median(answer.seconds for answer in answers[name]) for name in _GATING]
    if said[0] < said[1]:
        found.append(f"seconds until the reason is said {said[0]:.2f} against {said[1]:.2f}")
    return "Where Kueue is better than kfext: " + ("; ".join(found) or "nowhere") + "."
