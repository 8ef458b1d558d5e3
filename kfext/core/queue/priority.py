"""The priority of a job, and its position in the queue in words."""

from collections.abc import Mapping
from dataclasses import replace

from kfext.core.words import age, has
from kfext.model.job import TrainingJob
from kfext.model.priority import PriorityClass
from kfext.model.verdict import Verdict
from kfext.names import RESERVATION_PRIORITY

Classes = Mapping[str, PriorityClass]

_NONE = PriorityClass(name="", value=0)
IN_QUEUE = "in the queue"
"""Ends the clause on the position of a job. The clauses after it are about its place too."""


def priority_class(job: TrainingJob, classes: Classes) -> PriorityClass:
    """Return the class that decides a job's priority.

    It is the class that the pods will have: the highest that a template names, else the global
    default of the cluster, else priority 0. A name that the cluster does not know does not count.
    The class of pods that reserve GPUs does not count either, because no pod of a job is admitted
    with it.
    """
    names = (name for name in job.priority_classes if name != RESERVATION_PRIORITY)
    known = [found for name in names if (found := classes.get(name))]
    if known:
        return max(known, key=lambda found: (found.value, found.name))
    return default_class(classes)


def preempting_class(job: TrainingJob, classes: Classes) -> PriorityClass:
    """Return the class that a job preempts with: the lowest of its pods, as each needs a place.

    It preempts nothing if the class of a pod does not.
    """
    default = default_class(classes)
    named = (group.priority_class for group in job.groups if group.replicas)
    found = [classes.get(name, default) if name else default for name in named] or [default]
    lowest = min(found, key=lambda each: (each.value, each.name))
    return replace(lowest, preempts=all(each.preempts for each in found))


def default_class(classes: Classes) -> PriorityClass:
    """Return the class of pods that name none; without a default it has no name."""
    defaults = [found for found in classes.values() if found.default]
    # Kubernetes uses the lowest if there are two defaults.
    return min(defaults, key=lambda found: (found.value, found.name), default=_NONE)


def why_there(priority: int, length: float | None) -> str:
    """Return what decides the place of a waiting job, in a clause.

    `length`: the seconds that it should take; None: it counts as long as the usual job.
    """
    takes = "usual length of jobs" if length is None else f"{age(length)} it should take"
    return f"its place follows from priority {priority}, its age and the {takes}"


def in_line(
    verdict: Verdict, *, ahead: int, exact: int, kept_nodes: str, awaited: str, behind: str = ""
) -> Verdict:
    """Return why a job waits, with its position in the queue and the nodes reserved for it.

    `ahead` jobs come before it; a number above `exact` is approximate. `behind`: why they do, or
    empty.
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
