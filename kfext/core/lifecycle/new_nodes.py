"""The ask of a gang for new nodes: its start, its wait for the autoscaler, and its end.

An open ask is recorded in the state of the job. While it is open, placeholders in a namespace of
kfext have the requests of the missing pods of the gang, so that any autoscaler adds nodes
(state.mirror.placeholders). No pod of a queued gang exists before there is capacity for all.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from kfext.core.elastic import workers_of
from kfext.core.lifecycle.situation import NodeView, Situation
from kfext.core.lifecycle.steps import SaveState, Step, Wait
from kfext.core.patches.placeholder import MAX_NODE_TERMS, node_terms
from kfext.core.placement.gang import members_of, on_one_node
from kfext.core.words import clock, nodes, pods
from kfext.model.backoff import exponential_backoff
from kfext.model.bounds import cut
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from kfext.model.node_ask import NodeAsk
from kfext.model.plan import Assignment
from kfext.model.quantity import PODS
from kfext.model.timestamps import past, seconds_until
from kfext.model.verdict import Verdict
from kfext.names import (
    GATED,
    QUEUED,
    REASON_BACKING_OFF,
    REASON_NO_ELIGIBLE_NODE,
    REASON_NO_NEW_NODES,
    REASON_NO_ROOM,
    REASON_RESERVED,
    REASON_TOO_BIG,
    REASON_WAITING_FOR_NODES,
    REASON_WAITING_FOR_OPERATOR,
    REASON_WAITING_FOR_SUSPEND,
)

LACKS_NODES = frozenset({REASON_NO_ROOM, REASON_TOO_BIG, REASON_NO_ELIGIBLE_NODE})
"""Reasons to wait that new nodes can end."""
_STAYS_OPEN = LACKS_NODES | {REASON_RESERVED, REASON_WAITING_FOR_OPERATOR}
"""With these reasons to wait an open ask stays open: nodes can end the wait, or it soon ends."""
_PASSES = frozenset({REASON_WAITING_FOR_SUSPEND, REASON_BACKING_OFF})  # without new nodes
HOPELESS_SECONDS, ASK_SECONDS, SOON_SECONDS = 2.0, 10.0, 60.0
"""The time without capacity before a job asks: HOPELESS if it would not fit the empty cluster, SOON
while running jobs should free the capacity within EXPECTED_SECONDS, and ASK for other jobs."""
EXPECTED_SECONDS = 180.0
GIVE_UP_SECONDS = 1200.0
"""The longest ask: Karpenter and cluster-autoscaler wait 15 minutes for a machine that never joins,
and then try again."""
NO_PROGRESS_SECONDS = 300.0
"""The time without progress after which an ask with some new nodes ends."""
_LONGEST = 256  # characters of a refusal
_FIRST_PAUSE, _LONGEST_PAUSE = 300.0, 2400.0
"""The pause after an ask that brought too few nodes; it doubles each time, up to the longest."""
MAX_PLACEHOLDERS = 500


def queued_ask(
    situation: Situation, why: Verdict, *, requested: int, expected: Callable[[], float]
) -> Step | None:
    """Return the step of a queued job about new nodes, or None to wait as without an autoscaler.

    `why`: the refusal of its start.
    `requested`: its requested workers; quotas may allow fewer.
    `expected`: returns the seconds until running jobs should have freed enough capacity.
    """
    is_open, job = situation.has_open_ask, situation.job
    if not (situation.may_ask and why.reason in (_STAYS_OPEN if is_open else LACKS_NODES)):
        return end_ask(situation)
    if is_open:
        return _wait_for_nodes(situation, why, QUEUED)
    if wait := _before_ask(situation, why, expected):
        return wait
    workers = workers_of(job)
    return _open_ask(situation, workers if workers < requested else 0, number=job.pods)


def _before_ask(situation: Situation, why: Verdict, expected: Callable[[], float]) -> Wait | None:
    """Return the wait of a queued job that does not ask yet, or None when it may ask."""
    if never := _why_never(situation.job):
        verdict = Verdict(REASON_NO_NEW_NODES, f"{why.message}; {never}")
        return Wait(QUEUED, verdict, not_started_reason=why.reason)
    if pause := _pause(situation, why, QUEUED) or _too_soon(situation, why, expected):
        return pause
    turn = situation.context.nodes.turn()
    verdict = Verdict(REASON_WAITING_FOR_NODES, f"{why.message}; {turn}")
    return Wait(QUEUED, verdict, not_started_reason=why.reason) if turn else None


def _why_never(job: TrainingJob) -> str:
    """Return the obstacle to any ask for the nodes of a job, or an empty string."""
    if job.pods > MAX_PLACEHOLDERS:
        return f"{pods(job.pods)} are more than kfext asks an autoscaler for ({MAX_PLACEHOLDERS})"
    terms = max((node_terms(group.constraints) for group in job.groups), default=1)
    if terms > MAX_NODE_TERMS:
        message = f"its volumes allow {terms} combinations of nodes, more than kfext asks for"
        return f"{message} ({MAX_NODE_TERMS})"
    return ""


def members_ask(situation: Situation, why: Verdict, *, gated: int, waited: float) -> Step | None:
    """Return the step of a running gang with `gated` pods that lack a node, or None.

    `waited`: the seconds that the pods have been at the gate.
    A new node does not help pods that must be on the node of the other members. The pods do not
    queue for an ask, because the other members occupy nodes meanwhile.
    """
    constraints = (group.constraints for group in situation.job.groups)
    helps = why.reason in LACKS_NODES and not on_one_node(constraints, situation.limits)
    if not (situation.may_ask and helps):
        return end_ask(situation)
    if situation.has_open_ask:
        return _wait_for_nodes(situation, why, GATED)
    if _pause_left(situation) or situation.context.nodes.turn():
        return None
    if waited < ASK_SECONDS:
        return Wait(GATED, why, again=ASK_SECONDS - waited)
    return _open_ask(situation, 0, number=gated)


def why_unheld(situation: Situation, places: Assignment) -> Verdict | None:
    """Return a verdict if placeholders do not yet hold a gang's capacity on its new nodes."""
    held = situation.context.nodes.held
    if held is None:
        return None
    needed: dict[str, Counter[str]] = {}
    for member in members_of(situation.job):
        if (node := places.get(member.key, "")) in held:
            needed.setdefault(node, Counter()).update({**member.requests, PODS: 0})
    if all(needed[node] <= Counter(held[node]) for node in needed):
        return None
    return Verdict(REASON_NO_ROOM, "its new nodes do not hold capacity for all of its pods yet")


