"""The conditions of TrainingPlans, each with the time of its last change."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kfext.model.timestamps import written_time
from kfext.model.tolerant import mapping, sequence, text


@dataclass(frozen=True, slots=True)
class Mark:
    """One condition in the cluster; `since` is when it last changed, as the API writes it."""

    type: str
    holds: bool
    since: str


def decode_marks(written: object) -> tuple[Mark, ...]:
    """Return the conditions of a status; total, whatever the input."""
    return tuple(
        Mark(
            type=text(one.get("type")),
            holds=one.get("status") == "True",
            since=text(one.get("lastTransitionTime")),
        )
        for one in map(mapping, sequence(written))
    )


class Conditions:
    """Remembers per job when each condition last changed; `wall` returns epoch seconds."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._known: dict[str, dict[str, Mark]] = {}

    def observe(self, uid: str, marks: Iterable[Mark]) -> None:
        """Take in the present conditions of a job's TrainingPlan."""
        self._known.setdefault(uid, {}).update({one.type: one for one in marks if one.since})

    def forget(self, uid: str) -> None:
        """Take in that a job is gone."""
        self._known.pop(uid, None)

    def state(
        self, uid: str, type_: str, *, holds: bool, reason: str, message: str
    ) -> dict[str, Any]:
        """Return a condition as the API wants it; its time changes only with its status."""
        known = self._known.setdefault(uid, {})
        mark = known.get(type_)
        if mark is None or mark.holds is not holds:
            now = written_time(self._wall())
            mark = known[type_] = Mark(type_, holds, now)
        return {
            "type": type_,
            "status": "True" if holds else "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": mark.since,
        }
