"""A job that shares GPUs: its slots, the waits of its pods, and the reasons to stop it."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from kfext import names
from kfext.core.ledger.cards import as_written, shares_by_type
from kfext.core.ledger.ledger import Ledger
from kfext.core.lifecycle.patience import suspend
from kfext.core.lifecycle.situation import CardView, Situation
from kfext.core.lifecycle.steps import DeleteUnbound, Step, Ungate, Wait
from kfext.core.placement.gang import Member
from kfext.core.settings.resolve import requested_share
from kfext.core.settings.values import HIGH, LOW
from kfext.core.words import listed, pods
from kfext.model.gpu import UNITS, GpuShare, Place, has_slot_units, slot_units
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from kfext.model.plan import Assignment, Plan, Slots
from kfext.model.pod import Pod
from kfext.model.quantity import MEMORY, amount_text
from kfext.model.shared_gpu import (
    INFEASIBLE_MESSAGE,
    UNHOOKED,
    CardSharer,
    SharedGpu,
    coarse_message,
    shut_out_message,
)
from kfext.model.verdict import Verdict
from kfext.names import (
    GATED,
    NATIVE_GPU,
    REASON_CARD_LOST,
    REASON_CARD_TIMEOUT,
    REASON_EVICTED,
    REASON_NO_ROOM,
    REASON_SHARE_EDITED,
    REASON_SHARE_REFUSED,
    REASON_WAITING_FOR_CARD,
    SUSPENDED,
)

IN_KUEUE = Verdict(
    REASON_SHARE_REFUSED, "another system starts it, so kfext cannot place its GPU shares"
)
"""Shown while Kueue still queues the job, so that its owner can edit it before it wastes quota."""

_MIN_FALL = 50
"""A lower use of a GPU, in thousandths, is stored only if it is lower by this, to save writes."""
_WHOLE_GPU = "1 (a whole GPU)"


def slots_for(
    members: Sequence[Member],
    assignment: Assignment,
    ledger: Ledger,
    *,
    closed: Collection[Place] = (),
    ignoring: Collection[Hashable] = (),
) -> Slots | None:
    """Return the slots of the members that share GPUs; None means too few slots.

    No `closed` slot is used. `ignoring`: the claims of the members themselves.
    """
    by_node: dict[str, list[Member]] = {}
    for member in members:
        by_node.setdefault(assignment[member.key], []).append(member)
    slots, cards = {}, ledger.closing(closed).cards(ignoring=ignoring)
    for node, present in by_node.items():
        sharing = [(member.key, member.card) for member in present if member.card is not None]
        row = ledger.row(node)
        if row is None or not sharing:
            continue
        whole = sum(member.requests.get(NATIVE_GPU, 0) for member in present)
        chosen = cards.choose(row, [need for _, need in sharing], whole=whole)
        if chosen is None:
            return None
        slots.update({key: slot for (key, _), slot in zip(sharing, chosen, strict=True)})
    return slots


def no_slot_twice(members: Sequence[Member], assignment: Assignment) -> Assignment | Verdict:
    """Return the assignment, or a verdict if two members would have the same slot.

    The search for nodes ignores slot numbers, because a gang has no slots when it is first placed.
    A later search may assign two pods with the same slot number to one node.
    """
    taken = set()
    for member in members:
        if member.key in assignment and member.card is not None and member.card.slot is not None:
            node, slot = place = (assignment[member.key], member.card.slot)
            if place in taken:
                message = f"two of its pods would be in slot {slot} of {node}"
                return Verdict(REASON_NO_ROOM, message)
            taken.add(place)
    return assignment


def without_share(situation: Situation) -> Step | None:
    """Return the step of a running job that lacks its slots, or None for any other job.

    Another client resumed it, and the webhook refuses its pods, because no slot accounts for them.
    A job with GPU shares that were edited while it was stopped is placed anew.
    """
    job, plan = situation.job, situation.plan
    # Once a pod has a node, an edit has no effect until the next start.
    may_differ = not (job.started_by or any(pod.home for pod in situation.pods))
    if may_differ and (edited := edited_shares(job, plan)):
        return _back_to_queue(situation, Verdict(REASON_SHARE_EDITED, edited))
    sharing = any(group.share and group.replicas for group in job.groups)
    if not sharing or (plan is not None and plan.slots):
        return None
    if job.started_by:
        return Wait(SUSPENDED, IN_KUEUE)
    message = "it was resumed by hand, but its GPU shares had not been placed"
    # No placement has failed, so it does not back off.
    state = replace(situation.state, reason=REASON_SHARE_REFUSED, message=message)
    return suspend(situation, state)


def without_card(situation: Situation) -> Step | None:
    """Return the stop of a job that must leave its GPUs, or None."""
    cards = situation.cards
    if cards.evicted:
        message = f"the jobs on {_slots(cards.evicted)} slowed each other down too much"
        state, before = situation.state, situation.state.apart
        apart = {**dict.fromkeys(before), **dict.fromkeys(cards.rivals)}
        # A bind resets the strikes, and every evicted job was bound. So the jobs that could not
        # share a GPU with it (`apart`) count as strikes, for a longer back-off each time.
        state = replace(state, apart=tuple(apart), strikes=max(state.strikes, len(before)))
        return _back_to_queue(replace(situation, state=state), Verdict(REASON_EVICTED, message))
    if cards.troubles and not any(pod.node_name for pod in situation.pods):
        # Once the job has left, its slot may look healthy, so the node is excluded for a while.
        late = Verdict(REASON_CARD_LOST, _why_lost(cards))
        return _back_to_queue(situation, late, shunned=cards.troubles)
    if not _runs(situation.pods):
        return None
    if cards.lost:
        return _back_to_queue(situation, Verdict(REASON_CARD_LOST, _why_lost(cards)))
    limit = situation.placement.bind_timeout
    if lost := [place for place, since in situation.clocks.unreserved.items() if since >= limit]:
        message = f"the GPU of {_slots(lost)} is no longer reserved, and was not reserved again"
        late = Verdict(REASON_CARD_LOST, f"{message} within {limit:g} s")
        return _back_to_queue(situation, late, shunned=lost)
    return None


def while_unreserved(situation: Situation, step: Step) -> Step:
    """Return the step, with a wait shortened to stop a job with an unreserved GPU in time."""
    if not (isinstance(step, Wait) and situation.clocks.unreserved and _runs(situation.pods)):
        return step
    remaining = situation.placement.bind_timeout - max(situation.clocks.unreserved.values())
    return replace(step, again=remaining if step.again is None else min(remaining, step.again))


def before_cards(situation: Situation, gated: Collection[Pod]) -> Step | None:
    """Return the step of a gang that only waits for its GPUs, or None."""
    plan, unready = situation.plan, situation.cards.unready
    if unplanned := [pod for pod in gated if not _has_planned_share(plan, pod)]:
        message = f"{pods(len(unplanned))} with another GPU share than planned"
        return _back_to_queue(situation, Verdict(REASON_SHARE_REFUSED, message))
    if plan is None or not unready:
        return None
    limit = situation.placement.bind_timeout
    # A pod may be gated long before the job is planned: only the time since the later event counts.
    waited = min(situation.clocks.longest_wait(gated), situation.clocks.waited)
    message = f"waits for the agent to report a GPU for {_slots(unready)}"
    if waited < limit:
        return Wait(GATED, Verdict(REASON_WAITING_FOR_CARD, message), again=limit - waited)
    late = Verdict(REASON_CARD_TIMEOUT, f"{message}: none within {limit:g} s")
    return _back_to_queue(situation, late, shunned=unready)


def ungate_unplaced(state: JobState, gated: Collection[Pod]) -> Step:
    """Ungate pods that kfext does not place, but delete pods with GPU shares.

    No slot would account for these shares. The operator creates the pods again with whole GPUs.
    """
    parts = tuple(pod for pod in gated if has_slot_units(pod.requests))
    if not parts:
        return Ungate(tuple(gated))
    message = f"{pods(len(parts))} with GPU shares must not start unplaced"
    state = replace(state, reason=REASON_SHARE_REFUSED, message=message)
    return DeleteUnbound(parts, state)


def use_to_store(situation: Situation) -> Mapping[str, int]:
    """Return the use of GPUs to store for a job, in thousandths, by replica type.

    The use of a type is the use of its busiest replica. It is stored once the agents have measured
    all its replicas: higher use at once, lower use only if it is clearly lower. The stored use is
    deleted when a replica can no longer be measured.
    """
    sharers = {sharer.pod: sharer for _, sharer in situation.cards.parts}
    busy = dict(situation.state.busy)
    for group in situation.job.groups if sharers else ():
        type_ = group.type.lower()
        pods = (pod for pod in situation.pods if pod.replica and pod.replica.type == type_)
        members = [sharers.get(pod.uid) for pod in pods if not (pod.deleting or pod.finished)]
        if any(sharer and sharer.unhooked for sharer in members):
            busy.pop(type_, None)
            continue
        uses = [sharer.busy for sharer in members if sharer and sharer.busy is not None]
        if uses and len(uses) == len(members) == group.replicas:
            busiest = max(uses)
            if not busiest <= busy.get(type_, -1) < busiest + _MIN_FALL:
                busy[type_] = busiest
    return busy


def with_last_attempt(state: JobState, message: str, *, now: float) -> str:
    """Add the reason for the last stop to a message while nodes are still excluded for it."""
    failed = state.excluded_nodes(now) and state.reason in {REASON_CARD_LOST, REASON_CARD_TIMEOUT}
    return f"{message}; it was stopped before: {state.message}" if failed else message


def with_parts(cards: CardView, message: str) -> str:
    """Add the GPU shares of a job's pods to a message, rounded to whole percent."""
    parts = [_part_message(gpu, sharer) for gpu, sharer in cards.parts]
    return f"{message}; {listed(parts, noun='shares')}" if parts else message


