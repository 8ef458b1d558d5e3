"""How much of a node each job on it may use: FlowCon's limits, with floors and without idling.

Source: Zheng et al., FlowCon, ICPP 2019, and its code. Published, a job that grows slowly has no
floor, so that it may get less than one that has converged.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kfext.core.companion.share_out import Part, share_out
from kfext.core.progress.reported import GrowthState


@dataclass(frozen=True, slots=True)
class Competitor:
    """A job on a node: its list, its G if known, and the least that its pods there need."""

    state: GrowthState
    growth: float | None
    least: int


def floor_of(size: int, jobs: int, least: int) -> int:
    """Return the cap below which a job never goes: 1/(n+1) of a node with n jobs, its requests."""
    return max(least, size // (jobs + 1))


def caps(size: int, competitors: Sequence[Competitor]) -> list[int | None]:
    """Return the cap of each job on a node of a size; None leaves a job as it is.

    A job may use the share of the node that it has in the growth of all jobs there. One on the list
    Watching stays as it is; if all are completing, none is restricted.
    """
    if all(one.state is GrowthState.COMPLETING for one in competitors):
        return [size] * len(competitors)
    total = sum(one.growth or 0.0 for one in competitors)
    return [
        None
        if one.growth is None or one.state is GrowthState.WATCHING or total <= 0
        else max(int(size * one.growth / total), floor_of(size, len(competitors), one.least))
        for one in competitors
    ]


def with_what_is_left(
    size: int, limits: Sequence[int], wants: Sequence[int], *, room: int
) -> list[int]:
    """Return caps that are raised by what other jobs leave of a node, in proportion to the caps.

    `wants`: what each would use without a cap. `room`: what all may use together, less than the
    size so that a job which leaves something can be told from one that is squeezed. If it is
    enough for all, no job that wants more is restricted.
    """
    hungry = [at for at, want in enumerate(wants) if want > limits[at]]
    left = room - sum(want for at, want in enumerate(wants) if want <= limits[at])
    raised = list(limits)
    if sum(wants[at] for at in hungry) <= left:
        for at in hungry:
            raised[at] = size
        return raised
    parts = [Part(weight=limits[at], least=limits[at], most=wants[at]) for at in hungry]
    for at, cap in zip(hungry, share_out(left, parts), strict=True):
        raised[at] = cap
    return raised
