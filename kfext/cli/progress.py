"""The progress of a job as its TrainingPlan has it, checked and bounded, for people to read."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from kfext.cli.output import age, plain
from kfext.core.progress.reported import GrowthState
from kfext.core.progress.visible import visible
from kfext.core.words import cpus
from kfext.errors import QuantityError
from kfext.model.quantity import CPU, amount
from kfext.model.timestamps import timestamp
from kfext.model.tolerant import mapping, text

_LONGEST_NAME = 24
"""Characters of the name of a metric, which comes from the job's log."""


def progress_in(status: Mapping[str, Any], *, now: float) -> dict[str, Any] | None:
    """Return the progress in the status of a TrainingPlan; None without a valid part of it.

    Parts that are absent or malformed are None, or an empty text. `now` is in epoch seconds.
    """
    raw = mapping(status.get("progress"))
    reported = timestamp(raw.get("time"))
    state = text(raw.get("state"))
    found = {
        "metric": _name(text(raw.get("metric"))),
        "value": _number(raw.get("value")),
        "step": _count(raw.get("step")),
        "totalSteps": _count(raw.get("totalSteps")),
        "stepsPerSecond": _number(raw.get("stepsPerSecond")),
        "secondsLeft": _count(raw.get("secondsLeft")),
        "growth": _number(raw.get("growth")),
        "state": state if state in set(GrowthState) else "",
        "cpuCores": _cores(raw.get("cpu")),
    }
    if not any(value not in {None, ""} for value in found.values()):
        return None
    return {**found, "ageSeconds": max(0, int(now - reported)) if reported else None}


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


def _number(raw: object) -> float | None:
    """Return a finite number, None for anything else."""
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return None
    return raw if math.isfinite(raw) else None


def _count(raw: object) -> int | None:
    return raw if type(raw) is int and raw >= 0 else None


def _cores(raw: object) -> float | None:
    try:
        return amount(CPU, raw) / 1000
    except QuantityError:
        return None
