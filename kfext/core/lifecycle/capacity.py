"""Capacity for a queued job: the solver's placement, or the reason for a refusal."""

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
RECHECK_SECONDS = 30.0
"""A job that could start with fewer workers is checked again after this time at the earliest."""
NEW_NODES_SECONDS = 180.0
"""The usual time from a request for new nodes until they join."""
EXPECTS_TOLERATIONS = "admission is expected to add the tolerations"


def find_place(situation: Situation, ledger: Ledger, no_fits: NoFitCache) -> Assignment | NoFit:
    """Return a node for every pod of a queued job, or the present refusal.

    A job that fits no node that it tolerates may be placed on nodes of a pool (`core.observed`).
    """
    answer = _search(situation, ledger, no_fits)
    never = isinstance(answer, NoFit) and answer.verdict.reason in NEVER_FITS
    if not never or situation.restricted:
        return answer
    job = expecting_tolerations(situation.job, situation.state, ledger)
    if job is None:
        return answer
    in_pool = _search(replace(situation, job=job), ledger, no_fits)
    if not isinstance(in_pool, NoFit):
        return in_pool
    reason, message = in_pool.verdict.reason, f"{in_pool.verdict.message}; {EXPECTS_TOLERATIONS}"
    return (
        replace(in_pool, verdict=Verdict(reason, message)) if reason not in NEVER_FITS else answer
    )


def _search(situation: Situation, ledger: Ledger, no_fits: NoFitCache) -> Assignment | NoFit:
    shape = _shape(situation)
    refusal = no_fits.known(shape, ledger)
    if refusal is not None and seconds_to_short_start(situation, refusal) > 0:
        return refusal
    placed = _place(situation, ledger, ignoring=situation.usable_claims)
    answer = _fewer(situation, ledger, whole=placed) if isinstance(placed, Verdict) else placed
    if not isinstance(answer, NoFit):
        return answer
    reserved, preempting = _reserved(situation, ledger), _after_preemption(situation, ledger)
    refusal = replace(
        answer,
        verdict=reserved or answer.verdict,
        after_preemption=preempting,
        would_fit=preempting is not None or reserved is not None,
    )
    no_fits.add(shape, refusal, ledger)
    return refusal


def why_spread(situation: Situation, assignment: Assignment, ledger: Ledger) -> str:
    """Return why a job is on more nodes than the fewest possible, or an empty string."""
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
    """Return why a job is on more nodes than its requests need, or an empty string."""
    members, limits = members_of(situation.job), situation.limits
    if limits.assumed_burst is None or not can_burst(members, assumed=limits.assumed_burst):
        return ""
    by_requests = replace(limits, assumed_burst=None)
    least = place(members, ledger, by_requests, ignoring=situation.usable_claims)
    one_node = not isinstance(least, Verdict) and len(set(least.values())) == 1
    why = in_words(members, assumed=limits.assumed_burst, one_node=one_node)
    return why_more_nodes(assignment, least, why=why)


def seconds_to_short_start(situation: Situation, refusal: NoFit) -> float:
    """Return the seconds until a job may start with fewer workers, infinite if they do not fit."""
    if not refusal.workers:
        return math.inf
    wait = refusal.until - situation.now
    if wait <= 0 or _starts_short(situation, refusal.workers, wait):
        return 0.0  # the expected capacity is late, or a start now is better
    short_run = situation.context.duration() * workers_of(situation.job) / refusal.workers
    return min(wait, max(short_run - situation.in_line, RECHECK_SECONDS))


def _starts_short(situation: Situation, workers: int, wait: float) -> bool:
    return starts_short(
        workers,
        workers_of(situation.job),
        length=situation.context.duration(),
        wait=wait,
        waited=situation.in_line,
    )


