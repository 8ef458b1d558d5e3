"""Why a job ended later than without the policy."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from kfext.sim.cluster import Ended
from tests.unit.sim.rules import Change

_WAITED = "it waited longer for its first step"


class Cause(StrEnum):
    """The cause of most of the added time; before the first step, the first cause."""

    KEPT = f"{_WAITED}: capacity was freed for an earlier job"
    GROWN = f"{_WAITED}: another job had grown"
    ORDER = f"{_WAITED}: jobs started in another order"
    PAUSED = "its changes of size stopped it for longer than they gained"
    REDONE = "it did steps again that were not saved"
    GAVE = "it gave workers to a job that waited"
    TRIED = "it grew, which did not make it faster"
    CROWDED = "its neighbours used cores that it used beyond its request"


def why_later(
    ended: Ended, without: Ended, changes: Sequence[Change], *, waited: Cause = Cause.ORDER
) -> Cause:
    """Return the cause of most of the time that a job lost.

    `changes`: the changes of its size. `waited`: the cause if it waited longer.
    """
    gave = any(change.gives for change in changes)
    slower = Cause.GAVE if gave else Cause.TRIED if changes else Cause.CROWDED
    redone = ended.redone - without.redone
    more = {
        waited: ended.began - without.began,
        Cause.PAUSED: ended.paused - without.paused,
        Cause.REDONE: redone,
        slower: ended.trained - without.trained - redone,
    }
    return max(more, key=lambda cause: more[cause])


def why_waited(
    name: str,
    changes: Mapping[str, Sequence[Change]],
    *,
    requested: Mapping[str, int],
    due: float,
    until: float,
) -> Cause:
    """Return why a job began at second `until`, and not at second `due` as without the policy.

    `changes`: job -> the changes of its size. `requested`: job -> its requested workers.
    """
    gifts = [
        change
        for changes_of_job in changes.values()
        for change in changes_of_job
        if change.gives and change.at <= until
    ]
    if any(name in change.behind for change in gifts):
        return Cause.KEPT
    others = (other for other in changes if other != name)
    if any(_had_grown(changes[other], requested[other], due=due, until=until) for other in others):
        return Cause.GROWN
    return Cause.ORDER


def _had_grown(changes: Sequence[Change], requested: int, *, due: float, until: float) -> bool:
    """Return whether a job had more workers than requested in these seconds."""
    ends = [change.at for change in changes[1:]] + [until]
    return any(
        change.after > requested and change.at < until and end > due
        for change, end in zip(changes, ends, strict=True)
    )
