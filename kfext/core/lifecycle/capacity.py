"""Capacity for a queued job: the solver's placement, or why there is none."""

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable
from dataclasses import replace
from functools import cache

from kfext.core.elastic import with_workers, workers_of
from kfext.core.ledger.ledger import Ledger
from kfext.core.lifecycle.situation import Situation
from kfext.core.observed import expecting_tolerations
from kfext.core.placement.gang import members_of
from kfext.core.placement.place import place, why_more_nodes
from kfext.core.placement.score import DEFAULT, FEWEST, Weights
from kfext.core.placement.solve import can_burst, in_words
from kfext.core.queue.duration import starts_short
from kfext.core.queue.no_fit import NoFit, NoFitCache, shape_of
from kfext.core.queue.reservation import Reservation, reserve
from kfext.core.words import clock
from kfext.model.kinds.job_kind import WORKER
from kfext.model.plan import Assignment
from kfext.model.verdict import Verdict
from kfext.names import (
    REASON_NO_ELIGIBLE_NODE,
    REASON_NO_ROOM,
    REASON_RESERVED,
    REASON_TOO_BIG,
    REASON_WAITING_FOR_VOLUME,
)

WAITS_FOR_CAPACITY = frozenset({REASON_NO_ROOM, REASON_RESERVED})
"""Reasons to wait that a reservation can end."""
NEVER_FITS = frozenset({REASON_TOO_BIG, REASON_NO_ELIGIBLE_NODE, REASON_WAITING_FOR_VOLUME})
"""Reasons to wait that the end of another job does not remove."""
LOOK_SECONDS = 30.0
"""A job that could start with fewer workers is checked again after this time at the earliest."""
NODES_SECONDS = 180.0
"""How long new nodes usually take to come."""
EXPECTED = "admission is expected to add the tolerations"


def find_place(situation: Situation, ledger: Ledger, no_fits: NoFitCache) -> Assignment | NoFit:
    """Return a node for every pod of a queued job, or why they cannot be placed now.

    A job that fits on no node that it tolerates may get nodes of a pool: see `core.observed`.
    """
    answer = _find(situation, ledger, no_fits)
    never = isinstance(answer, NoFit) and answer.verdict.reason in NEVER_FITS
    if not never or situation.restricted:
        return answer
    job = expecting_tolerations(situation.job, situation.state, ledger)
    if job is None:
        return answer
    in_pool = _find(replace(situation, job=job), ledger, no_fits)
    if not isinstance(in_pool, NoFit):
        return in_pool
    reason, message = in_pool.verdict.reason, f"{in_pool.verdict.message}; {EXPECTED}"
    return (
        replace(in_pool, verdict=Verdict(reason, message)) if reason not in NEVER_FITS else answer
    )


def _find(situation: Situation, ledger: Ledger, no_fits: NoFitCache) -> Assignment | NoFit:
    shape = _shape(situation)
    refusal = no_fits.known(shape, ledger)
    if refusal is not None and seconds_to_short_start(situation, refusal) > 0:
        return refusal
    placed = _place(situation, ledger, ignoring=situation.usable_claims)
    answer = _short(situation, ledger, whole=placed) if isinstance(placed, Verdict) else placed
    if not isinstance(answer, NoFit):
        return answer
    reserved, over = _kept(situation, ledger), _over_others(situation, ledger)
    refusal = replace(
        answer,
        verdict=reserved or answer.verdict,
        over_others=over,
        would_fit=over is not None or reserved is not None,
    )
    no_fits.note(shape, refusal, ledger)
    return refusal


def why_spread(situation: Situation, assignment: Assignment, ledger: Ledger) -> str:
    """Return why a placement uses more nodes than necessary; empty if it does not."""
    if len(set(assignment.values())) < 2:
        return ""
    workers = sum(key.type == WORKER.lower() for key in assignment)
    placed = replace(situation, job=with_workers(situation.job, workers))
    if apart := _why_apart(placed, assignment, ledger):
        return apart
    if len(set(assignment.values())) == 2:
        return ""  # the solver prefers one node, so two are the fewest
    fewest = _place(placed, ledger, ignoring=situation.usable_claims, weights=FEWEST)
    return why_more_nodes(assignment, fewest)


def _why_apart(situation: Situation, assignment: Assignment, ledger: Ledger) -> str:
    """Return why pods are on more nodes than their requests need; empty if they are not."""
    members, limits = members_of(situation.job), situation.limits
    if limits.assumed_burst is None or not can_burst(members, assumed=limits.assumed_burst):
        return ""
    by_requests = replace(limits, assumed_burst=None)
    least = place(members, ledger, by_requests, ignoring=situation.usable_claims)
    one_node = not isinstance(least, Verdict) and len(set(least.values())) == 1
    why = in_words(members, assumed=limits.assumed_burst, one_node=one_node)
    return why_more_nodes(assignment, least, why=why)


def seconds_to_short_start(situation: Situation, refusal: NoFit) -> float:
    """Return in how many seconds a job may start with fewer workers; infinity: they do not fit."""
    if not refusal.workers:
        return math.inf
    wait = refusal.until - situation.now
    if wait <= 0 or _starts_short(situation, refusal.workers, wait):
        return 0.0  # else the capacity for all its workers is late
    costs = situation.context.length() * workers_of(situation.job) / refusal.workers
    return min(wait, max(costs - situation.in_line, LOOK_SECONDS))


def _starts_short(situation: Situation, workers: int, wait: float) -> bool:
    return starts_short(
        workers,
        workers_of(situation.job),
        length=situation.context.length(),
        wait=wait,
        waited=situation.in_line,
    )


