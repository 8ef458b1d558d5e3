"""A job that is not suspended: the barrier, the pins, and the wait for kube-scheduler."""

from collections.abc import Collection, Hashable
from dataclasses import replace

from kfext.core.eligibility import not_placed, unbound_claims
from kfext.core.ledger.claims import card_key, plan_key, slots_of
from kfext.core.ledger.ledger import Ledger
from kfext.core.ledger.ports import port_claims
from kfext.core.lifecycle.capacity import after_preemption, most_that_fit
from kfext.core.lifecycle.cards import (
    before_cards,
    no_slot_twice,
    while_unreserved,
    with_parts,
    without_card,
    without_share,
)
from kfext.core.lifecycle.forming import after_others, forming_without_capacity
from kfext.core.lifecycle.network import never_created, on_two_networks, started_without
from kfext.core.lifecycle.patience import (
    STRIKES,
    after_strike,
    behind_another_gate,
    by_suspension,
    gated_without_capacity,
    give_up,
    not_created,
    patience,
    suspend,
    until_strike,
)
from kfext.core.lifecycle.situation import Situation
from kfext.core.lifecycle.spare import (
    Live,
    Spare,
    at_gate,
    keep_training,
    spare_replicas,
    without_succeeded,
)
from kfext.core.lifecycle.steps import DeleteUnbound, Pin, Release, Replan, SaveState, Step, Wait
from kfext.core.observed import observed, untolerated_taints
from kfext.core.placement.gang import due_pods, members_of, present
from kfext.core.placement.place import place, still_fits
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Colocation
from kfext.core.words import listed, pods
from kfext.model.job_state import JobState
from kfext.model.plan import NO_SLOTS, Assignment, Plan
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.names import (
    BINDING,
    GATED,
    PHASE_RELEASED,
    PLACED,
    PLANNED,
    REASON_BIND_TIMEOUT,
    REASON_CREATE_TIMEOUT,
    REASON_PLACED,
    REASON_REPLANNED,
    REASON_WAITING_FOR_BIND,
    REASON_WAITING_FOR_PODS,
)

MISPINNED_SECONDS = 2.0
"""How long pins may differ from the plan: the watches of jobs and pods are not in step."""


def running_step(situation: Situation, ledger: Ledger) -> Step:
    """Return the step of a job that is not suspended."""
    step = _running_step(situation, ledger)
    if situation.forming or not situation.job.kind.recreates:
        step = by_suspension(situation, step)
    return while_unreserved(situation, step) if situation.shares_gpus else step


def _running_step(situation: Situation, ledger: Ledger) -> Step:
    live = present(situation.job, situation.pods)
    spare = spare_replicas(situation, live)
    gated = [pod for pod in live.values() if pod.gated]
    shares = situation.shares_gpus
    first = without_share(situation) if shares else None
    first = first or keep_training(situation, live, spare, _unplaceable(situation, gated, ledger))
    first = first or (without_card(situation) if shares else None)
    if first := first or _evict_again(situation.state, live, now=situation.now):
        return first
    step = without_succeeded(situation, live) or _gang_step(situation, ledger, live, spare)
    return keep_training(situation, live, spare, step) or step


def _unplaceable(situation: Situation, gated: Collection[Pod], ledger: Ledger) -> Step | None:
    """Return the step of a running job that kfext must not place; `gated`: its gated pods."""
    if situation.plan and not gated:
        return None
    why = not_placed(situation.job, gated, node_resources=ledger.resources)
    if gated:
        return _ungate_unpinned(situation, why or unbound_claims(situation.job, gated))
    return _report_unplaced(situation.settings, why)


def _ungate_unpinned(situation: Situation, why: Verdict | None) -> Step | None:
    """Ungate a gang without pins, also if it waits for a volume claim: kube-scheduler waits for it.

    A required job is suspended with a back-off, unless Kueue started it: its next pods may come
    without the terms that admission added.
    """
    if why is None:
        return None
    if situation.releases(why):
        return Release((), why)
    if situation.job.started_by:
        return Wait(GATED, why)
    return suspend(situation, situation.after_strike(why.reason, why.message))


def _report_unplaced(settings: Settings, why: Verdict | None) -> Wait:
    """Return the wait of a job that kfext never held, with the reason if it must not be placed."""
    if why is None or not settings.managed or settings.colocation is Colocation.OFF:
        return Wait(None)
    message = f"{why.message}; it runs as on plain Kubernetes"
    return Wait(PHASE_RELEASED, Verdict(why.reason, message))


