"""A namespace that refuses pods for a reason that kfext does not foresee."""

from collections.abc import Iterator
from contextlib import contextmanager

from e2e.harness.kube import Object
from e2e.harness.pods import squatter
from e2e.harness.space import CASE, Space

_ENFORCE = "pod-security.kubernetes.io/enforce"
_ROOT = "/apis/admissionregistration.k8s.io/v1"
_PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}


def refuse_pods(space: Space, *, create_timeout: str = "30m") -> None:
    """Have the API server refuse pods of our tests; kfext waits for them for `create_timeout`."""
    space.policy(placement={"createTimeout": create_timeout})
    _set_level(space, "restricted")
    space.refused(squatter("probe"))


def admit_pods(space: Space, *jobs: str) -> None:
    """Let pods in again, and have the operator look at some jobs at once."""
    _set_level(space, None)
    for job in jobs:
        space.patch_job(job, {"metadata": {"labels": {"looked-at": "again"}}})


def _set_level(space: Space, level: str | None) -> None:
    path = f"/api/v1/namespaces/{space.name}"
    space.kube.patch(path, {"metadata": {"labels": {_ENFORCE: level}}})


@contextmanager
def refusing(space: Space, *, unless: str, message: str, probe: Object) -> Iterator[None]:
    """Have the API server refuse new pods of a namespace `unless` a CEL expression holds.

    It does once this returns: `probe`, a pod that is never made, was refused.
    """
    specs: dict[str, Object] = {
        "ValidatingAdmissionPolicy": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {CASE: space.name}},
                "resourceRules": [_PODS],
            },
            "validations": [{"expression": unless, "message": message}],
        },
        "ValidatingAdmissionPolicyBinding": {
            "policyName": space.name,
            "validationActions": ["Deny"],
        },
    }
    paths = [f"{_ROOT}/validatingadmissionpolicies", f"{_ROOT}/validatingadmissionpolicybindings"]
    for path, (kind, spec) in zip(paths, specs.items(), strict=True):
        body = {"kind": kind, "metadata": {"name": space.name}, "spec": spec}
        space.kube.create(path, {"apiVersion": "admissionregistration.k8s.io/v1", **body})
    try:
        space.refused(probe)
        yield
    finally:
        for path in paths:
            space.kube.delete(f"{path}/{space.name}")