def edited_shares(job: TrainingJob, plan: Plan | None) -> str:
    """Return a sentence about GPU settings that were edited after the plan, or an empty string."""
    if plan is None or job.suspend or job.finished or job.released:
        return ""
    wanted = shares_by_type(requested_share(job), as_written(job))
    changes = [
        f"{key} of {type_} is {has} and was edited to {wants}"
        for type_ in sorted({*plan.shares, *wanted})
        for key, has, wants in _changes(plan.shares.get(type_), wanted.get(type_))
    ]
    return f"{'; '.join(changes)}; edits hold from the next start" if changes else ""


def _runs(members: Iterable[Pod]) -> bool:
    return any(pod.node_name and not pod.finished for pod in members)


def _part_message(gpu: SharedGpu, sharer: CardSharer) -> str:
    others = len(gpu.sharers) - 1
    words = f"slot {gpu.slot} of {gpu.node}"
    words += f" ({gpu.card})" if gpu.card else ""
    words += f" with {others} other{'s' * (others > 1)}" if others else " alone"
    if sharer.loss is not None:
        words += f", losing {round(sharer.loss / 10)} %"
    if sharer.gets is not None:
        words += f", working {round(sharer.gets / 10)} % of the time"
    if sharer.infeasible:
        words += f", {INFEASIBLE_MESSAGE}"
    if sharer.strikes:
        words += f", {shut_out_message(sharer.strikes)}"
    if sharer.unhooked:
        words += f", not hooked: {UNHOOKED[sharer.unhooked]}"
    if sharer.coarse is not None:
        words += f", {coarse_message(sharer.coarse)}"
    return words


