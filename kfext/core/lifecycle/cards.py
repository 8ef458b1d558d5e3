"""A job that shares GPUs: what its pods wait for before they start, and what stops it."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from kfext.core.lifecycle.patience import suspend
from kfext.core.lifecycle.situation import Situation
from kfext.core.lifecycle.steps import Step, Wait
from kfext.core.words import listed, pods
from kfext.model.gpu_slots import slot_of
from kfext.model.job_state import EXCLUDED_SECONDS
from kfext.model.pod import Pod
from kfext.model.shared_gpu import Place
from kfext.model.verdict import Verdict
from kfext.names import (
    GATED,
    REASON_CARD_LOST,
    REASON_CARD_TIMEOUT,
    REASON_EVICTED,
    REASON_SHARE_REFUSED,
    REASON_WAITING_FOR_CARD,
    SUSPENDED,
)

KUEUE = "Kueue starts this job, and kfext cannot place parts of GPUs for it then"


def without_share(situation: Situation) -> Step | None:
    """Return what to do with a job that runs and has no slots, None if it has or needs none.

    Somebody has resumed it. The webhook creates none of its pods, as nothing accounts for them.
    """
    job, plan = situation.job, situation.plan
    sharing = any(group.share and group.replicas for group in job.groups)
    if not sharing or (plan is not None and plan.slots):
        return None
    if job.kueue_managed:
        return Wait(SUSPENDED, Verdict(REASON_SHARE_REFUSED, KUEUE))
    message = "it was resumed by hand, but its parts of GPUs had not been placed"
    return _back_to_queue(situation, Verdict(REASON_SHARE_REFUSED, message))


def without_card(situation: Situation) -> Step | None:
    """Return the stop of a job whose pods must not go on with what they have of a GPU."""
    cards = situation.cards
    if cards.evicted:
        message = f"the jobs on {_named(cards.evicted)} lost too much to each other"
        return _back_to_queue(situation, Verdict(REASON_EVICTED, message), shunned=cards.evicted)
    if cards.moved:
        message = f"another GPU is reserved now for {_named(cards.moved)}"
        return _back_to_queue(situation, Verdict(REASON_CARD_LOST, message))
    return None


def before_cards(situation: Situation, gated: Collection[Pod]) -> Step | None:
    """Return what to do with a gang that may start but for its GPUs, None if they are reserved."""
    plan, unready = situation.plan, situation.cards.unready
    if odd := [pod for pod in gated if not _as_planned(situation, pod)]:
        message = f"another part of a GPU than was planned is requested by {pods(len(odd))}"
        return _back_to_queue(situation, Verdict(REASON_SHARE_REFUSED, message))
    if plan is None or not unready:
        return None
    limit = situation.placement.bind_timeout
    waited = situation.longest_wait(gated)
    message = f"waits for the agent to report a GPU for {_named(unready)}"
    if waited < limit:
        verdict = Verdict(REASON_WAITING_FOR_CARD, message)
        return Wait(GATED, verdict, again=limit - waited)
    late = Verdict(REASON_CARD_TIMEOUT, f"{message}: none within {limit:g} s")
    return _back_to_queue(situation, late, shunned=unready)


def _as_planned(situation: Situation, pod: Pod) -> bool:
    """Return whether a pod requests what it was promised, and where."""
    plan = situation.plan
    if plan is None or pod.replica is None:
        return True
    found = {slot: n for name, n in pod.requests.items() if (slot := slot_of(name)) is not None}
    slot = plan.slots.get(pod.replica)
    wanted = {} if slot is None else {slot: plan.shares[pod.replica.type].units}
    return found == wanted


def _back_to_queue(
    situation: Situation, verdict: Verdict, *, shunned: Iterable[Place] = ()
) -> Step:
    """Suspend a job for some time; it is not placed on the nodes of these slots for a while."""
    state = situation.after_strike(verdict.reason, verdict.message)
    until = situation.now + EXCLUDED_SECONDS
    excluded = {**state.excluded, **{node: until for node, _ in shunned}}
    return suspend(situation, replace(state, excluded=excluded))


def _named(places: Iterable[Place]) -> str:
    return listed([f"slot {slot} of {node}" for node, slot in places], of="slots")
