"""Back to the pod network: for a job that cannot have the host network for all of its pods."""

from collections.abc import Mapping
from dataclasses import replace

from kfext.core.lifecycle.patience import suspend
from kfext.core.lifecycle.situation import Situation
from kfext.core.lifecycle.steps import Release, Step
from kfext.core.network.eligibility import why_network
from kfext.model.plan import Plan
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.verdict import Verdict
from kfext.names import REASON_POD_NETWORK


def never_created(situation: Situation, late: Verdict) -> Step:
    """Suspend a job whose pods were not created on the host network.

    Only the API server knows why it refused them. The next try is on the pod network, unless the
    operator reported no failure.
    """
    state = situation.after_strike(late.reason, late.message)
    return suspend(situation, replace(state, no_host_network=late.message))


def on_two_networks(situation: Situation, live: Mapping[ReplicaKey, Pod]) -> Step | None:
    """Suspend a job whose pods must be on one network and are on two, as the webhook missed some.

    The next try, on the pod network, is at once.
    """
    hosted = situation.plan is not None and situation.plan.port > 0
    if not hosted or not situation.job.kind.one_network:
        return None
    if len({pod.on_host for pod in live.values() if not pod.finished}) < 2:
        return None
    message = "some of its pods were created while kfext's webhook did not answer"
    state = replace(
        situation.state,
        retry_at=0.0,
        reason=REASON_POD_NETWORK,
        message=message,
        no_host_network=message,
    )
    return suspend(situation, state)


def started_without(situation: Situation, plan: Plan) -> Verdict | None:
    """Return why a job that kfext did not start has its first plan without the host network."""
    if situation.plan is not None:
        return None
    why = why_network(situation.host_network, situation.job, plan, situation.state)
    return Verdict(REASON_POD_NETWORK, why) if why else None


def let_go(situation: Situation, verdict: Verdict) -> Release:
    """Release a waiting job; the message states if it loses the host network by that."""
    requested = situation.host_network
    if requested and not requested.obstacle:
        verdict = replace(verdict, message=f"{verdict.message}; so its pods have their own network")
    return Release((), verdict)
