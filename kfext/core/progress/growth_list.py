"""The growth efficiency of a job, and FlowCon's list that it is on.

G is the progress for the share of the node's CPU that was used. A job is on the list New while G is
at least a small part of its best so far; below it moves to Watching and then to Completing, one
list in an interval. Source: Zheng et al., FlowCon, ICPP 2019, with a threshold that is relative to
the job, so that it depends neither on the interval nor on the metric.
"""

import math

from kfext.core.progress.reported import GrowthState

ALPHA = 0.03
"""The part of its best G so far below which a job does not grow."""
_LEAST_SHARE = 0.05
"""A share that counts at least, so that starving a job does not make it look efficient."""
_WHOLE_NODE = 1.0
_NEXT = {
    GrowthState.NEW: GrowthState.WATCHING,
    GrowthState.WATCHING: GrowthState.COMPLETING,
    GrowthState.COMPLETING: GrowthState.COMPLETING,
}


def growth_efficiency(progress: float, share: float) -> float:
    """Return G for the progress P of an interval and the share R of the node's CPU, both 0 to 1."""
    return progress / max(share, _LEAST_SHARE)


class GrowthList:
    """Follows one job. `alpha`: the part of its best G so far below which it does not grow.

    `state`: the list that it is on. `growth`: its last G, None before one was known.
    """

    def __init__(self, alpha: float = ALPHA) -> None:
        self.state = GrowthState.NEW
        self.growth: float | None = None
        self._alpha = alpha
        self._best = 0.0
        self._share = _WHOLE_NODE

    def take(self, progress: float | None, share: float | None) -> None:
        """Take in an interval: its progress, and the share of the node's CPU that the job used.

        The last known share holds while none is known. An interval whose progress is not known
        changes nothing else: silence, NaN and a restart are no end of growth.
        """
        if share is not None and math.isfinite(share):
            self._share = share
        if progress is None or not math.isfinite(progress):
            return
        self.growth = growth_efficiency(progress, self._share)
        self._best = max(self._best, self.growth)
        grows = self.growth > 0 and self.growth >= self._alpha * self._best
        self.state = GrowthState.NEW if grows else _NEXT[self.state]
