"""A TrainJob, its JobSet and its pods, as Kubeflow Trainer 2.3.0 and JobSet 0.12.0 write them."""

from copy import deepcopy
from typing import Any

from kfext import names

Raw = dict[str, Any]
JOB_UID, JOBSET_UID = "uid-of-the-job", "uid-of-the-jobset"
OURS = {"manager": "kfext.dev/manager"}
"""The beginning of kfext's entry in runtimePatches."""


def train_job(*, annotations: dict[str, str] | None = None, held: bool = False, **spec: Any) -> Raw:
    """A TrainJob of the runtime torch-distributed; `held`: as kfext's webhook has admitted it."""
    marks = {names.HELD: "true"} if held else {}
    if held:
        settings = {names.COLOCATION: "preferred", names.NETWORK: "pod"}
        entry = {**OURS, "time": "2026-11-21T10:00:00Z", "trainingRuntimeSpec": {
            "template": {"metadata": {"annotations": settings}}}}  # fmt: skip
        spec = {"suspend": True, "runtimePatches": [entry], **spec}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {
            "namespace": "team",
            "name": "train",
            "uid": JOB_UID,
            "resourceVersion": "1",
            "annotations": {**(annotations or {}), **marks},
        },
        "spec": {
            "runtimeRef": {
                "apiGroup": "trainer.kubeflow.org",
                "kind": "ClusterTrainingRuntime",
                "name": "torch-distributed",
            },
            "managedBy": "trainer.kubeflow.org/trainjob-controller",
            "trainer": {"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "1"}}},
            **spec,
        },
    }


def replicated_job(
    name: str = "node",
    *,
    pods: int = 2,
    after: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    torch: bool = True,
) -> Raw:
    """A replicated job of a JobSet; `after`: name of another -> the status that it must have."""
    variables: list[Raw] = [
        {"name": "PET_NNODES", "value": str(pods)},
        {"name": "PET_MASTER_ADDR", "value": "train-node-0-0.train"},
        {"name": "PET_MASTER_PORT", "value": "29500"},
    ]
    container: Raw = {
        "name": "node",
        "image": "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime",
        "resources": {"requests": {"cpu": "1"}},
    }
    if torch:
        port = {"containerPort": 29500, "protocol": "TCP"}
        container |= {"env": variables, "ports": [port]}
    template: Raw = {
        "metadata": {"annotations": annotations} if annotations else {},
        "spec": {"containers": [container], "restartPolicy": "OnFailure"},
    }
    result: Raw = {
        "name": name,
        "groupName": "default",
        "replicas": 1,
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {
                "completionMode": "Indexed",
                "completions": pods,
                "parallelism": pods,
                "template": template,
            },
        },
    }
    if after:
        result["dependsOn"] = [{"name": job, "status": status} for job, status in after.items()]
    return result


def jobset(
    *replicated: Raw,
    uid: str = JOBSET_UID,
    suspend: bool = True,
    in_order: bool = False,
    **metadata: Any,
) -> Raw:
    """The JobSet of the TrainJob; `in_order`: its replicated jobs start one after the other."""
    policy = {"startupPolicy": {"startupPolicyOrder": "InOrder"}} if in_order else {}
    owner = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "name": "train",
        "uid": JOB_UID,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "namespace": "team",
            "name": "train",
            "uid": uid,
            "ownerReferences": [owner],
            **metadata,
        },
        "spec": {
            "suspend": suspend,
            "replicatedJobs": list(replicated or [replicated_job()]),
            "successPolicy": {"operator": "All"},
            **policy,
        },
    }


def trainer_pod(
    index: int,
    *,
    replicated: str = "node",
    attempt: int = 0,
    suffix: str = "x7k2p",
    gated: bool = False,
    node: str = "",
    pinned: str = "",
    phase: str = "Pending",
    annotations: dict[str, str] | None = None,
    deleting: bool = False,
) -> Raw:
    """A pod of a replicated job."""
    job = f"train-{replicated}-0"
    marks = {names.COLOCATION: "preferred", names.PLAN_GENERATION: "1"}
    template = deepcopy(replicated_job(replicated)["template"]["spec"]["template"])
    spec: Raw = {**template["spec"], "schedulerName": "default-scheduler", "subdomain": "train"}
    if gated:
        spec["schedulingGates"] = [{"name": names.GATE}]
    if pinned:
        here = {"key": "metadata.name", "operator": "In", "values": [pinned]}
        terms = {"nodeSelectorTerms": [{"matchFields": [here]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        spec["affinity"] = {"nodeAffinity": required}
    if node:
        spec["nodeName"] = node
    metadata: Raw = {
        "namespace": "team",
        "name": f"{job}-{index}-{suffix}",
        "uid": f"{replicated}-{index}-{suffix}",
        "resourceVersion": "1",
        "annotations": marks if annotations is None else annotations,
        "labels": {
            "batch.kubernetes.io/controller-uid": "uid-of-the-batch-job",
            "batch.kubernetes.io/job-completion-index": str(index),
            "batch.kubernetes.io/job-name": job,
            "jobset.sigs.k8s.io/job-global-index": "0",
            "jobset.sigs.k8s.io/job-index": "0",
            "jobset.sigs.k8s.io/job-key": "5d2a",
            "jobset.sigs.k8s.io/jobset-name": "train",
            "jobset.sigs.k8s.io/jobset-uid": JOBSET_UID,
            "jobset.sigs.k8s.io/replicatedjob-name": replicated,
            "jobset.sigs.k8s.io/replicatedjob-replicas": "1",
            "jobset.sigs.k8s.io/restart-attempt": str(attempt),
        },
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": job,
                "uid": "uid-of-the-batch-job",
                "controller": True,
            }
        ],
    }
    if deleting:
        metadata["deletionTimestamp"] = "2026-11-21T10:00:00Z"
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}}