def _why_lost(cards: CardView) -> str:
    by_trouble: dict[str, list[Place]] = {}
    for place, trouble in cards.troubles.items():
        by_trouble.setdefault(trouble, []).append(place)
    causes = [
        f"{_slots(places)} cannot be shared: {trouble}" for trouble, places in by_trouble.items()
    ]
    if others := [place for place in cards.lost if place not in cards.troubles]:
        causes.append(f"the GPU of {_slots(others)} is not the GPU that it used")
    return "; ".join(causes)


def _has_planned_share(plan: Plan | None, pod: Pod) -> bool:
    if plan is None or pod.replica is None:
        return True
    slot = plan.slots.get(pod.replica)
    wanted = {} if slot is None else {slot: plan.shares[pod.replica.type].units}
    return slot_units(pod.requests) == wanted


def _back_to_queue(
    situation: Situation, verdict: Verdict, *, shunned: Iterable[Place] = ()
) -> Step:
    """Suspend a job with a back-off, and exclude the nodes of the `shunned` slots for a while."""
    state = situation.after_strike(verdict.reason, verdict.message)
    nodes = (node for node, _ in shunned)
    return suspend(situation, state.with_excluded(nodes, now=situation.now))


def _slots(places: Iterable[Place]) -> str:
    return listed([f"slot {slot} of {node}" for node, slot in places], noun="slots")


def _changes(has: GpuShare | None, wants: GpuShare | None) -> Iterator[tuple[str, str, str]]:
    """Yield each changed key, its value in the plan and its value on the job."""
    if has == wants:
        return
    if has is None or wants is None:
        share = f"{(has or wants or GpuShare(UNITS)).units / UNITS:g}"
        yield (names.GPU_SHARE, share, _WHOLE_GPU) if has else (names.GPU_SHARE, _WHOLE_GPU, share)
        return
    terms = _terms(wants)
    for key, value in _terms(has).items():
        if terms[key] != value:
            yield key, value, terms[key]


def _terms(share: GpuShare) -> Mapping[str, str]:
    memory = "in proportion" if share.memory is None else amount_text(MEMORY, share.memory)
    return {
        names.GPU_SHARE: f"{share.units / UNITS:g}",
        names.GPU_MEMORY: memory,
        names.GPU_PRIORITY: HIGH if share.high else LOW,
        names.GPU_LOSS_BUDGET: f"{share.loss_budget:g}",
        names.GPU_MIN_SHARE: f"{share.min_share:g}",
    }
