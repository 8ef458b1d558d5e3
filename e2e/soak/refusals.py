"""Policies with which the API server refuses writes, in namespaces that bear a label.

A label holds within a moment; a policy that is made takes seconds. So the policies are there from
the start, and the soak labels namespaces.
"""

from e2e.harness.kube import Kube, Object
from e2e.harness.wait import until
from e2e.soak.asking import REFUSAL, pods_path
from e2e.soak.facts import REFUSES
from e2e.soak.manifests import thief

_ROOT = "/apis/admissionregistration.k8s.io/v1"
_KFEXT = "system:serviceaccount:kfext-system:kfext-controller"
_NOT_KFEXT = f"request.userInfo.username != '{_KFEXT}'"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_UNPINNED = (
    "!has(object.spec.affinity) || !has(object.spec.affinity.nodeAffinity) || "
    f"!has(object.spec.affinity.nodeAffinity.{_REQUIRED})"
)
_POD_UPDATES = {"apiGroups": [""], "operations": ["UPDATE"], "resources": ["pods"]}
RULES: dict[str, tuple[Object, str]] = {
    "pods": ({**_POD_UPDATES, "operations": ["CREATE"]}, "false"),
    "pins": (_POD_UPDATES, f"{_NOT_KFEXT} || {_UNPINNED}"),
    "patches": (_POD_UPDATES, _NOT_KFEXT),
    "jobs": (
        {
            "apiGroups": ["kubeflow.org"],
            "operations": ["UPDATE"],
            "resources": ["pytorchjobs", "tfjobs"],
        },
        _NOT_KFEXT,
    ),
}
"""What may be refused: what is judged, and the CEL expression of what is not refused."""


def install(kube: Kube, probe: str) -> None:
    """Make the policies, and wait until they hold; `probe` is a namespace to try it in."""
    for what, (rule, unless) in RULES.items():
        name = f"soak-{what}"
        spec = {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {REFUSES: what}},
                "resourceRules": [{"apiVersions": ["v1"], **rule}],
            },
            "validations": [{"expression": unless, "message": REFUSAL, "reason": "Forbidden"}],
        }
        _create(kube, "ValidatingAdmissionPolicy", name, spec)
        binding = {"policyName": name, "validationActions": ["Deny"]}
        _create(kube, "ValidatingAdmissionPolicyBinding", name, binding)
    labels = f"/api/v1/namespaces/{probe}"
    kube.patch(labels, {"metadata": {"labels": {REFUSES: "pods"}}})
    path = f"{pods_path(probe)}?dryRun=All"
    until(
        lambda: kube.ask("POST", path, thief("probe", "", 1)).status == 403,
        what="the soak's policies hold",
    )
    kube.patch(labels, {"metadata": {"labels": {REFUSES: None}}})


def _create(kube: Kube, kind: str, name: str, spec: Object) -> None:
    plural = "ies".join(kind.rsplit("y", 1)) if kind.endswith("y") else f"{kind}s"
    body = {"kind": kind, "metadata": {"name": name}, "spec": spec}
    body["apiVersion"] = "admissionregistration.k8s.io/v1"
    kube.create(f"{_ROOT}/{plural.lower()}", body)
