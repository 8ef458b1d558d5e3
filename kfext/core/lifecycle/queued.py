"""A job that kfext holds suspended: it waits until it is safe to resume and there is capacity."""

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace

from kfext.core.elastic import allowed_range, requested_workers, with_workers, workers_of
from kfext.core.eligibility import not_placed, unbound_claims
from kfext.core.ledger.cards import why_unshareable
from kfext.core.ledger.ledger import Ledger
from kfext.core.ledger.ports import with_host_ports
from kfext.core.lifecycle.capacity import (
    EXPECTS_TOLERATIONS,
    NEVER_FITS,
    RECHECK_SECONDS,
    WAITS_FOR_CAPACITY,
    find_place,
    seconds_to_capacity,
    seconds_to_short_start,
    why_spread,
    with_minimum,
)
from kfext.core.lifecycle.cards import IN_KUEUE, slots_for, with_last_attempt
from kfext.core.lifecycle.network import place_on_network, release_queued
from kfext.core.lifecycle.new_nodes import LACKS_NODES, end_ask, queued_ask, why_unheld, without_ask
from kfext.core.lifecycle.patience import FORESEEN, STRIKES
from kfext.core.lifecycle.situation import Situation, queued_since
from kfext.core.lifecycle.steps import ForgetPlan, SaveState, Step, Unsuspend, Wait
from kfext.core.observed import untolerated_taints
from kfext.core.placement.gang import members_of
from kfext.core.queue.no_fit import NoFit, NoFitCache
from kfext.core.queue.quota import demand
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Colocation
from kfext.core.words import clock, listed, pods
from kfext.model.bounds import LONGEST_SETTING, PLAN_BYTES_PER_POD, plan_excess
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from kfext.model.parameters import NewNodes
from kfext.model.plan import NO_SLOTS, Assignment, Plan, Slots, places_of_type
from kfext.model.verdict import Verdict
from kfext.names import (
    QUEUED,
    REASON_BACKING_OFF,
    REASON_CREATE_TIMEOUT,
    REASON_HANDS_OFF,
    REASON_NO_NEW_NODES,
    REASON_NO_ROOM,
    REASON_PLANNED,
    REASON_RELEASED,
    REASON_SHARE_REFUSED,
    REASON_SUSPENDED_BY_USER,
    REASON_TOO_BIG,
    REASON_UNMODELLED,
    REASON_WAITING_FOR_OPERATOR,
    REASON_WAITING_FOR_SUSPEND,
    SUSPENDED,
)

RELEASE_SECONDS = 60.0
"""The value of `releaseAfter: auto` for a job that a longer wait cannot help."""
PREEMPTION_SECONDS = 60.0
"""How long a job waits before it preempts pods of lower priority outside gangs."""
SETTLE_SECONDS = 2.0
"""The pause between the operator's last write about a suspension and the resume: after a shorter
pause the operator would fail the job."""
CONFIRM_SECONDS = 30.0
"""The time without pods after which a job is resumed, regardless of its Suspended condition.

By then the operator has counted zero pods. It writes no new condition if it never saw the job
resumed, or if its clock is behind; 1.8.0 never writes the condition on a job with
ttlSecondsAfterFinished (CleanupJob in its pkg/controller.v1/common/job.go).
"""


def queued_step(situation: Situation, ledger: Ledger, no_fits: NoFitCache) -> Step:
    """Return the step of a suspended job."""
    job, state = situation.job, situation.state
    if not job.held or job.started_by:
        return _suspended_elsewhere(situation)
    unsafe = unsafe_to_resume(situation)
    if unsafe is not None:
        return unsafe
    if situation.settings.colocation is Colocation.OFF:
        return release_queued(situation, Verdict(REASON_RELEASED, "colocation was switched off"))
    if step := _unplaceable(situation, ledger) or _unrendered(situation):
        return step
    if situation.backs_off:
        message = f"{state.message}; it backs off until {clock(state.retry_at)}"
        # With this reason no capacity is reserved for it, and no job is scaled down for it.
        waits = not state.reason or state.reason in {*WAITS_FOR_CAPACITY, REASON_NO_NEW_NODES}
        reason = REASON_BACKING_OFF if waits else state.reason
        return _back_off(situation, Verdict(reason, message))
    step = _stuck_before(situation) or _without_growth(job, state, situation.settings)
    return step or _start(situation, ledger, no_fits)


