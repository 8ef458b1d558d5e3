"""Which training jobs must end before a gang has what it needs of some nodes."""

import math
from collections.abc import Mapping

from kfext.core.queue.occupants import Need, Occupants

Ends = Mapping[str, float]
"""Uid of a running job -> its latest end, in epoch seconds; jobs with an unknown end are absent."""


def leavers(on: Occupants, needs: Mapping[str, Need], *, total: Need, ends: Ends) -> list[str]:
    """Have jobs leave, and return them: no more than needed, known ends first, else the smallest.

    `needs` is what a gang takes of each node, `total` what it takes of all.

    All that have what is exclusive to the gang must end.

    The smallest free hardly more than what is missing. Later jobs may use what is freed beyond
    that, and a long series of them must not starve the waiting job.
    """
    sizes = {uid: on.size(uid, total) for uid in on.held}
    chosen: list[str] = []
    for uid in sorted(on.held, key=lambda uid: (ends.get(uid, math.inf), sizes[uid], uid)):
        if uid in on.takers or any(on.helps(uid, node, needs[node]) for node in on.held[uid]):
            chosen.append(uid)
            on.leave(uid)
    if not all(on.holds(node, need) for node, need in needs.items()):
        return chosen
    for uid in sorted(set(chosen).difference(on.takers), key=lambda uid: (-sizes[uid], uid)):
        on.stay(uid)
        if all(on.holds(node, needs[node]) for node in on.held[uid]):
            chosen.remove(uid)
        else:
            on.leave(uid)
    return chosen