def _gang_step(situation: Situation, ledger: Ledger, live: Live, spare: Spare) -> Step:
    """Return the step of a gang that kfext places: create its pods, ungate them, bind them."""
    job = situation.job
    due, timeout = due_pods(job, live), situation.placement.create_timeout
    if situation.failed_on and job.being_created:
        return SaveState(situation.state)  # its templates lose the nodes, so new pods are gated
    complete = bool(spare.absent) and _is_created(live, situation.clocks.quiet, timeout=timeout)
    if len(live) < due and not complete:
        return _incomplete(situation, live, due=due)
    on_host = situation.plan is not None and situation.plan.port > 0
    if on_host and (suspended := on_two_networks(situation, live)):
        return suspended
    if any(pod.gated for pod in live.values()):
        return after_others(situation) or _barrier(situation, ledger, live, spare)
    return _binding(situation, ledger, live)


def _is_created(live: Live, quiet: float, *, timeout: float) -> bool:
    """Return whether pods wait for a node and the operator creates no more pods."""
    waiting = any(not (pod.node_name or pod.finished) for pod in live.values())
    return waiting and quiet >= timeout


def _incomplete(situation: Situation, live: Live, *, due: int) -> Step:
    """Wait a limited time for the operator, which creates about ten pods a second."""
    job, limit = situation.job, situation.placement.create_timeout
    waited = situation.clocks.quiet
    verdict = Verdict(REASON_WAITING_FOR_PODS, f"{len(live)} of {due} pods exist")
    message = f"{verdict.message} and no pod was created for {limit:g} s"
    late = Verdict(REASON_CREATE_TIMEOUT, message)
    if any(pod.node_name for pod in live.values()) and not situation.forming:
        if not any(pod.gated for pod in live.values()):
            # No pod is gated, so the members run as they would without kfext.
            return Wait(PLACED, verdict)
        return patience(situation, Wait(GATED, verdict), late, limit=limit, waited=waited)
    if waited < limit or job.started_by:
        return Wait(PLANNED, verdict, again=limit - waited if waited < limit else None)
    if situation.plan and situation.plan.port:
        return never_created(situation, late)
    return not_created(situation, late, some=bool(live))


def _barrier(situation: Situation, ledger: Ledger, live: Live, spare: Spare) -> Step:
    """Check the plan against the present cluster once all pods exist, then ungate them all.

    A spare pod is ungated only if it has a node; otherwise the gang trains without it.
    """
    waiting = {key: pod for key, pod in live.items() if pod.gated}
    backs_off = situation.state.strikes >= STRIKES and situation.backs_off > 0
    # Pods that are not placed now must not prevent the start of other pods.
    later = {key for key in spare.waiting & waiting.keys() if backs_off or waiting[key].gates > 1}
    gated = {key: pod for key, pod in waiting.items() if key not in later} or waiting
    foreign = sum(pod.gates > 1 for pod in gated.values())
    if foreign:
        some_run = any(pod.node_name for pod in live.values())
        return behind_another_gate(situation, gates=foreign, some_run=some_run)
    if gated is waiting and later:
        why = Verdict(situation.state.reason, situation.state.message)
        return _wait_for_place(situation, ledger, live, why)
    if _others_first(gated.values(), live.values()):
        return _binding(situation, ledger, live)
    claims = [*(plan_key(situation.job.uid, key) for key in gated), *situation.usable_claims]
    if plan := situation.plan:
        job = situation.job
        claims += [card_key(job.uid, key) for key in gated]
        claims += port_claims(job, plan) if plan.port else ()
        planned = {key: pod for key, pod in gated.items() if key in plan.assignment}
        whole = bool(planned) and gated.keys() - spare.waiting <= planned.keys()
        whole &= not _failed_there(situation, live, gated)
        if whole and still_fits(
            [member for member in members_of(job, live.values()) if member.key in planned],
            after_preemption(situation, ledger),
            situation.limits,
            assignment=plan.assignment,
            ignoring=claims,
        ):
            recorded = _record_changes(situation, ledger, plan)
            return recorded or _card_step(situation, planned) or _pin(plan, planned)
    loose = [pod for pod in live.values() if not (pod.gated or pod.home or pod.finished)]
    remaining = situation.placement.bind_timeout - situation.clocks.longest_wait(loose)
    if loose and remaining > 0:
        # kube-scheduler chooses their nodes, and the other pods are planned around them.
        message = f"{len(loose)} pods that were created without kfext's gate are not bound yet"
        return Wait(GATED, Verdict(REASON_WAITING_FOR_BIND, message), again=remaining)
    return _replan(situation, ledger, live, gated, spare=spare, claims=claims)


