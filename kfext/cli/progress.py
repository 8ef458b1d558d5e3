"""The progress of a job as its TrainingPlan has it, bounded, for people to read."""

from collections.abc import Iterator, Mapping
from typing import Any

from kfext.cli.output import age, plain
from kfext.core.progress.reported import decode_progress
from kfext.core.progress.visible import visible
from kfext.core.words import cpus

_LONGEST_NAME = 24
"""Characters of the name of a metric, which comes from the job's log."""


def progress_in(status: Mapping[str, Any], *, now: float) -> dict[str, Any] | None:
    """Return the progress in the status of a TrainingPlan; None without a valid part of it.

    Parts that are absent or malformed are None, or an empty text. `now` is in epoch seconds.
    """
    reported = decode_progress(status.get("progress"), {})
    if reported is None:
        return None
    progress = reported.progress
    found = {
        "metric": _name(progress.metric),
        "value": progress.value,
        "step": progress.step,
        "totalSteps": progress.total,
        "stepsPerSecond": progress.rate,
        "secondsLeft": None if progress.left is None else int(progress.left),
        "growth": reported.growth,
        "state": reported.state.value if reported.state else "",
        "cpuCores": reported.cpu,
    }
    if not any(value not in {None, ""} for value in found.values()):
        return None
    return {**found, "ageSeconds": max(0, int(now - progress.at)) if progress.at else None}


def in_words(progress: Mapping[str, Any]) -> Iterator[str]:
    """Yield one or two sentences: how far the job is, and how it grows."""
    reported = f"{age(progress['ageSeconds'])} ago" if progress["ageSeconds"] is not None else ""
    rate, left = progress["stepsPerSecond"], progress["secondsLeft"]
    parts = [
        f"{progress['metric']} {short(progress['value'])}".strip(),
        f"step {steps(progress, of=' of ')}" if progress["step"] is not None else "",
        f"{short(rate)} a second" if rate else "",
        f"{age(left)} left" if left is not None else "",
    ]
    if far := ", ".join(filter(None, parts)):
        yield f"{far} ({reported})" if reported else far
    growth, cores = progress["growth"], progress["cpuCores"]
    parts = [
        f"growth {short(growth)}" if growth is not None else "",
        progress["state"],
        f"uses {cpus(round(1000 * cores))}" if cores is not None else "",
    ]
    if grows := ", ".join(filter(None, parts)):
        yield grows


def steps(progress: Mapping[str, Any], *, of: str = "/") -> str:
    """Return the step, and the total if it is known, as 40/100."""
    if progress["step"] is None:
        return ""
    total = "" if progress["totalSteps"] is None else f"{of}{progress['totalSteps']}"
    return f"{progress['step']}{total}"


def short(value: float | None) -> str:
    """Return a number with four digits, nothing for None."""
    return "" if value is None else f"{value:.4g}"


def _name(raw: str) -> str:
    name = " ".join(plain(visible(raw)).split())
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
