"""The expected duration of a job and its remaining time, in seconds.

The best source counts: the progress of the job, else ended jobs of its series, else a constant.
"""

USUAL_SECONDS = 300.0
"""The length of a job without progress and without an ended job of its series."""
_LEAST_LEFT = 0.2
"""The remaining part of the duration of a job that has run for longer than expected."""


def expected_remaining(usual: float | None, *, ran: float) -> float:
    """Return the expected remaining seconds of a job of unknown duration that has run so long.

    `usual`: the length of its series; None: unknown. Such a job is expected to run at least as long
    again as it has run, and a job of a series for as long again as it is late.
    """
    if usual is None:
        return max(USUAL_SECONDS - ran, ran)
    return max(usual - ran, _LEAST_LEFT * usual, ran - usual)


def short_start_in(
    workers: int, requested: int, *, length: float, wait: float, waited: float
) -> float:
    """Return in how many seconds a job starts with fewer workers than it asked for; 0.0: now.

    It starts when an early start finishes first, or after waiting as long as the smaller size
    costs: the expected ends of other jobs may be wrong. `length`: what it takes with all its
    workers. `wait`: until there is room for all of them. With fewer it takes longer in proportion.
    """
    return max(0.0, length * requested / workers - length - wait - waited)
