"""A job that is not suspended: the barrier, the pins, and the wait for kube-scheduler."""

from collections.abc import Mapping
from dataclasses import replace

from kfext.core.claims import plan_key
from kfext.core.explain import listed
from kfext.core.gang import members_of
from kfext.core.ledger import Ledger
from kfext.core.plan import place, still_fits
from kfext.core.situation import Situation
from kfext.core.steps import Amend, Bind, Evict, Release, Remember, Step, Stop, Wait
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.state import JobState
from kfext.model.verdict import Verdict
from kfext.names import (
    BINDING,
    GATED,
    PLACED,
    PLANNED,
    REASON_BIND_TIMEOUT,
    REASON_CREATE_TIMEOUT,
    REASON_FOREIGN_GATE,
    REASON_NO_ROOM,
    REASON_PLACED,
    REASON_REPLANNED,
    REASON_WAITING_FOR_BIND,
    REASON_WAITING_FOR_PODS,
)

STRIKES = 3
"""Placements in a row that may fail before kfext gives up on placing the job."""
EXCLUDED_SECONDS = 300.0
"""How long a node that did not take a pod is out of the question for its job."""

Live = Mapping[ReplicaKey, Pod]
"""The pods of a job that are not being deleted, by replica."""


def running_step(situation: Situation, ledger: Ledger) -> Step:
    """Return what to do for a job that is not suspended."""
    job = situation.job
    sizes = {group.type.lower(): group.replicas for group in job.groups}
    live = {
        pod.replica: pod
        for pod in situation.pods
        # The operator deletes what is beyond the replicas; until then it is none of ours.
        if not pod.deleting and pod.replica and pod.replica.index < sizes.get(pod.replica.type, 0)
    }
    gated = [pod for pod in live.values() if pod.gated]
    if situation.plan is None and not gated:
        return Wait(None)  # not placed by kfext
    if len(live) < job.pods:
        return _incomplete(situation, live, missing=job.pods - len(live))
    if gated:
        return _barrier(situation, ledger, live)
    return _binding(situation, live)


def _incomplete(situation: Situation, live: Live, *, missing: int) -> Step:
    """Wait for the operator, which creates about ten pods a second; the wait has an end."""
    job, limit = situation.job, situation.placement.create_timeout
    verdict = Verdict(REASON_WAITING_FOR_PODS, f"{job.pods - missing} of {job.pods} pods exist")
    if any(pod.node_name for pod in live.values()):
        # Members that run are never stopped for one that does not come back.
        return Wait(PLACED if not any(pod.gated for pod in live.values()) else GATED, verdict)
    left = limit - min(situation.waited, situation.quiet)
    if left > 0 or job.kueue_managed:
        return Wait(PLANNED, verdict, again=max(left, 1.0))
    message = f"{verdict.message} and no pod was created for {limit:g} s"
    state = situation.after_strike(REASON_CREATE_TIMEOUT, message)
    return Stop(replace(state, suspended_at=situation.now))


def _barrier(situation: Situation, ledger: Ledger, live: Live) -> Step:
    """All pods exist: check the plan against the cluster as it is now, then let them go at once."""
    job, plan = situation.job, situation.plan
    gated = {key: pod for key, pod in live.items() if pod.gated}
    foreign = sum(len(pod.gates) > 1 for pod in gated.values())
    if foreign:
        message = f"{foreign} pods are held by another system's scheduling gate too"
        return Wait(GATED, Verdict(REASON_FOREIGN_GATE, message))
    bound = {key: pod.home for key, pod in live.items() if pod.home and not pod.finished}
    everyone = members_of(job, live.values())
    members = [member for member in everyone if member.key in gated]
    own = [plan_key(job.uid, key) for key in gated]
    if plan is not None and still_fits(
        members,
        ledger,
        assignment=plan.assignment,
        excluded=situation.excluded,
        ignoring=own,
    ):
        return Bind(tuple((pod, plan.assignment[key]) for key, pod in gated.items()))
    found = place(
        [member for member in everyone if member.key in gated or member.key in bound],
        ledger,
        one_node=situation.one_node,
        bound=bound,
        excluded=situation.excluded,
        ignoring=own,
        assumed=situation.placement.assumed_requests,
    )
    if not isinstance(found, Verdict):
        amended = situation.planned(found)
        return Amend(amended, Verdict(REASON_REPLANNED, f"the pods go to {listed(amended.nodes)}"))
    return _without_room(situation, found, some_run=bool(bound))


def _without_room(situation: Situation, found: Verdict, *, some_run: bool) -> Step:
    """Return what to do with a gated gang whose room is gone: members that run are left alone."""
    state = situation.state
    if some_run and situation.one_node and state.strikes and not situation.job.kueue_managed:
        # kube-scheduler took only some of them on the one node, and no other will do.
        state = situation.after_strike(REASON_BIND_TIMEOUT, state.message)
        return Stop(replace(state, suspended_at=situation.now))
    if some_run or situation.job.kueue_managed:
        return Wait(GATED, found)
    message = f"the room was taken before all pods existed: {found.message}"
    return Stop(
        replace(
            state,
            suspended_at=situation.now,
            retry_at=0.0,
            reason=REASON_NO_ROOM,
            message=message,
        )
    )


def _binding(situation: Situation, live: Live) -> Step:
    """All pods are let go: wait for kube-scheduler; the wait has an end."""
    waiting = [pod for pod in live.values() if not pod.node_name and not pod.finished]
    total = situation.job.pods
    if not waiting:
        if situation.state.strikes or situation.state.excluded:
            return Remember(JobState(suspended_at=situation.state.suspended_at))
        nodes = sorted({pod.node_name for pod in live.values()})
        return Wait(PLACED, Verdict(REASON_PLACED, f"{total} pods are on {listed(nodes)}"))
    limit = situation.placement.bind_timeout
    message = f"{total - len(waiting)} of {total} pods are bound"
    stuck = tuple(pod for pod in waiting if pod.pinned_to)
    if situation.waited < limit or not stuck:
        again = limit - situation.waited if situation.waited < limit else None
        return Wait(BINDING, Verdict(REASON_WAITING_FOR_BIND, message), again=again)
    said = next((pod.unschedulable for pod in stuck if pod.unschedulable), "nothing")
    return _unbound(situation, stuck, f"{message} after {limit:g} s; kube-scheduler says: {said}")


def _unbound(situation: Situation, stuck: tuple[Pod, ...], message: str) -> Step:
    """Move pods that kube-scheduler did not take; after three times, stop trying."""
    state = situation.after_strike(REASON_BIND_TIMEOUT, message)
    until = situation.now + EXCLUDED_SECONDS
    nodes = {pod.pinned_to: until for pod in stuck if pod.pinned_to}
    state = replace(state, excluded={**state.excluded, **nodes})
    if state.strikes < STRIKES or (situation.one_node and situation.job.kueue_managed):
        return Evict(stuck, state)  # what Kueue started, only Kueue suspends
    if situation.one_node:
        return Stop(replace(state, suspended_at=situation.now))
    return Release(stuck, Verdict(REASON_BIND_TIMEOUT, f"{state.strikes} attempts: {message}"))