def limit_wait(situation: Situation, wait: Wait) -> Step:
    """Return the wait of a job with an open ask, or the step that closes the ask.

    The ask ends at once if new nodes cannot end the wait and the reason does not pass by itself,
    and after GIVE_UP_SECONDS in any case.
    """
    reason = wait.verdict.reason if wait.verdict else ""
    if reason == REASON_WAITING_FOR_NODES:
        return wait
    began = past((situation.state.ask or NodeAsk()).since, now=situation.now)
    remaining = began + GIVE_UP_SECONDS - situation.now
    queued = wait.phase == QUEUED and reason not in _STAYS_OPEN | _PASSES
    if remaining <= 0 or queued or not situation.may_ask:
        return SaveState(without_ask(situation.state))
    return replace(wait, again=remaining if wait.again is None else min(remaining, wait.again))


def end_ask(situation: Situation) -> SaveState | None:
    """Return the step that closes the open ask of a job that needs no nodes, or None."""
    return SaveState(without_ask(situation.state)) if situation.has_open_ask else None


def without_ask(state: JobState) -> JobState:
    """Return the state of a job without an open ask."""
    return replace(state, ask=state.ask and replace(state.ask, since=0.0, workers=0))


def _open_ask(situation: Situation, workers: int, *, number: int) -> SaveState:
    """Return the step that opens an ask for the nodes of `number` pods."""
    state = situation.state
    if state.reason == REASON_NO_NEW_NODES:
        state = replace(state, reason="", message="")
    ask = NodeAsk(number=(state.ask or NodeAsk()).number + 1, since=situation.now, workers=workers)
    message = f"kfext asks the autoscaler for nodes for {pods(number)}"
    verdict = Verdict(REASON_WAITING_FOR_NODES, message)
    return SaveState(replace(state, ask=ask), verdict=verdict)


