"""For how long the plan of a job claims capacity for pods that kfext does not hold back.

kfext ends every wait of its own: it suspends the job, or deletes a pod that it has pinned. It does
neither to a job that Kueue suspends, nor to a pod that its webhook missed; their plan must not
claim capacity for ever.
"""

import math

from kfext.core.lifecycle.situation import Situation


def claims_last(situation: Situation) -> float:
    """Return for how many more seconds the plan claims for such pods; infinite without any."""
    job, placement = situation.job, situation.placement
    live = [pod for pod in situation.pods if not pod.deleting]
    if situation.plan is None or job.suspend or job.finished:
        return math.inf
    if job.kueue_managed and not (len(live) >= job.pods and all(pod.home for pod in live)):
        waited = max(situation.quiet, situation.longest_wait(live))
        return max(placement.create_timeout, placement.bind_timeout) - waited
    loose = [pod for pod in live if pod.loose]
    return placement.bind_timeout - situation.longest_wait(loose) if loose else math.inf
