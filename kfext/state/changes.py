"""Whether what a watch brings is newer than what is known, and whether it changes a decision."""

from collections.abc import Collection

from kfext.model.job import TrainingJob
from kfext.model.pod import Pod
from kfext.state.tracked_job import TrackedJob


def progress_of(tracked: TrackedJob, pods: Collection[Pod]) -> tuple[object, ...]:
    """Return a marker that changes whenever the job makes progress."""
    return (
        tracked.job.suspend,
        tracked.plan.generation if tracked.plan else 0,
        sum(not pod.deleting for pod in pods),
        sum(pod.gated for pod in pods),
        sum(bool(pod.node_name) for pod in pods),
    )


def place_of(pod: Pod) -> tuple[object, ...]:
    """Return what decides about the claims and steps of a pod."""
    return (
        *(pod.node_name, pod.pinned_to, pod.gates, pod.deleting, pod.finished),
        *(pod.requests, pod.unschedulable, pod.replica, pod.affinity),
    )


def needs_more(job: TrainingJob, *, than: TrainingJob) -> bool:
    """Return whether an edit made a job larger: it needs more of a resource, or another one."""
    needed = than.requests
    return any(number > needed.get(name, 0) for name, number in job.requests.items())


def is_newer(version: str, known: TrainingJob) -> bool:
    """Return whether a resource version of a job is newer than the known one."""
    return version != known.resource_version and not is_older(version, known.resource_version)


def is_older(one: str, other: str) -> bool:
    """Return whether a resource version is older than another of the same object."""
    try:
        return int(one or "0") < int(other or "0")
    except ValueError:
        return False  # only numbers can be compared