def _wait_for_nodes(situation: Situation, why: Verdict, phase: str) -> Step:
    """Return the wait for nodes, or the step that closes an ask that brought too few."""
    view, now = situation.context.nodes, situation.now
    began = past((situation.state.ask or NodeAsk()).since, now=now)
    until = began + GIVE_UP_SECONDS
    if view.progressed_at > began:
        until = min(until, view.progressed_at + NO_PROGRESS_SECONDS)
    if until <= now or view.refused:
        return _give_up(situation, view)
    have = f"{view.bound} of {pods(view.wanted)} have capacity"
    where = f" on {nodes(view.came)} that came" if view.came else ""
    message = f"kfext has asked the autoscaler for nodes: {have}{where}"
    message = f"{message}; it gives up at {clock(until)} if nothing changes; {why.message}"
    verdict = Verdict(REASON_WAITING_FOR_NODES, message)
    return Wait(phase, verdict, again=until - now, not_started_reason=why.reason)


def _give_up(situation: Situation, view: NodeView) -> SaveState:
    """Return the step that closes a failed ask; the pause before the next is longer each time."""
    number = (situation.state.ask or NodeAsk()).number
    pause = exponential_backoff(number, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
    came = f"{nodes(view.came)} came" if view.came else "no node came"
    message = f"{came}, and {view.wanted - view.bound} of {pods(view.wanted)} have no capacity"
    if view.refused:
        message = f"the API server refuses its placeholders: {cut(view.refused, most=_LONGEST)}"
    state = replace(situation.state, reason=REASON_NO_NEW_NODES, message=message)
    state = replace(state, ask=NodeAsk(number, again_at=situation.now + pause))
    return SaveState(state, verdict=Verdict(REASON_NO_NEW_NODES, message), warns=True)


def _pause(situation: Situation, why: Verdict, phase: str) -> Wait | None:
    state, remaining = situation.state, _pause_left(situation)
    if not remaining:
        return None
    result = state.message if state.reason == REASON_NO_NEW_NODES else "the last ask got no nodes"
    message = f"{result}; kfext asks again at {clock(situation.now + remaining)}; {why.message}"
    verdict = Verdict(REASON_NO_NEW_NODES, message)
    return Wait(phase, verdict, again=remaining, not_started_reason=why.reason)


def _pause_left(situation: Situation) -> float:
    ask = situation.state.ask
    return seconds_until(ask.again_at, now=situation.now, longest=_LONGEST_PAUSE) if ask else 0.0


def _too_soon(situation: Situation, why: Verdict, expected: Callable[[], float]) -> Wait | None:
    after, waited = ASK_SECONDS, situation.in_line
    if why.reason != REASON_NO_ROOM and not situation.restricted:
        after, waited = HOPELESS_SECONDS, situation.clocks.never_fits
    elif waited < SOON_SECONDS and expected() <= EXPECTED_SECONDS:
        after = SOON_SECONDS
    if waited >= after:
        return None
    asks = f"kfext asks the autoscaler for nodes for {pods(situation.job.pods)} after {after:g} s"
    message = f"{why.message}; if this lasts, {asks}; it decides whether to add them"
    return Wait(QUEUED, Verdict(why.reason, message), again=after - waited)