def _short(situation: Situation, ledger: Ledger, *, whole: Verdict) -> Assignment | NoFit:
    """Return nodes for as many workers of an elastic job as fit, or why it does not start so.

    `whole`: why all its workers do not fit.
    """
    job, open_to = situation.job, situation.usable_claims
    fewest, most = situation.fewest_workers, workers_of(job) - 1

    def placed(workers: int) -> Assignment | Verdict:
        fewer = replace(situation, job=with_workers(job, workers))
        return _place(fewer, ledger, ignoring=open_to)

    found = most_with_a_place(placed, fewest=fewest, most=most) if fewest <= most else whole
    if isinstance(found, Verdict):
        return NoFit(of_fewest(found, fewest, of=most + 1))
    if situation.context.held:
        return found
    workers = sum(key.type == WORKER.lower() for key in found)
    wait = seconds_to_room(situation, ledger)
    if situation.expects_nodes:
        wait = min(wait, NODES_SECONDS)
    if _starts_short(situation, workers, wait):
        return found
    return NoFit(whole, workers=workers, until=situation.now + wait)


def of_fewest(why: Verdict, fewest: int, *, of: int) -> Verdict:
    """Return why not even the fewest workers that an elastic job may have can start."""
    least = f"it needs at least {fewest} of its {of} workers: " if fewest < of else ""
    return replace(why, message=least + why.message)


def seconds_to_room(situation: Situation, ledger: Ledger) -> float:
    """Return the seconds until there is room for the whole job, by the expected ends of others."""
    job, ignoring = situation.job, situation.usable_claims
    room = reserve(
        job.uid,
        members_of(job),
        ledger,
        situation.limits,
        ends=situation.context.ends(),
        ignoring=ignoring,
        soonest=True,
    )
    return math.inf if room is None else max(0.0, room.until - situation.now)


def most_with_a_place(
    placed: Callable[[int], Assignment | Verdict], *, fewest: int, most: int
) -> Assignment | Verdict:
    """Return the places of as many pods as possible, or why the `fewest` have no places.

    If a number of pods has no places, no larger number has.
    """
    best = placed(fewest)
    while not isinstance(best, Verdict) and fewest < most:
        middle = (fewest + most + 1) // 2
        answer = placed(middle)
        if isinstance(answer, Verdict):
            most = middle - 1
        else:
            best, fewest = answer, middle
    return best


def _shape(situation: Situation) -> Hashable:
    context = situation.context
    return (
        shape_of(situation.job),
        situation.limits,
        # A hold has the claims of one job; there is at most one reservation.
        (len(situation.usable_claims), context.held, context.nodes.claims),
        situation.fewest_workers,
        context.priority if context.preempts else None,
        # A refusal contains these names, which not every user may read.
        context.reserved_for,
        context.awaited,
    )


def _place(
    situation: Situation,
    ledger: Ledger,
    *,
    ignoring: Collection[Hashable],
    weights: Weights = DEFAULT,
) -> Assignment | Verdict:
    job, limits, context = situation.job, situation.limits, situation.context
    kept = context.reservation.claims if context.reservation else (), context.reserved_for
    return place(members_of(job), ledger, limits, ignoring=ignoring, weights=weights, kept=kept)


def _kept(situation: Situation, ledger: Ledger) -> Verdict | None:
    """Return the verdict that only the reservation of another job is in the way, or None."""
    reservation = situation.context.reservation
    open_to = situation.usable_claims
    if reservation is None or set(reservation.claims) <= set(open_to):
        return None
    ignoring = (*reservation.claims, *open_to)
    if isinstance(_place(situation, ledger, ignoring=ignoring), Verdict):
        return None
    return Verdict(REASON_RESERVED, _kept_words(situation, reservation))


def _kept_words(situation: Situation, reservation: Reservation) -> str:
    context = situation.context
    words = f"there is capacity, but it is reserved for {context.reserved_for}, which waits for "
    words += context.awaited or "capacity"
    if math.isinf(reservation.until):
        words += "; the end of that wait is unknown (no deadline, no progress)"
    else:
        until = clock(reservation.until)
        words += f" until about {until}" if context.estimated else f" until {until} at the latest"
    deadline = situation.job.kind.policy_field("activeDeadlineSeconds")
    return f"{words}; a job may backfill only if its {deadline} or its last runs end it before"


def _over_others(situation: Situation, ledger: Ledger) -> Assignment | None:
    """Return where a job would fit if pods of lower priority outside gangs were preempted.

    These are the pods of as few nodes as possible, and of nodes with few of them first.
    """
    context = situation.context
    rows = ledger.rows_below(context.priority) if context.preempts else ()

    @cache
    def placed(nodes: int) -> Assignment | Verdict:
        rest = ledger.over_others(context.priority, rows[:nodes])
        return _place(situation, rest, ignoring=situation.usable_claims)

    if not rows or isinstance(placed(len(rows)), Verdict):
        return None
    # With the pods of more nodes gone, a job that fitted still fits.
    numbers = range(1, len(rows))
    least = bisect_left(numbers, True, key=lambda n: not isinstance(placed(n), Verdict)) + 1
    found = placed(least)
    return None if isinstance(found, Verdict) else found


def over_others(situation: Situation, ledger: Ledger) -> Ledger:
    """Return the ledger without the pods that kube-scheduler preempts for a job."""
    context = situation.context
    rows = ledger.rows_below(context.priority) if context.preempts else ()
    return ledger.over_others(context.priority, rows) if rows else ledger
