"""A namespace that refuses every pod for a reason that kfext does not foresee: Pod Security."""

from e2e.harness.space import Space

_ENFORCE = "pod-security.kubernetes.io/enforce"


def refuse_pods(space: Space) -> None:
    """Have the API server refuse pods of our tests, and kfext wait for them all the same."""
    space.policy(placement={"createTimeout": "30m"})
    _set_level(space, "restricted")


def admit_pods(space: Space, job: str) -> None:
    """Let pods in again, and have the operator look at a job at once."""
    _set_level(space, None)
    space.patch_job(job, {"metadata": {"labels": {"looked-at": "again"}}})


def _set_level(space: Space, level: str | None) -> None:
    path = f"/api/v1/namespaces/{space.name}"
    space.kube.patch(path, {"metadata": {"labels": {_ENFORCE: level}}})