def _failed_there(situation: Situation, live: Live, gated: Live) -> bool:
    """Return whether the plan has gated pods on nodes where the gang failed at its start.

    A node where other members run is not blamed until a replica has failed there twice.
    """
    plan, homes = situation.plan, {pod.home for pod in live.values() if not pod.finished}
    failed = situation.failed_on - (homes - situation.blamed)
    return plan is not None and not failed.isdisjoint(map(plan.assignment.get, gated))


def _replan(
    situation: Situation,
    ledger: Ledger,
    live: Live,
    gated: Live,
    *,
    spare: Spare,
    claims: Collection[Hashable],
) -> Step:
    """Return a new plan for gated pods that do not fit the present plan.

    `claims`: the claims of these pods on the ledger.
    """
    job, plan = situation.job, situation.plan
    bound = {key: pod.home for key, pod in live.items() if pod.home and not pod.finished}
    everyone = members_of(job, live.values())
    keys = [member.key for member in everyone if member.key in gated]
    wanted = [key for key in keys if key not in spare.waiting]
    others = [key for key in keys if key in spare.waiting]

    def placed(more: int) -> Assignment | Verdict:
        tried = {*wanted, *others[:more], *bound}
        members = [member for member in everyone if member.key in tried]
        within, blamed = situation.limits, situation.blamed
        return place(members, ledger, within, bound=bound, ignoring=claims, blamed=blamed)

    answer = most_that_fit(placed, fewest=0 if wanted else 1, most=len(others))
    if isinstance(answer, Verdict) and not wanted:
        return _wait_for_place(situation, ledger, live, answer)
    if situation.shares_gpus and not isinstance(answer, Verdict):
        answer = no_slot_twice(everyone, answer)
    if isinstance(answer, Verdict):
        if ungated := _being_bound(live):
            # A pod that kube-scheduler never binds is deleted, and does not wait with the others.
            return _binding(situation, ledger, ungated)
        return gated_without_capacity(situation, answer, gated=gated.values(), some_run=bool(bound))
    message = f"the pods go to {listed(sorted(set(answer.values())), noun='nodes')}"
    if failed := sorted(situation.failed_on):
        message += f"; pods failed at their start on {listed(failed, noun='nodes')}"
    # Pods keep their slots on any node; ended pods keep their nodes in the plan.
    port, slots = (plan.port, slots_of(job, plan)) if plan else (0, NO_SLOTS)
    ended = {key: plan.assignment[key] for key in slots if key not in answer} if plan else {}
    changed = situation.planned({**ended, **answer}, port=port, why=message, slots=slots)
    if plan is not None and any(pod.node_name for pod in live.values()):
        late = plan.late | (answer.keys() - plan.assignment.keys())
        changed = replace(changed, late=late)
    verdict = Verdict(REASON_REPLANNED, message)
    return Replan(changed, verdict, started_without(situation, changed))


def _being_bound(live: Live) -> Live:
    """Return the ungated pods if any of them is pinned and not bound, else no pods."""
    ungated = {key: pod for key, pod in live.items() if not pod.gated}
    pinned = (pod.pinned_to and not (pod.node_name or pod.finished) for pod in ungated.values())
    return ungated if any(pinned) else {}


def _wait_for_place(situation: Situation, ledger: Ledger, live: Live, why: Verdict) -> Step:
    """Return the wait of a gang that trains while some of its pods are gated."""
    if _being_bound(live):
        return _binding(situation, ledger, live)
    remaining = situation.backs_off if situation.state.strikes >= STRIKES else 0.0
    return at_gate(sum(pod.gated for pod in live.values()), why, again=remaining)


def _record_changes(situation: Situation, ledger: Ledger, plan: Plan) -> SaveState | None:
    """Record the changes of admission if the pods fit their nodes only with them.

    The plans for more workers and for the next start include these changes.
    """
    if not untolerated_taints(situation.job, plan.assignment, ledger):
        return None
    state = situation.state
    changes = observed(situation.job, situation.pods, state, plan=plan)
    return None if changes == state.observed else SaveState(replace(state, observed=changes))


def _card_step(situation: Situation, gated: Live) -> Step | None:
    if situation.shares_gpus or any(pod.has_slot for pod in gated.values()):
        return before_cards(situation, gated.values())
    return None


def _pin(plan: Plan, gated: Live) -> Pin:
    first = _first_to_pin(gated.values())
    pins = ((pod, plan.assignment[key]) for key, pod in gated.items() if pod.uid in first)
    return Pin(tuple(pins), plan.shares)