def _without_growth(job: TrainingJob, state: JobState, settings: Settings) -> Step | None:
    """Return the step that scales a stopped job down to its requested size, or None.

    It is for jobs that kfext may no longer scale, because nothing else would revert their growth.
    """
    requested = requested_workers(job, state)
    if requested >= workers_of(job) or allowed_range(job, settings) is not None:
        return None
    return SaveState(replace(state, requested=0, assigned=0), requested)


def _unrendered(situation: Situation) -> Step | None:
    """Return the step of a held job with templates that its operator has yet to render, or None."""
    job, limit = situation.job, situation.placement.create_timeout
    if job.groups or not job.kind.rendered:
        return None
    message = f"the operator has not made its templates ({job.kind.rendered.plural}) yet"
    verdict = Verdict(REASON_WAITING_FOR_OPERATOR, message)
    if situation.clocks.waited < limit or situation.never_released:
        return Wait(QUEUED, verdict, again=max(limit - situation.clocks.waited, 1.0))
    return release_queued(situation, replace(verdict, message=f"{message} after {limit:g} s"))


def _stuck_before(situation: Situation) -> Step | None:
    """Return the release of a job that was suspended because its pods were not bound, or None."""
    state = situation.state
    if situation.never_released or state.strikes < STRIKES:
        return None
    if state.reason in {REASON_CREATE_TIMEOUT, *FORESEEN}:
        return None  # plain Kubernetes would fail too
    message = f"{state.strikes} attempts: {state.message}"
    return release_queued(situation, Verdict(state.reason, message))


def _unplaceable(situation: Situation, ledger: Ledger) -> Step | None:
    """Return the step of a held job that kfext must not place, or None for other jobs."""
    state, why = situation.state, not_placed(situation.job, node_resources=ledger.resources)
    if state.strikes >= STRIKES and state.reason in {REASON_HANDS_OFF, REASON_UNMODELLED}:
        why = why or Verdict(state.reason, state.message)  # its pods had the obstacle at each start
    if why is None:
        return None
    if situation.releases(why):
        return release_queued(situation, why)
    message = f"{why.message}; {situation.why_never_released}, so it stays suspended"
    return Wait(QUEUED, Verdict(why.reason, message))


def _suspended_elsewhere(situation: Situation) -> Step:
    """Return the step of a job that a person or another system has suspended.

    Once its last pod has ended, other jobs may use its GPU shares, so kfext deletes its plan. It
    also deletes the recorded CPU of the pods, because the user may change the templates. A job that
    Kueue has taken over is reset to its requested workers, because Kueue starts the job as it is.
    """
    job, plan, settings = situation.job, situation.plan, situation.settings
    ended, state = all(pod.finished for pod in situation.pods), situation.state
    if ended:
        state = replace(state, cpu=state.cpu.without_pods())
        state = without_ask(state) if situation.has_open_ask else state
    workers = requested_workers(job, state)
    if ended and job.started_by and workers != workers_of(job):
        return SaveState(replace(state, requested=0, assigned=0), workers)
    if plan is not None and plan.slots and ended:
        # If it is resumed into the queue, its wait counts from now.
        number, now = situation.generation, situation.now
        return ForgetPlan(replace(state, generation=number, suspended_at=now))
    placed = settings.managed and settings.colocation is not Colocation.OFF
    unmarked = placed and job.unmarked  # the mark makes its pods wait at the gate
    if unmarked or job.being_created or state != situation.state:
        return SaveState(state)
    client = job.started_by or "a person or another system"
    phase = SUSPENDED if placed or plan else None
    refused = bool(job.started_by) and job.shares_gpus
    stopped = Verdict(REASON_SUSPENDED_BY_USER, f"suspended by {client}")
    return Wait(phase, IN_KUEUE if refused else stopped)


def _back_off(situation: Situation, verdict: Verdict) -> Step:
    """Wait until the back-off ends, or release the job after `releaseAfter`."""
    remaining, limit = situation.backs_off, situation.placement.release_after
    if limit is None or situation.never_released:
        return Wait(QUEUED, verdict, again=remaining)
    if situation.in_line >= limit:
        message = f"not started within {limit:g} s: {situation.state.message}"
        return release_queued(situation, Verdict(verdict.reason, message))
    return Wait(QUEUED, verdict, again=min(remaining, limit - situation.in_line))


