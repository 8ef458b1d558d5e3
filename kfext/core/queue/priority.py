"""The priority of a job, and its position in the queue in words."""

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter

from kfext.core.words import age, has
from kfext.model.job import TrainingJob
from kfext.model.priority import PriorityClass
from kfext.model.verdict import Verdict
from kfext.names import RESERVATION_PRIORITY

Classes = Mapping[str, PriorityClass]

_NONE = PriorityClass(name="", value=0)
_RANK = attrgetter("value", "name")
IN_QUEUE = "in the queue"
"""The end of the clause on the number of jobs ahead; what follows also explains the position."""


def priority_class(job: TrainingJob, classes: Classes) -> PriorityClass:
    """Return the class that decides a job's priority.

    It is the highest class that a template names, else the global default of the cluster, else
    priority 0. Unknown names do not count, nor does the class of pods that reserve GPUs, because no
    pod of a job is admitted with it.
    """
    names = (name for name in job.priority_classes if name != RESERVATION_PRIORITY)
    known = [known_class for name in names if (known_class := classes.get(name))]
    return max(known, key=_RANK) if known else default_class(classes)


def lowest_class(job: TrainingJob, classes: Classes) -> PriorityClass:
    """Return the class that decides what a job preempts: the lowest class of its pods.

    The job preempts only if the classes of all its pods preempt.
    """
    default = default_class(classes)
    names = (group.priority_class for group in job.groups if group.replicas)
    known = [classes.get(name, default) if name else default for name in names] or [default]
    return replace(min(known, key=_RANK), preempts=all(named.preempts for named in known))


def default_class(classes: Classes) -> PriorityClass:
    """Return the default class of the cluster, or a class without a name and with value 0."""
    defaults = (known_class for known_class in classes.values() if known_class.default)
    # Of two defaults Kubernetes uses the lowest.
    return min(defaults, key=_RANK, default=_NONE)


def why_there(priority: int, length: float | None) -> str:
    """Return the grounds for the position of a waiting job, as a clause.

    `length`: its expected duration in seconds, or None to assume the usual duration.
    """
    duration = "usual length of jobs" if length is None else f"{age(length)} it should take"
    return f"its place follows from priority {priority}, its age and the {duration}"


def in_line(
    verdict: Verdict, *, ahead: int, exact: int, kept_nodes: str, awaited: str, behind: str = ""
) -> Verdict:
    """Return a verdict with the position of a job in the queue and the nodes reserved for it.

    `ahead`: the number of jobs before it; a number above `exact` is approximate.
    `kept_nodes`, `awaited`: in words, the reserved nodes and the jobs that it waits for, or empty.
    `behind`: the reason for its position, or empty.
    """
    if not ahead:
        place = f"it is first {IN_QUEUE}"
    elif ahead == 1:
        place = f"1 job is ahead {IN_QUEUE}"
    else:
        place = f"{'about ' if ahead > exact else ''}{ahead} jobs are ahead {IN_QUEUE}"
    if behind:
        place += f"; {behind}"
    if kept_nodes:
        place += f"; {kept_nodes} {'are' if ' ' in kept_nodes else 'is'} reserved for it"
        place += f" until {awaited} {has(awaited)} ended" if awaited else ""
    return Verdict(verdict.reason, f"{verdict.message}; {place}")