def _fewer(situation: Situation, ledger: Ledger, *, whole: Verdict) -> Assignment | NoFit:
    """Return nodes for as many workers of an elastic job as fit, or a refusal.

    `whole`: the refusal of the job with all its workers.
    """
    job, usable = situation.job, situation.usable_claims
    fewest, most = situation.fewest_workers, workers_of(job) - 1

    def placed(workers: int) -> Assignment | Verdict:
        fewer = replace(situation, job=with_workers(job, workers))
        return _place(fewer, ledger, ignoring=usable)

    answer = most_that_fit(placed, fewest=fewest, most=most) if fewest <= most else whole
    if isinstance(answer, Verdict):
        return NoFit(with_minimum(answer, fewest, workers=most + 1))
    if situation.context.held:
        return answer
    workers = sum(key.type == WORKER.lower() for key in answer)
    wait = seconds_to_capacity(situation, ledger)
    if situation.expects_nodes:
        wait = min(wait, NEW_NODES_SECONDS)
    if _starts_short(situation, workers, wait):
        return answer
    return NoFit(whole, workers=workers, until=situation.now + wait)


def with_minimum(why: Verdict, fewest: int, *, workers: int) -> Verdict:
    """Return the refusal of an elastic job at its minimum, with the minimum in its message."""
    least = f"it needs at least {fewest} of its {workers} workers: " if fewest < workers else ""
    return replace(why, message=least + why.message)


def seconds_to_capacity(situation: Situation, ledger: Ledger) -> float:
    """Return the seconds until the whole job fits, by the expected ends of other jobs."""
    job, ignoring = situation.job, situation.usable_claims
    reservation = reserve(
        job.uid,
        members_of(job),
        ledger,
        situation.limits,
        ends=situation.context.ends(),
        ignoring=ignoring,
        soonest=True,
    )
    return math.inf if reservation is None else max(0.0, reservation.until - situation.now)


def most_that_fit(
    placed: Callable[[int], Assignment | Verdict], *, fewest: int, most: int
) -> Assignment | Verdict:
    """Return the placement of as many pods as possible, or the refusal of the `fewest`.

    `placed`: places a number of pods. If it refuses a number, it refuses every larger number.
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
    """Return the key of a job's refusal; jobs with the same key are refused alike."""
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
    reserved = context.reservation.claims if context.reservation else (), context.reserved_for
    return place(
        members_of(job), ledger, limits, ignoring=ignoring, weights=weights, reserved=reserved
    )


def _reserved(situation: Situation, ledger: Ledger) -> Verdict | None:
    """Return the verdict that the job would fit without the reservation of another job, or None."""
    reservation = situation.context.reservation
    usable = situation.usable_claims
    if reservation is None or set(reservation.claims) <= set(usable):
        return None
    ignoring = (*reservation.claims, *usable)
    if isinstance(_place(situation, ledger, ignoring=ignoring), Verdict):
        return None
    return Verdict(REASON_RESERVED, _reserved_message(situation, reservation))


def _reserved_message(situation: Situation, reservation: Reservation) -> str:
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


def _after_preemption(situation: Situation, ledger: Ledger) -> Assignment | None:
    """Return the placement of a job after preemption of pods of lower priority outside gangs.

    Pods of as few nodes as possible are preempted, on nodes with the fewest such pods first.
    """
    context = situation.context
    rows = ledger.rows_below(context.priority) if context.preempts else ()

    @cache
    def placed(nodes: int) -> Assignment | Verdict:
        after = ledger.after_preemption(context.priority, rows[:nodes])
        return _place(situation, after, ignoring=situation.usable_claims)

    if not rows or isinstance(placed(len(rows)), Verdict):
        return None
    # A job that fits still fits without the pods of more nodes.
    numbers = range(1, len(rows))
    least = bisect_left(numbers, True, key=lambda n: not isinstance(placed(n), Verdict)) + 1
    answer = placed(least)
    return None if isinstance(answer, Verdict) else answer


def after_preemption(situation: Situation, ledger: Ledger) -> Ledger:
    """Return the ledger without the pods that kube-scheduler preempts for a job."""
    context = situation.context
    rows = ledger.rows_below(context.priority) if context.preempts else ()
    return ledger.after_preemption(context.priority, rows) if rows else ledger
