"""Spare pods: a gang trains without them, and is never stopped because they have no node.

A user may scale a running job beyond the free capacity, or drain a node. Then the pods that would
stay Pending wait at the gate.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kfext.core.elastic import workers_of
from kfext.core.lifecycle.situation import Situation
from kfext.core.lifecycle.steps import DeleteUnbound, Replan, Step, Suspend, Wait
from kfext.core.words import pods
from kfext.model.kinds.job_kind import WORKER
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.verdict import Verdict
from kfext.names import PLACED, REASON_REPLANNED

Live = Mapping[ReplicaKey, Pod]
"""The pods of a job that are not being deleted, by replica."""


@dataclass(frozen=True, slots=True)
class Spare:
    """The replicas without a node that the bound pods do not need for training.

    `waiting`: the spare replicas with a pod.
    `absent`: whether all replicas without a pod are spare.
    """

    waiting: frozenset[ReplicaKey] = frozenset()
    absent: bool = False


def spare_replicas(situation: Situation, live: Live) -> Spare:
    """Return the replicas that the gang can spare.

    Late replicas are spare, and so are unbound workers of an elastic job that runs its minimum. No
    replica is spare if no pod is bound, or if kfext would release a job that does not fit.
    """
    job, plan = situation.job, situation.plan
    bound = {key for key, pod in live.items() if pod.node_name}
    if not (0 < len(bound) < job.pods and situation.never_released):
        return Spare()
    waiting, worker = live.keys() - bound, WORKER.lower()
    running = sum(key.type == worker and not live[key].finished for key in bound)
    others = sum(key.type != worker for key in bound) == job.pods - workers_of(job)
    rendezvous = not job.rendezvous.at_worker or ReplicaKey(worker, 0) in bound
    if job.scaling.elastic and running >= job.scaling.fewest and others and rendezvous:
        return Spare(frozenset(waiting), absent=True)
    if plan is None:
        return Spare()
    gang = {*job.within(plan.assignment)} - plan.late
    return Spare(frozenset(waiting - gang), absent=gang <= live.keys())


def without_succeeded(situation: Situation, live: Live) -> Replan | None:
    """Return the plan that marks pods as late if they replace succeeded pods, or None.

    A gang without a bound pod does not train, so it waits for the new pods.
    """
    trains = any(pod.node_name for pod in live.values())
    plan = situation.plan if trains and situation.never_released else None
    placed = situation.job.within(plan.assignment) if plan else ()
    late = situation.succeeded.intersection(placed)
    if plan is None or late <= plan.late:
        return None
    replicas = ", ".join(sorted(f"{key.type}-{key.index}" for key in late - plan.late))
    message = f"the gang trains without {replicas}, which had succeeded"
    changed = situation.planned(plan.assignment, port=plan.port, why=message, slots=plan.slots)
    return Replan(replace(changed, late=plan.late | late), Verdict(REASON_REPLANNED, message))


def keep_training(situation: Situation, live: Live, spare: Spare, step: Step | None) -> Step | None:
    """Return the step, or its replacement if it would stop a gang because of spare pods."""
    if not isinstance(step, Suspend):
        return step
    waiting = [key for key, pod in live.items() if not pod.node_name]
    absent = situation.job.pods - len(live)
    lacks = (waiting or absent) and spare.waiting.issuperset(waiting)
    if not lacks or (absent and not spare.absent):
        return step
    why = step.state
    stuck = tuple(live[key] for key in waiting if live[key].pinned_to)
    if stuck and situation.job.kind.recreates:
        state = replace(situation.state, strikes=why.strikes, retry_at=why.retry_at)
        return DeleteUnbound(stuck, replace(state, reason=why.reason, message=why.message))
    remaining = why.retry_at - situation.now
    lack = Verdict(why.reason, why.message)
    return at_gate(len(waiting) + absent, lack, again=remaining)


def at_gate(count: int, why: Verdict, *, again: float = 0.0) -> Wait:
    """Return the wait of a gang that trains without some of its pods."""
    message = f"it trains, and {pods(count)} wait for a place: {why.message}"
    return Wait(PLACED, Verdict(why.reason, message), again=again if again > 0 else None)
