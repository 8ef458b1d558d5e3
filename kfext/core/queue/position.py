"""The position of a queued job, as part of its message."""

from kfext.core.words import has
from kfext.model.verdict import Verdict


def in_line(verdict: Verdict, *, ahead: int, exact: int, kept_nodes: str, awaited: str) -> Verdict:
    """Return why a job waits, with its position in the queue and what is reserved for it.

    `ahead` jobs come before it; a number above `exact` is approximate.
    """
    if not ahead:
        place = "it is first in the queue"
    elif ahead == 1:
        place = "1 job is ahead in the queue"
    else:
        place = f"{'about ' if ahead > exact else ''}{ahead} jobs are ahead in the queue"
    if kept_nodes:
        place += (
            f"; {kept_nodes} are reserved for it"
            if " " in kept_nodes
            else (f"; {kept_nodes} is reserved for it")
        )
        place += f" until {awaited} {has(awaited)} ended" if awaited else ""
    return Verdict(verdict.reason, f"{verdict.message}; {place}")
