"""A namespace that refuses every pod for a reason that kfext does not foresee: Pod Security."""

from e2e.harness.space import Space

_ENFORCE = "pod-security.kubernetes.io/enforce"


def refuse_pods(space: Space, *, create_timeout: str = "30m") -> None:
    """Have the API server refuse pods of our tests; kfext waits for them for `create_timeout`."""
    space.policy(placement={"createTimeout": create_timeout})
    _set_level(space, "restricted")


def admit_pods(space: Space, *jobs: str) -> None:
    """Let pods in again, and have the operator look at some jobs at once."""
    _set_level(space, None)
    for job in jobs:
        space.patch_job(job, {"metadata": {"labels": {"looked-at": "again"}}})


def _set_level(space: Space, level: str | None) -> None:
    path = f"/api/v1/namespaces/{space.name}"
    space.kube.patch(path, {"metadata": {"labels": {_ENFORCE: level}}})