def _start(situation: Situation, ledger: Ledger, no_fits: NoFitCache) -> Step:
    if why := _why_not_searched(situation):
        return _keep_waiting(situation, NoFit(why), ledger)
    allowed = _within_quota(situation)
    if isinstance(allowed, Verdict):
        return _keep_waiting(situation, NoFit(allowed), ledger)
    answer: Assignment | NoFit
    port, network, preempting = 0, None, None
    if requested := allowed.host_network:
        answer, port, network = place_on_network(allowed, requested, ledger, no_fits)
    else:
        answer = find_place(allowed, ledger, no_fits)
    if isinstance(answer, NoFit):
        preempting = answer.after_preemption
        # After a failed attempt, pods that were preempted for it may still be ending.
        if preempting is None or situation.state.strikes or situation.in_line < PREEMPTION_SECONDS:
            return _keep_waiting(allowed, answer, ledger, requested=workers_of(situation.job))
        answer = preempting
    if situation.context.nodes.held is not None and (why := why_unheld(situation, answer)):
        return _keep_waiting(allowed, NoFit(why), ledger, requested=workers_of(situation.job))
    return _unsuspend(
        situation, ledger, answer, port=port, network=network, after_preemption=answer is preempting
    )


def _why_not_searched(situation: Situation) -> Verdict | None:
    """Return the obstacle to a search for nodes, or None."""
    job = situation.job
    shares = situation.settings.shares_gpus
    if shares and (why := why_unshareable(job, situation.settings)):
        return Verdict(REASON_SHARE_REFUSED, why)
    if waits := unbound_claims(job):
        return waits
    if crowd := situation.context.crowded:
        # The exact number changes with each pod, and would rewrite the TrainingPlan of every job in
        # the queue.
        message = f"the operator still has over {crowd} pods to create for earlier jobs"
        return Verdict(REASON_WAITING_FOR_OPERATOR, message)
    # A search for so many pods is slow, and each decision would repeat it, so none begins.
    fewest = with_workers(job, situation.fewest_workers).pods
    excess = plan_excess(PLAN_BYTES_PER_POD * fewest, other_bytes=job.annotation_bytes)
    return Verdict(REASON_TOO_BIG, excess) if excess else None


def _unsuspend(
    situation: Situation,
    ledger: Ledger,
    assignment: Assignment,
    *,
    port: int,
    network: Verdict | None,
    after_preemption: bool,
) -> Step:
    """Return the step that starts a job on its nodes, perhaps with preemption of other pods."""
    job = situation.job
    fewer = job.pods - len(assignment)
    nodes = listed(sorted(set(assignment.values())), noun="nodes")
    message = f"{pods(len(assignment))} {'goes' if len(assignment) == 1 else 'go'} to {nodes}"
    message += f", {fewer} fewer workers than requested" if fewer else ""
    spread = why_spread(
        replace(situation, job=with_host_ports(job)) if port else situation, assignment, ledger
    )
    message += f"; {spread}" if spread else ""
    message += "; pods of lower priority are preempted there" if after_preemption else ""
    if taints := untolerated_taints(job, assignment, ledger):
        message += f"; {EXPECTS_TOLERATIONS} for {listed(taints, noun='taints')}"
    slots: Slots | None = NO_SLOTS
    if job.shares_gpus:
        members = members_of(with_workers(job, workers_of(job) - fewer))
        closed, usable = situation.cards.shunned, situation.usable_claims
        slots = slots_for(members, assignment, ledger, closed=closed, ignoring=usable)
    if slots is None:
        refusal = "no GPUs can be divided so that each of its pods has its part"
        return _keep_waiting(situation, NoFit(Verdict(REASON_NO_ROOM, refusal)), ledger)
    plan = situation.planned(assignment, port=port, why=message, slots=slots)
    size = len(plan.encode())
    if excess := plan_excess(size, other_bytes=situation.job.annotation_bytes):
        return _keep_waiting(situation, NoFit(Verdict(REASON_TOO_BIG, excess)), ledger)
    requested = situation.host_network
    interfaces = requested.interfaces if requested and port else ()
    gated_by = "others" if after_preemption else "taints" if taints else ""
    return Unsuspend(
        plan,
        Verdict(REASON_PLANNED, message),
        network,
        interfaces,
        _state_at_start(job, situation.state, fewer=fewer, now=situation.now),
        gated_by=gated_by or next(_why_gated(situation, plan, size=size), ""),
    )


