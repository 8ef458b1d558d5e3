"""kube-scheduler's own gangs: a PodGroup for each job, and a reference to it in each pod.

The operator does not know these PodGroups, and its CRD drops the field that names the group. So a
MutatingAdmissionPolicy sets that field in each new pod.
"""

from collections.abc import Iterator
from typing import Any

from kfext.names import JOB_NAME

Object = dict[str, Any]
API = "scheduling.k8s.io/v1beta1"
_ADMISSION = "admissionregistration.k8s.io/v1"
_NAME = "bench-pod-groups"
_GROUP = (
    "Object{spec: Object.spec{schedulingGroup: Object.spec.schedulingGroup{"
    f"podGroupName: object.metadata.labels['{JOB_NAME}']}}}}}}"
)


def group(job: Object) -> Object:
    """Return the PodGroup of a PyTorchJob, which starts all of its pods or none."""
    pods = sum(replicas["replicas"] for replicas in job["spec"]["pytorchReplicaSpecs"].values())
    metadata = {"name": job["metadata"]["name"]}
    policy = {"schedulingPolicy": {"gang": {"minCount": pods}}}
    return {"apiVersion": API, "kind": "PodGroup", "metadata": metadata, "spec": policy}


def admission(namespace: str) -> Iterator[Object]:
    """Yield the policy, and its binding, that name the job's group in each new pod."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": _GROUP}}
    selected = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    policy = {
        "matchConstraints": {"resourceRules": [{**rule, "operations": ["CREATE"]}]},
        "mutations": [mutation],
        "reinvocationPolicy": "Never",
        "failurePolicy": "Fail",
    }
    binding = {"policyName": _NAME, "matchResources": {"namespaceSelector": selected}}
    for kind, spec in (
        ("MutatingAdmissionPolicy", policy),
        ("MutatingAdmissionPolicyBinding", binding),
    ):
        yield {"apiVersion": _ADMISSION, "kind": kind, "metadata": {"name": _NAME}, "spec": spec}
