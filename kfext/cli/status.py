"""What the status of a TrainingPlan shows of a running job, for people to read.

Its progress, bounded, since the job itself may write it; and what the companion does to the job.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from kfext import names
from kfext.cli.output import age, plain, short
from kfext.core.progress.fields import visible
from kfext.core.progress.reported import decode_progress
from kfext.core.words import CLAUSE, cpus
from kfext.model.tolerant import mapping, sequence

_LONGEST_NAME = 24
"""Characters of the name of a metric, which comes from the job's log."""
LINES = {names.RESIZED: "resize", names.SCALED: "scale"}
"""What `explain` calls a condition of the companion."""
_RESIZED = {
    names.REASON_CPU_MOVED: "kfext changed CPU limits",
    names.REASON_WOULD_MOVE: "kfext would change CPU limits, and only shows it",
    names.REASON_NOTHING_TO_MOVE: "kfext changes no CPU limit",
    names.REASON_STANDS_DOWN: "kfext cannot change CPU limits for now",
    names.REASON_RESTS: "kfext leaves the CPU limits alone from now on",
    names.REASON_RESIZE_REFUSED: "a change of CPU limits was refused",
    names.REASON_TOO_EARLY: "it is too early to change CPU limits",
    names.REASON_CPU_RESTORED: "the CPU limits are those of the job again",
}
_SCALED = {
    names.REASON_AS_ASKED: "the number of workers is as asked for",
    names.REASON_SHRUNK: "it has fewer workers than it asked for",
    names.REASON_GROWN: "kfext gave it workers",
    names.REASON_RESCALING: "kfext is changing the number of workers",
    names.REASON_AWAITS_CHECKPOINT: "another number of workers needs a checkpoint first",
    names.REASON_NO_CHECKPOINT: "kfext cannot change the number of workers for now",
    names.REASON_WOULD_SCALE: "kfext would change the number of workers, and only shows it",
    names.REASON_STANDS_DOWN: "kfext cannot change the number of workers for now",
    names.REASON_RESTS: "kfext leaves the number of workers alone from now on",
    names.REASON_SCALE_REFUSED: "another number of workers was refused",
}


def condition_in_words(condition: Mapping[str, str]) -> str:
    """Return a condition of the companion as a sentence: what kfext does or would do, and why."""
    reason, holds = condition["reason"], condition["status"] == "True"
    resized = condition["type"] == names.RESIZED
    # That a limit is still another one must not be hidden behind why nothing more is done.
    hidden = resized and holds and reason != names.REASON_CPU_MOVED
    still = "; limits that it changed before stay" if hidden else ""
    what = f"{(_RESIZED if resized else _SCALED).get(reason, reason)}{still}"
    return CLAUSE.join(filter(None, (what, condition["message"])))


def is_resized(status: Mapping[str, Any]) -> bool:
    """Return whether the status of a TrainingPlan shows other CPU limits than the user wrote."""
    conditions = map(mapping, sequence(status.get("conditions")))
    return any(
        one.get("type") == names.RESIZED and one.get("status") == "True" for one in conditions
    )


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


def progress_in_words(progress: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield at most two sentences: how far the job is, and how it grows."""
    if progress is None:
        return
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


def _name(raw: str) -> str:
    name = " ".join(plain(visible(raw)).split())
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
