"""The expected duration of a job and its remaining time, in seconds.

The best source counts: the progress of the job, else ended jobs of its series, else a constant.
"""

import math

from kfext.core.progress.reported import LATE

START_SECONDS = 30.0
"""From the start of a job to its first step, if that is not known of the job."""
USUAL_SECONDS = 300.0
"""The length of a job without progress, in a cluster without an ended job."""
_LEAST_LEFT = 0.2
"""The remaining part of the duration of a job that has run for longer than expected."""


def expected_remaining(series: float | None, *, usual: float, ran: float) -> float:
    """Return the expected remaining seconds of a job of unknown duration that has run so long.

    `series`: the length of its series; None: unknown. `usual`: the usual length of a job. A job
    without a series is expected to run at least as long again as it has run, and a job of a series
    for as long again as it is late.
    """
    if series is None:
        return max(usual - ran, ran)
    return max(series - ran, _LEAST_LEFT * series, ran - series)


def at_most(length: float) -> float:
    """Return the seconds after which a job of an expected length counts as late."""
    return START_SECONDS + LATE * length


def starts_short(
    workers: int, requested: int, *, length: float, wait: float, waited: float
) -> bool:
    """Return whether a job starts now with fewer workers than it requested.

    It does if it then ends before a start with all of them. With fewer workers it takes longer in
    proportion. `length`: the seconds that it takes with all. `wait`: until there is capacity for
    all; infinity: there never is. Expected ends of other jobs may be wrong, so the time that it
    has `waited` beyond its own length counts too. Below half of its requested size it would keep
    the capacity of others for too long.
    """
    if math.isinf(wait):
        return True
    costs = length * requested / workers - length
    return 2 * workers >= requested and costs <= wait + max(0.0, waited - length)
