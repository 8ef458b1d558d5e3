"""Tables of the runs: medians and ranges of the repeats, by case."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from e2e.bench.report import (
    GANG_BOUND,
    GUARD_ACTS,
    LOSS_TOLERANCE,
    LOST_STEPS,
    TORCHRUN_PAUSE,
    spread,
    table,
)
from e2e.bench.rescale.cases import (
    AGAIN,
    CASES,
    DEAF,
    OWN_SETTINGS,
    TF,
    TF_GRACE,
    TORCH,
    UNDISTURBED,
)
from e2e.bench.rescale.parts import Rescale, Story

Object = dict[str, Any]
Runs = Mapping[str, Sequence[Object]]
"""The stored runs of each case, by its title and by repeat."""
_CASES = {case.title: case for case in CASES}
_STILL = "training stood still"
_FIGURES: Mapping[str, Callable[[Rescale], float]] = {
    "until kfext acts": lambda story: story.idle,
    "checkpoint": lambda story: story.checkpoint,
    "pods": lambda story: story.pods,
    "rendezvous": lambda story: story.rendezvous,
    "first step": lambda story: story.first_step,
    _STILL: lambda story: story.stood_still,
    "a step usually": lambda story: story.usual,
}
_BOUGHT = (
    ("last call of 5 s, not torchrun's 30 s", TORCH, OWN_SETTINGS, "in", _STILL),
    ("a checkpoint on request, not when the job likes", TORCH, DEAF, "in", "checkpoint"),
    ("a checkpoint on request, not when the job likes", TORCH, DEAF, "out", "checkpoint"),
    ("a grace of 2 s, not 30 s", TF, TF_GRACE, "in", "pods"),
    ("none (A/A)", TORCH, AGAIN, "in", _STILL),
    ("none (A/A)", TORCH, AGAIN, "out", _STILL),
)
"""An improvement, the cases with it and without it, and the part of a rescale that it shortens.

torchrun waits for its last call only below its largest size, and SIGTERM ends it within any grace
period; a TFJob's Python is process 1 and uses all of it.
"""


def guard_table(runs: Runs) -> str:
    """Return a table with a row for each case: the wait of the gang, by part."""
    head = (
        "job", "gang comes to kfext acts s", "target", "checkpoint s", "pods end s",
        "last one gone to gang bound s", "target", "gang comes to bound s", "repeats",
    )  # fmt: skip
    rows = []
    for name, stories in _stories(runs).items():
        shrinks = [story.shrink for story in stories]
        to_bind = [story.to_bind for story in stories]
        rows.append(
            (
                name,
                _spread(shrinks, _FIGURES["until kfext acts"]),
                GUARD_ACTS.judge(median(shrink.idle for shrink in shrinks)),
                *(_spread(shrinks, _FIGURES[key]) for key in ("checkpoint", "pods")),
                spread(to_bind, digits=1),
                GANG_BOUND.judge(median(to_bind)),
                spread([_waited(story) for story in stories], digits=1),
                str(len(stories)),
            )
        )
    return table("A gang waits for room that an elastic job has", head, rows)


def pause_table(runs: Runs) -> str:
    """Return a table with two rows for each case: the parts of its changes, in seconds.

    The pause of training is judged where torchrun does the same by itself.
    """
    head = ("job", "workers", *_FIGURES, "target")
    rows = []
    for name, stories in _stories(runs).items():
        for way in ("in", "out"):
            changes = _ways(stories, way)
            sizes = f"{way}, {changes[0].before} to {changes[0].after}"
            still = median(change.stood_still for change in changes)
            by_torchrun = _CASES[name].kind == "PyTorchJob"
            judged = TORCHRUN_PAUSE[way].judge(still) if by_torchrun else ""
            figures = (_spread(changes, figure) for figure in _FIGURES.values())
            rows.append((name, sizes, *figures, judged))
    return table("The parts of a rescale, in seconds", head, rows)


def work_table(runs: Runs) -> str:
    """Return a table with a row for each case: its restarts, repeated steps and loss."""
    head = (
        "job", "restarts", "repeated steps", "resumed before a saved step", "target",
        "last loss", "off an undisturbed run by", "target", "runs that did not count",
    )  # fmt: skip
    rows = []
    for name, some in runs.items():
        lost = [float(run["lost"]) for run in some]
        undisturbed = runs.get(UNDISTURBED[_CASES[name].kind].title)
        off, judged = "", ""
        if undisturbed and _CASES[name].disturbed:
            least = undisturbed[0]["loss"]
            worst = max(100 * abs(run["loss"] / least - 1) for run in some)
            off, judged = f"{worst:.2f} %", LOSS_TOLERANCE[_CASES[name].kind].judge(worst)
        rows.append(
            (
                name,
                spread([run["resumes"] for run in some], digits=0),
                spread([run["redone"] for run in some], digits=0),
                spread(lost, digits=0),
                LOST_STEPS.judge(max(lost)),
                f"{median(run['loss'] for run in some):.4f}",
                off,
                judged,
                str(sum(run.get("spoiled", 0) for run in some)),
            )
        )
    return table("The work of the jobs", head, rows)


def bought_table(runs: Runs) -> str:
    """Return a table of the improvements: the part of a rescale that each shortens, in seconds.

    The last column is the median difference of pairs of the same repeat.
    """
    stories, rows = _stories(runs), []
    for title, first, other, way, part in _BOUGHT:
        if {first.title, other.title} <= stories.keys():
            ours, without = (
                [_FIGURES[part](change) for change in _ways(stories[case.title], way)]
                for case in (first, other)
            )
            saved = median(old - new for new, old in zip(ours, without, strict=False))
            figures = (spread(ours, digits=1), spread(without, digits=1), f"{saved:.1f}")
            rows.append((title, way, part, *figures))
    head = ("improvement", "workers", "part", "with it", "without it", "saved")
    return table("Gains of improvements, in seconds", head, rows)


def _stories(runs: Runs) -> dict[str, list[Story]]:
    """Return the runs of each case with the gang."""
    stories = {
        name: [Story.restore(run["story"]) for run in some if "story" in run]
        for name, some in runs.items()
    }
    return {name: some for name, some in stories.items() if some}


def _ways(stories: Sequence[Story], way: str) -> list[Rescale]:
    return [story.shrink if way == "in" else story.growth for story in stories]


def _spread(changes: Sequence[Rescale], figure: Callable[[Rescale], float]) -> str:
    return spread([figure(change) for change in changes], digits=1)


def _waited(story: Story) -> float:
    return story.shrink.idle + story.shrink.checkpoint + story.shrink.pods + story.to_bind