def _why_gated(situation: Situation, plan: Plan, *, size: int) -> Iterator[str]:
    """Yield the reasons to gate the pods of a new gang; if there are none, they are born pinned.

    `size`: the number of characters of the encoded plan, which has the nodes of all types.

    The plan holds the capacity on the ledger, so the gate guards only against events outside
    kfext's control: other pods that are bound meanwhile, a quota that refuses a member, pods unlike
    their templates, and changes of node labels that only a limit of the job requires. A gang that
    was not bound at its last attempt waits at the gate.
    """
    job, state = situation.job, situation.state
    if not situation.placement.born_pinned:
        yield "policy"
    if job.kind.rendered or not job.kind.recreates:
        yield "kind"
    if situation.shares_gpus:
        yield "share"
    if state.strikes or state.observed:
        yield "attempt"
    if not all(group.exact for group in job.groups if group.replicas):
        yield "template"
    if unbound_claims(job) is not None:
        yield "volume"
    if size > LONGEST_SETTING:
        places = (places_of_type(plan, group.type.lower()) for group in job.groups)
        if any(len(written) > LONGEST_SETTING for written in places):
            yield "size"
    if any(limit.why for limit in situation.settings.node_limits.values()):
        yield "limit"
    if disturbed := situation.context.disturbed:
        yield disturbed


def _state_at_start(job: TrainingJob, state: JobState, *, fewer: int, now: float) -> JobState:
    """Return the state of a job that starts with `fewer` workers below its requested size.

    Its time in the queue counts until its gang is whole. A job that was suspended for a new size
    has a state with that size (policy `scale`).
    """
    state = replace(state, queued_since=queued_since(job, state, now=now))
    if not fewer:
        return state
    return replace(state, requested=requested_workers(job, state), assigned=workers_of(job) - fewer)


def _within_quota(situation: Situation) -> Situation | Verdict:
    """Return the situation with as many workers as quotas allow, or the refusal of its minimum."""
    quota, job = situation.context.quota, situation.job
    if not quota.quotas:
        return situation

    def shortage(workers: int) -> Verdict | None:
        return quota.shortage(demand(with_workers(job, workers)))

    fewest, most = situation.fewest_workers, workers_of(job)
    whole = shortage(most)
    if whole is None:
        return situation
    if least := shortage(fewest):
        return with_minimum(least, fewest, workers=most)
    # If a number of workers exceeds a quota, every larger number exceeds it.
    allowed = bisect_left(range(fewest + 1, most), True, key=lambda n: shortage(n) is not None)
    return replace(situation, job=with_workers(job, fewest + allowed))


def _keep_waiting(
    situation: Situation, refusal: NoFit, ledger: Ledger, *, requested: int | None = None
) -> Step:
    """Return a wait, an ask for new nodes, or a release if a longer wait would not help the job.

    `requested`: the requested workers; None means that no search for nodes has failed.
    """
    verdict = refusal.verdict
    if refusal.after_preemption is not None and not situation.state.strikes:
        message = f"{verdict.message}; if this lasts, pods of lower priority are preempted for it"
        verdict = replace(verdict, message=f"{message} after {PREEMPTION_SECONDS:g} s")
    limit, waited = _release_after(situation, verdict)
    remaining = math.inf if limit is None or situation.never_released else limit - waited
    again = _seconds_to_next_decision(situation, refusal)
    if remaining > 0 and (ask := _ask(situation, verdict, ledger, requested=requested)):
        return _at_latest(ask, min(remaining, again or math.inf))
    message = verdict.message
    if situation.released_for_nodes and verdict.reason in {REASON_NO_ROOM, *NEVER_FITS}:
        message = f"{message}; an autoscaler may add nodes"
        if situation.placement.new_nodes is NewNodes.ASK:
            message += ", and kfext cannot ask it: the component new-nodes is not installed"
    if remaining <= 0:
        message = f"not placed within {limit:g} s: {message}"
        return release_queued(situation, Verdict(verdict.reason, message))
    if situation.never_released:
        if situation.shares_gpus:
            message = with_last_attempt(situation.state, message, now=situation.now)
        message = f"{message}; {situation.why_never_released}, so it is never released"
    elif limit is not None:
        message = f"{message}; if this lasts, it is released to plain Kubernetes after {limit:g} s"
        again = min(remaining, again or remaining)
    return Wait(QUEUED, Verdict(verdict.reason, message), again=again)


