"""The parts of a job's state about its sizes, moves and stops.

A job shows only its present number of workers and its present nodes. This state has the facts that
a new controller could not read there: the previous size, the cause of its change, the speed of the
job at each size, and its previous nodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kfext.model.bounds import cut
from kfext.model.plan import Assignment, decode_places, encode_places
from kfext.model.tolerant import mapping, text

MAX_SPEEDS = 16
"""The most sizes of a job with a remembered speed."""
_LONGEST_REASON = 200
_LARGEST = 2.0**40


@dataclass(frozen=True, slots=True)
class ScaleState:
    """The sizes of a job, in workers. Times are seconds since the epoch.

    `before`: the size before kfext's last change; 0 before the first change.
    `changed_at`: the time of that change.
    `cause`: its cause, a value of state.running.proposal.Cause; empty after the change is over.
    `largest`: the largest size that was seen running.
    `failed`: the smallest size that was not worth scaling up to; 0 if none is known.
    `pause`: the seconds that the last change stopped the training; before the first change an
        estimate (see state.scale_search); 0.0 while unknown.
    `speeds`: steps per second by size.
    `disabled`: why the policy is disabled for the job; empty if it is not.
    """

    before: int = 0
    changed_at: float = 0.0
    cause: str = ""
    largest: int = 0
    failed: int = 0
    pause: float = 0.0
    speeds: Mapping[int, float] = field(default_factory=dict)
    disabled: str = ""

    def encode(self, *, longest: int = _LONGEST_REASON) -> dict[str, object]:
        """Return the non-empty values as a JSON object, with the reason cut to `longest` bytes."""
        values = {
            "before": self.before,
            "changedAt": round(self.changed_at, 3),
            "cause": self.cause,
            "largest": self.largest,
            "failed": self.failed,
            "pause": round(self.pause, 1),
            "speeds": {
                str(size): float(f"{speed:.4g}")
                for size, speed in sorted(self.speeds.items())[:MAX_SPEEDS]
            },
            "rests": cut(self.disabled, most=min(longest, _LONGEST_REASON))
            if self.disabled
            else "",
        }
        return {key: value for key, value in values.items() if value}


def decode_scale(raw: Mapping[str, object]) -> ScaleState:
    """Return the state in a JSON object, without damaged values. Never raises."""
    speeds = {
        int(size): speed
        for size, value in list(mapping(raw.get("speeds")).items())[:MAX_SPEEDS]
        if isinstance(size, str) and size.isdecimal() and len(size) < 6
        if (speed := state_number(value)) > 0
    }
    return ScaleState(
        before=int(state_number(raw.get("before"))),
        changed_at=state_number(raw.get("changedAt")),
        cause=text(raw.get("cause")),
        largest=int(state_number(raw.get("largest"))),
        failed=int(state_number(raw.get("failed"))),
        pause=state_number(raw.get("pause")),
        speeds=speeds,
        disabled=text(raw.get("rests")),
    )


@dataclass(frozen=True, slots=True)
class MoveState:
    """The last move of a job.

    `at`: when kfext stopped the job for it, in seconds since the epoch; 0.0 before the first move.
    `before`: the number of nodes before the move.
    `source`: the nodes before the move; empty after the pods are placed again.
    """

    at: float = 0.0
    before: int = 0
    source: Assignment = field(default_factory=dict)

    def encode(self) -> dict[str, object]:
        """Return the non-empty values as a JSON object."""
        source = encode_places(self.source) if self.source else {}
        move = {"at": round(self.at, 3), "before": self.before} if self.at else {}
        return {**move, **source}


def decode_move(raw: Mapping[str, object]) -> MoveState:
    """Return the move in a JSON object, without damaged values. Never raises."""
    source = decode_places(raw) if raw else {}
    return MoveState(state_number(raw.get("at")), int(state_number(raw.get("before"))), source)


@dataclass(frozen=True, slots=True)
class StopState:
    """The last time that kfext stopped a job for other jobs.

    `at`: that time in seconds since the epoch; 0.0 before the first stop.
    `count`: the number of such stops so far.
    `waiting`: the uid of the job it was stopped for; empty after the stopped job is placed again.
    `places`: the planned nodes of that job; empty together with `waiting`.
    `restarts`: the number of times that the job was stopped because it was stalled.
    """

    at: float = 0.0
    count: int = 0
    waiting: str = ""
    places: Assignment = field(default_factory=dict)
    restarts: int = 0

    def encode(self) -> dict[str, object]:
        """Return the non-empty values as a JSON object."""
        counts = {"count": self.count, "for": self.waiting, "restarts": self.restarts}
        values = {"at": round(self.at, 3), **counts}
        places = encode_places(self.places) if self.places else {}
        return {**{key: value for key, value in values.items() if value}, **places}


def decode_stop(raw: Mapping[str, object]) -> StopState:
    """Return the stop in a JSON object, without damaged values. Never raises."""
    places = decode_places(raw) if raw else {}
    at, count = state_number(raw.get("at")), int(state_number(raw.get("count")))
    restarts = int(state_number(raw.get("restarts")))
    return StopState(at, count, text(raw.get("for")), places, restarts)


def state_number(value: object) -> float:
    """Return a non-negative number, or 0.0 for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 <= value <= _LARGEST else 0.0
