"""The caps of jobs on all of their nodes: of a job on several the smallest share holds everywhere.

The slowest pod sets the pace of a job, so more elsewhere would be of no use to it.
"""

from collections.abc import Callable, Iterable, Mapping

from kfext.core.companion.contest import Contest
from kfext.core.companion.precedence import is_left_open
from kfext.core.companion.signals import JobSignal

Caps = dict[str, dict[str, int]]
"""Millicores by node and by the uid of a job."""


def caps_on_nodes(
    jobs: Iterable[JobSignal], of: Mapping[str, Contest], *, budget: Callable[[JobSignal], float]
) -> Caps:
    """Return the caps of jobs; `of`: the contests by node.

    `budget`: how much of all that it takes a job may lend without being sure to get it back.
    """
    jobs = list(jobs)
    caps = _before_what_is_left(jobs, of, budget)
    raised = {node: one.raised(caps[node]) for node, one in of.items()}
    held = _held(jobs, of, caps, raised)
    return {
        node: one.raised(caps[node] | held[node], held=held[node].keys())
        if held[node]
        else raised[node]
        for node, one in of.items()
    }


def _before_what_is_left(
    jobs: Iterable[JobSignal], of: Mapping[str, Contest], budget: Callable[[JobSignal], float]
) -> Caps:
    """Return the caps before they are raised by what other jobs leave."""
    by_growth = {node: one.caps() for node, one in of.items()}
    caps: Caps = {node: {} for node in of}
    for job in jobs:
        on = [of[node] for node in job.nodes]
        wanted = {one.node: by_growth[one.node][job.uid] for one in on}
        shares = [
            (one.now(job) if (cap := wanted[one.node]) is None else cap) / one.size
            for one in on
            if one.size > 0
        ]
        for one in on:
            if is_left_open(job, one, share=budget(job)):
                caps[one.node][job.uid] = one.size
            elif all(cap is None for cap in wanted.values()):
                caps[one.node][job.uid] = one.now(job)
            else:
                share = round(min(shares, default=1.0) * one.size)
                caps[one.node][job.uid] = min(max(share, one.floor(job)), one.size)
    return caps


def _held(
    jobs: Iterable[JobSignal], of: Mapping[str, Contest], caps: Caps, raised: Caps
) -> dict[str, dict[str, int]]:
    """Return by node and uid the caps of jobs that another node holds to less than is left there.

    Where no other job on the node wants more, nothing is gained by it, so such a cap stays raised.
    """
    found: Caps = {node: {} for node in of}
    for job in jobs:
        uid, on = job.uid, [of[node] for node in job.nodes]
        stopped = [one for one in on if raised[one.node][uid] < one.wants[uid]]
        pace = min((raised[one.node][uid] / one.size for one in stopped), default=1.0)
        for one in on:
            cap = max(caps[one.node][uid], round(pace * one.size))
            if cap < raised[one.node][uid] and one.is_short(raised[one.node], beside=job):
                found[one.node][uid] = cap
    return found