def _binding(situation: Situation, ledger: Ledger, live: Live) -> Step:
    """Wait a limited time for kube-scheduler to bind the ungated pods."""
    waiting = [pod for pod in live.values() if not pod.node_name and not pod.finished]
    total, state = due_pods(situation.job, live), situation.state
    if not waiting:
        placed = replace(state, strikes=0, excluded={}, retry_at=0.0, reason="", message="")
        placed = replace(placed, ask=None, queued_since=0.0, move=replace(state.move, source={}))
        placed = replace(placed, stop=replace(state.stop, waiting="", places={}))
        if state != placed or situation.job.being_created:
            return SaveState(placed)
        nodes = sorted({pod.node_name for pod in live.values()})
        message = f"{pods(total)} {'is' if total == 1 else 'are'} on {listed(nodes, noun='nodes')}"
        message = with_parts(situation.cards, message) if situation.shares_gpus else message
        return Wait(PLACED, Verdict(REASON_PLACED, message))
    stuck = tuple(pod for pod in waiting if pod.pinned_to)
    mispinned = _mispinned(situation.plan, stuck)
    if mispinned and situation.clocks.waited >= MISPINNED_SECONDS:
        message = f"{len(mispinned)} pods were pinned by an earlier plan and are not bound yet"
        return DeleteUnbound(mispinned, replace(state, reason=REASON_REPLANNED, message=message))
    forms = situation.forming and not mispinned  # mispinned pods are replaced first
    if forms and (step := forming_without_capacity(situation, ledger, live, stuck)):
        return step
    limit = situation.placement.bind_timeout
    remaining = until_strike(situation, limit=limit, waited=situation.clocks.longest_wait(stuck))
    if mispinned:
        remaining = MISPINNED_SECONDS - situation.clocks.waited
    message = f"{total - len(waiting)} of {total} pods are bound"
    if remaining > 0 or not stuck:
        verdict = Verdict(REASON_WAITING_FOR_BIND, message)
        return Wait(BINDING, verdict, again=remaining if remaining > 0 else None)
    report = next((pod.unschedulable for pod in stuck if pod.unschedulable), "nothing")
    message = f"{message} after {limit:g} s; kube-scheduler reports: {report}"
    homes = {pod.node_name for pod in live.values() if pod.node_name}
    return _move_unbound(situation, stuck, homes, late=Verdict(REASON_BIND_TIMEOUT, message))


def _evict_again(state: JobState, live: Live, *, now: float) -> Step | None:
    """Delete pods that are still pinned to an excluded node.

    Their first deletion failed, because kube-scheduler wrote to them at the same moment.
    """
    excluded = state.excluded_nodes(now)
    remaining = tuple(
        pod
        for pod in live.values()
        if pod.pinned_to in excluded and not (pod.node_name or pod.finished)
    )
    return DeleteUnbound(remaining, state) if remaining else None


def _mispinned(plan: Plan | None, stuck: tuple[Pod, ...]) -> tuple[Pod, ...]:
    """Return the pods that are pinned to a node other than planned.

    A pin that was sent before a change of the plan may arrive after it, and a pin is final.
    """
    places = plan.assignment if plan else {}
    return tuple(
        pod
        for pod in stuck
        if pod.replica and pod.pinned_to != places.get(pod.replica, pod.pinned_to)
    )


def _move_unbound(
    situation: Situation, stuck: tuple[Pod, ...], homes: Collection[str], *, late: Verdict
) -> Step:
    """Move pods that kube-scheduler did not bind; give up after three attempts."""
    state = after_strike(situation, late, limit=situation.placement.bind_timeout)
    if state.strikes >= STRIKES and not (situation.never_released and situation.job.started_by):
        return give_up(situation, late, stuck=stuck)
    # A job with a limit on its nodes must keep the nodes where members run.
    together = situation.limits.max_nodes is not None or situation.shares_gpus
    allowed = homes if together else ()
    nodes = [pod.pinned_to for pod in stuck if pod.pinned_to and pod.pinned_to not in allowed]
    return DeleteUnbound(stuck, state.with_excluded(nodes, now=situation.now))


def _first_to_pin(gated: Collection[Pod]) -> frozenset[str]:
    """Return the uids of the pods to pin now: the pods of the highest priority.

    For a pinned pod kube-scheduler has only one node. If another pod uses the capacity there,
    kube-scheduler preempts pods of lower priority, which may be members of the same gang. A member
    that is not bound yet cannot be preempted, and a later pin of lower priority preempts none.
    """
    highest = max((pod.priority for pod in gated), default=0)
    return frozenset(pod.uid for pod in gated if pod.priority == highest)


def _others_first(gated: Collection[Pod], live: Collection[Pod]) -> bool:
    """Return whether a member of higher priority than a gated pod is pinned and not bound yet."""
    lowest_gated = min((pod.priority for pod in gated), default=0)
    return any(
        pod.priority > lowest_gated and pod.pinned_to and not (pod.node_name or pod.finished)
        for pod in live
    )
