"""The expected duration of a job and its remaining time, in seconds.

The source is the progress of the job, else ended jobs of its series, else a constant.
"""

import math

from kfext.core.progress.reported import LATE

START_SECONDS = 30.0
"""The assumed time from the start of a job to its first step."""
USUAL_SECONDS = 300.0
"""The assumed duration of a job without progress, in a cluster where no job has ended yet."""
_MIN_REMAINING = 0.2
"""The least remaining time of a job, as a fraction of the usual duration of its series."""


def expected_remaining(series: float | None, *, usual: float, ran: float) -> float:
    """Return the expected remaining time of a job without progress; all times are in seconds.

    `series`: the usual duration of its series; None means that no job of the series has ended.
    `usual`: the usual duration of a job, used if `series` is None.
    `ran`: the time that the job has run.
    A job without a series is expected to run at least as long again as it has run, and a late job
    of a series for as long again as it is late.
    """
    if series is None:
        return max(usual - ran, ran)
    return max(series - ran, _MIN_REMAINING * series, ran - series)


def late_after(length: float) -> float:
    """Return the run time after which a job of an expected duration is late; both in seconds."""
    return START_SECONDS + LATE * length


def starts_short(
    workers: int, requested: int, *, length: float, wait: float, waited: float
) -> bool:
    """Return whether a job starts now with fewer workers than it requested.

    `length`: its duration with all workers; with fewer workers it is longer in proportion.
    `wait`: the time until there is capacity for all workers; infinity means never.
    `waited`: the time that it has waited.
    All times are in seconds. The job starts if it then ends sooner than with all workers. Expected
    ends of other jobs may be wrong, so the time that it has waited beyond `length` counts too. It
    starts below half of its requested size only if there will never be capacity for all workers.
    """
    if math.isinf(wait):
        return True
    costs = length * requested / workers - length
    return 2 * workers >= requested and costs <= wait + max(0.0, waited - length)
