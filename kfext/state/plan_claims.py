"""The claims that jobs have on the ledger beside those of their pods.

A plan has one for each pod until that claims for itself, and Guaranteed pods of which one gives CPU
to another have one for what is under way.
"""

from kfext.core.ledger.claims import plan_claims, plan_key, pod_key, shifted_claims
from kfext.core.ledger.ledger import Ledger
from kfext.model.pod import Pod
from kfext.state.tracked_job import TrackedJob


class PlanClaims:
    """Keeps `TrackedJob.claimed` and the ledger the same."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def sync(
        self,
        tracked: TrackedJob,
        pods: tuple[Pod, ...],
        *,
        priority: int | None,
        believed: bool,
    ) -> None:
        """Bring the claims of a job up to date.

        `priority` is what pods of the job will have, None while that is not known. A plan that is
        not `believed` claims nothing.
        """
        plan = tracked.assumed or tracked.plan if believed else None
        if tracked.unclaimed and not any(pod.home for pod in pods):
            plan = None
        wanted = {
            **plan_claims(tracked.started, plan, pods, priority=priority, lapsed=tracked.lapsed),
            **shifted_claims(tracked.job.uid, pods, tracked.state.cpu),
        }
        for key in tracked.claimed.keys() - wanted.keys():
            self._ledger.drop(key)
        self._ledger.claim_all(wanted)
        tracked.claimed = dict(wanted)

    def hand_over(self, tracked: TrackedJob, pod: Pod) -> None:
        """Drop the plan's claim for a pod that now has a claim of its own."""
        if pod.home and pod.replica is not None:
            key = plan_key(tracked.job.uid, pod.replica)
            if tracked.claimed.pop(key, None) is not None:
                self._ledger.hand_over(key, to=pod_key(pod.uid))

    def drop(self, tracked: TrackedJob) -> None:
        """Drop all claims of a job that is gone."""
        for key in tracked.claimed:
            self._ledger.drop(key)
