"""Which jobs the planner must not place: their pods have terms that only kube-scheduler knows."""

from collections.abc import Iterable, Iterator

from kfext.core.words import listed
from kfext.model.constraints import Constraints
from kfext.model.job import TrainingJob
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.names import REASON_UNMODELLED


def unplaceable(job: TrainingJob, pods: Iterable[Pod] = ()) -> Verdict | None:
    """Return why kfext must not choose nodes for a job, None if it may.

    Admission may have given pods terms that their templates do not have.
    """
    found = sorted({term for of in _constraints(job, pods) for term in of.unmodelled})
    if not found:
        return None
    message = f"its pods have {listed(found, of='terms')}, which kfext does not model"
    return Verdict(REASON_UNMODELLED, message)


def _constraints(job: TrainingJob, pods: Iterable[Pod]) -> Iterator[Constraints]:
    yield from (group.constraints for group in job.groups if group.replicas)
    yield from (pod.constraints for pod in pods if pod.constraints is not None)
