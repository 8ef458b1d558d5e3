"""A gang that forms: kfext has started it, and its pods have not all been bound together yet.

Until then it is bound as a whole or occupies nothing. Other pods may use its capacity between plan
and binding.
"""

from collections.abc import Collection

from kfext.core.ledger.claims import pod_key
from kfext.core.ledger.ledger import Ledger
from kfext.core.lifecycle.capacity import after_preemption
from kfext.core.lifecycle.patience import after_strike, suspend_in_part
from kfext.core.lifecycle.situation import Situation
from kfext.core.lifecycle.spare import Live
from kfext.core.lifecycle.steps import DeleteUnbound, Step, Wait
from kfext.core.placement.gang import members_of
from kfext.core.placement.place import place, still_fits
from kfext.core.words import listed, pods
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.names import GATED, REASON_BIND_TIMEOUT, REASON_WAITING_FOR_BIND

OTHERS_SECONDS = 5.0
"""How long a complete gang waits for pods of other jobs, which are bound in seconds or never."""
_RECHECK_SECONDS = 0.25
"""The time between two decisions while it waits, because events of other jobs do not wake it."""


def after_others(situation: Situation) -> Wait | None:
    """Return the short wait of a complete gang for pods that kube-scheduler places anywhere.

    They would use its capacity between its pins and its binding. Jobs that run as on plain
    Kubernetes have such pods.
    """
    number, remaining = situation.context.plain_pods, OTHERS_SECONDS - situation.clocks.waited
    if not (number and situation.forming and remaining > 0):
        return None
    message = f"{pods(number)} of jobs that kfext does not place are bound first"
    again = min(remaining, _RECHECK_SECONDS)
    return Wait(GATED, Verdict(REASON_WAITING_FOR_BIND, message), again=again)


def forming_without_capacity(
    situation: Situation, ledger: Ledger, live: Live, stuck: Collection[Pod]
) -> Step | None:
    """Return the step of a gang that was never whole and has lost its capacity to other pods.

    If kube-scheduler and the ledger agree that there is no capacity, the members are moved to other
    nodes at once, or the whole job is suspended. An obstacle that only kube-scheduler sees may
    pass, so the gang waits.
    """
    job, plan = situation.job, situation.plan
    unschedulable = {pod.replica: pod for pod in stuck if pod.unschedulable and pod.replica}
    if plan is None or not unschedulable:
        return None
    # A template has no pin, so its replica may go anywhere.
    members = members_of(job, (pod for key, pod in live.items() if key not in unschedulable))
    claims = [*(pod_key(pod.uid) for pod in unschedulable.values()), *situation.usable_claims]
    if still_fits(
        [member for member in members if member.key in unschedulable],
        after_preemption(situation, ledger),
        situation.limits,
        assignment={key: pod.home for key, pod in unschedulable.items()},
        ignoring=claims,
    ):
        return None
    nodes = sorted({pod.home for pod in unschedulable.values()})
    report = next(iter(unschedulable.values())).unschedulable
    message = f"other pods took the capacity on {listed(nodes, noun='nodes')}"
    late = Verdict(REASON_BIND_TIMEOUT, f"{message}; kube-scheduler reports: {report}")
    state = after_strike(situation, late, limit=situation.placement.bind_timeout)
    homes = {key: pod.home for key, pod in live.items() if pod.home and key not in unschedulable}
    answer = place(members, ledger, situation.limits, bound=homes, ignoring=claims)
    if isinstance(answer, Verdict):
        return suspend_in_part(situation, answer)
    return DeleteUnbound(tuple(unschedulable.values()), state)
