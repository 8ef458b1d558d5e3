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
    CASES,
    DEAF,
    OWN_SETTINGS,
    TF,
    TF_GRACE,
    TORCH,
    TORCH_AGAIN,
    UNDISTURBED,
)
from e2e.bench.rescale.parts import Rescale, Story

Object = dict[str, Any]
Runs = Mapping[str, Sequence[Object]]
"""The stored runs of each case by its title, in order of repeats."""
_CASES = {case.title: case for case in CASES}
_STOOD_STILL = "training stood still"
_PHASES: Mapping[str, Callable[[Rescale], float]] = {
    "until kfext acts": lambda story: story.idle,
    "checkpoint": lambda story: story.checkpoint,
    "pods": lambda story: story.pods,
    "rendezvous": lambda story: story.rendezvous,
    "first step": lambda story: story.first_step,
    _STOOD_STILL: lambda story: story.stood_still,
    "a step usually": lambda story: story.usual,
}
_IMPROVEMENTS = (
    ("last call of 5 s, not torchrun's 30 s", TORCH, OWN_SETTINGS, "in", _STOOD_STILL),
    ("a checkpoint on request, not when the job likes", TORCH, DEAF, "in", "checkpoint"),
    ("a checkpoint on request, not when the job likes", TORCH, DEAF, "out", "checkpoint"),
    ("a grace of 2 s, not 30 s", TF, TF_GRACE, "in", "pods"),
    ("none (A/A)", TORCH, TORCH_AGAIN, "in", _STOOD_STILL),
    ("none (A/A)", TORCH, TORCH_AGAIN, "out", _STOOD_STILL),
)
"""Each improvement, the case with it, the case without it, and the phase that it shortens.

torchrun waits for its last call only below its largest size. SIGTERM ends it within any grace
period, but a TFJob's Python is process 1, so it uses the whole grace period.
"""


def guard_table(runs: Runs) -> str:
    """Return a table with a row for each case: the wait of the gang, by phase."""
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
                _spread(shrinks, _PHASES["until kfext acts"]),
                GUARD_ACTS.judge(median(shrink.idle for shrink in shrinks)),
                *(_spread(shrinks, _PHASES[key]) for key in ("checkpoint", "pods")),
                spread(to_bind, digits=1),
                GANG_BOUND.judge(median(to_bind)),
                spread([_waited(story) for story in stories], digits=1),
                str(len(stories)),
            )
        )
    return table("A gang waits for room that an elastic job has", head, rows)


def pause_table(runs: Runs) -> str:
    """Return a table with two rows for each case: the phases of its changes, in seconds.

    The pause of training has a target for PyTorchJobs only: the pause of torchrun without kfext.
    """
    head = ("job", "workers", *_PHASES, "target")
    rows = []
    for name, stories in _stories(runs).items():
        for direction in ("in", "out"):
            changes = _in_direction(stories, direction)
            sizes = f"{direction}, {changes[0].before} to {changes[0].after}"
            stood_still = median(change.stood_still for change in changes)
            by_torchrun = _CASES[name].kind == "PyTorchJob"
            judged = TORCHRUN_PAUSE[direction].judge(stood_still) if by_torchrun else ""
            figures = (_spread(changes, figure) for figure in _PHASES.values())
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
            reference = undisturbed[0]["loss"]
            worst = max(100 * abs(run["loss"] / reference - 1) for run in some)
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


def improvements_table(runs: Runs) -> str:
    """Return a table of the improvements: the phase of a rescale that each shortens, in seconds.

    The last column is the median difference of pairs of the same repeat.
    """
    stories, rows = _stories(runs), []
    for title, improved_case, plain_case, direction, phase in _IMPROVEMENTS:
        if {improved_case.title, plain_case.title} <= stories.keys():
            with_it, without_it = (
                [_PHASES[phase](change) for change in _in_direction(stories[case.title], direction)]
                for case in (improved_case, plain_case)
            )
            saved = median(old - new for new, old in zip(with_it, without_it, strict=False))
            figures = (spread(with_it, digits=1), spread(without_it, digits=1), f"{saved:.1f}")
            rows.append((title, direction, phase, *figures))
    head = ("improvement", "workers", "part", "with it", "without it", "saved")
    return table("Gains of improvements, in seconds", head, rows)


def _stories(runs: Runs) -> dict[str, list[Story]]:
    stories = {
        name: [Story.restore(run["story"]) for run in repeats if "story" in run]
        for name, repeats in runs.items()
    }
    return {name: repeats for name, repeats in stories.items() if repeats}


def _in_direction(stories: Sequence[Story], direction: str) -> list[Rescale]:
    return [story.shrink if direction == "in" else story.growth for story in stories]


def _spread(changes: Sequence[Rescale], figure: Callable[[Rescale], float]) -> str:
    return spread([figure(change) for change in changes], digits=1)


def _waited(story: Story) -> float:
    return story.shrink.idle + story.shrink.checkpoint + story.shrink.pods + story.to_bind
