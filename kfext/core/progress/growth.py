"""How much a job has gained in an interval: FlowCon's progress, with its defects mended.

The signed improvement instead of its absolute value, per interval instead of per second, relative
to the first window instead of the largest value seen, and 0 where it may be chance.
Source: Zheng et al., FlowCon, ICPP 2019.
"""

import math

from kfext.core.progress.vocabulary import Better
from kfext.core.progress.windows import Windows

_FEWEST = 2
"""Values of a window without which nothing is known of chance."""
_CERTAIN = 2.0
"""Standard errors by which a window must be better than the one before."""


def progress_of(windows: Windows, better: Better, *, now: float) -> float | None:
    """Return the progress P of the last window against the one before it, from 0 to 1.

    It is the improvement as a share of the first window's mean, 0 if it may be chance. None if one
    of the windows has too few values to tell, so that silence is not taken for an end of progress.
    """
    last, before = windows.mean(now), windows.mean(now - windows.seconds)
    if last is None or before is None or not windows.first:
        return None
    if min(last.count, before.count) < _FEWEST:
        return None
    gain = before.value - last.value if better is Better.LOWER else last.value - before.value
    if gain <= _CERTAIN * math.hypot(last.error, before.error):
        return 0.0
    return min(1.0, gain / abs(windows.first))