def _release_after(situation: Situation, verdict: Verdict) -> tuple[float | None, float]:
    """Return after how many seconds a waiting job is released, or None, and its wait so far."""
    limit, reason = situation.placement.release_after, verdict.reason
    if situation.state.stopped_for_others:
        return None, situation.in_line  # its gang was whole; after a release it may become partial
    if limit is not None:
        return limit, situation.in_line
    if situation.context.autoscaler and not situation.released_for_nodes and reason in LACKS_NODES:
        return None, situation.in_line
    if reason in NEVER_FITS and not situation.restricted:
        # A short absence of a node must not release the job, so only this time counts.
        return RELEASE_SECONDS, situation.clocks.never_fits
    release_helps = reason in {REASON_NO_ROOM, *NEVER_FITS} and situation.released_for_nodes
    return (RELEASE_SECONDS if release_helps else None), situation.in_line


def _ask(
    situation: Situation, why: Verdict, ledger: Ledger, *, requested: int | None
) -> Step | None:
    if not (situation.context.autoscaler or situation.has_open_ask):
        return None
    if situation.context.held or (requested is None and why.reason != REASON_WAITING_FOR_OPERATOR):
        return end_ask(situation)
    return queued_ask(
        situation,
        why,
        requested=requested or 0,
        expected=lambda: seconds_to_capacity(situation, ledger),
    )


def _at_latest(step: Step, seconds: float) -> Step:
    """Return the step; if it is a wait, it ends after `seconds` at the latest."""
    if not isinstance(step, Wait) or math.isinf(seconds):
        return step
    return replace(step, again=seconds if step.again is None else min(step.again, seconds))


def _seconds_to_next_decision(situation: Situation, refusal: NoFit) -> float | None:
    """Return the seconds until the next decision without an event, or None for no limit.

    By then a reservation is due, an excluded node is allowed again, the job may preempt other pods,
    or all its workers should fit.
    """
    times = [*situation.state.exclusion_seconds(situation.now).values()]
    if refusal.after_preemption is not None and not situation.state.strikes:
        times.append(PREEMPTION_SECONDS - situation.in_line)
    times.append(seconds_to_short_start(situation, refusal) or RECHECK_SECONDS)
    if refusal.verdict.reason in WAITS_FOR_CAPACITY:
        times.append(situation.context.reservable_in)
    return min((seconds for seconds in times if 0 < seconds < math.inf), default=None)


def unsafe_to_resume(situation: Situation) -> Wait | None:
    """Return a wait while the operator would count terminating pods of the last start as failed."""
    wait = _unsafe(situation)
    message = situation.state.message
    if wait is None or wait.verdict is None or not message:
        return wait
    # The cause of the stop comes first.
    verdict = Verdict(wait.verdict.reason, f"{message}; {wait.verdict.message}")
    return Wait(wait.phase, verdict, again=wait.again)


def _unsafe(situation: Situation) -> Wait | None:
    job, state = situation.job, situation.state
    # If the operator retains ended pods, they do not matter.
    ending = [pod for pod in situation.pods if job.kind.recreates or not pod.finished]
    if ending:
        count, nodes = len(ending), sorted({pod.node_name for pod in ending} - {""})
        where = f" on {listed(nodes, noun='nodes')}" if nodes else ""
        return _until_safe(f"{count} pods of the last start are still terminating{where}")
    if not state.suspended_at:
        return None  # it never had pods, so the operator counts none
    seen = job.conditions.get("Suspended")
    without_pods = min(situation.clocks.waited, situation.clocks.settled)
    if without_pods >= CONFIRM_SECONDS:
        return None
    # The operator's timestamps have whole seconds.
    if seen is None or not seen.status or seen.since < math.floor(state.suspended_at):
        message = "the operator has not confirmed the suspension yet; without that, the job is"
        message = f"{message} resumed {CONFIRM_SECONDS:g} s after its last pod ended"
        return _until_safe(message, again=CONFIRM_SECONDS - without_pods)
    # A negative time only shows that the clocks differ.
    ago = situation.now - seen.since
    settled = min(situation.clocks.settled, ago) if ago >= 0 else situation.clocks.settled
    if settled < SETTLE_SECONDS:
        return _until_safe(
            "the last pods were deleted only a moment ago", again=SETTLE_SECONDS - settled
        )
    return None


def _until_safe(message: str, *, again: float | None = None) -> Wait:
    return Wait(QUEUED, Verdict(REASON_WAITING_FOR_SUSPEND, message), again=again)
