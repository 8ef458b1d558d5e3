"""Whether the pods of a gang are pinned as they are created, instead of waiting at the gate.

The plan reserves the room on the ledger, so the gate guards only against what kfext does not
control: other pods that kube-scheduler binds meanwhile, a quota that refuses a member, and pods
that admission makes unlike their templates. Where nothing of the kind is in sight, the places ride
on the templates, and the webhook pins each pod at its creation: no patch of each pod, no wait.

Theft is rare then, not impossible. A pod that another client creates in between may be bound first,
and the gang is placed anew like any gang with unbound pods.

The places are on the templates only while the gang is being created. The patch that records the
first time that all pods are bound removes them, and so does each patch that changes or ends the
plan, before a pod is deleted. So a pod that is replaced later waits at the gate as usual, and a
controller that restarts knows from the job whether the gang was whole.
"""

from kfext.core.eligibility import unbound
from kfext.core.lifecycle.situation import Situation
from kfext.model.bounds import LONGEST_SETTING
from kfext.model.plan import Plan, places_of_type


def may_be_born_pinned(situation: Situation, plan: Plan) -> bool:
    """Return whether a job that starts under a plan may have its pods pinned at their creation.

    A gang that was not bound at its last attempt waits at the gate the next time.
    """
    job, state = situation.job, situation.state
    return (
        situation.placement.born_pinned
        and situation.context.undisturbed
        and job.kind.recreates
        and not (job.kind.rendered or situation.shares_gpus)
        and not (state.strikes or state.observed)
        and all(group.exact for group in job.groups if group.replicas)
        and unbound(job) is None
        and all(
            len(places_of_type(plan, group.type.lower())) <= LONGEST_SETTING for group in job.groups
        )
    )
