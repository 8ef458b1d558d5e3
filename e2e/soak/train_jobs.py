"""TrainJobs in the soak; the checker reads them as PyTorchJobs of the replica type `node`."""

import random
from collections.abc import Iterable, Mapping
from typing import Any

from e2e.testbed.trainer import RUNTIME
from kfext.model.kinds.registered import KINDS
from kfext.model.kinds.trainjob import TrainJob

Object = dict[str, Any]
_NODE = "node"
_TYPE, _INDEX = (f"training.kubeflow.org/replica-{what}" for what in ("type", "index"))


def train_job(
    dice: random.Random, name: str, *, size: int, each: Object, annotations: Object, zone: Object
) -> Object:
    """Return a TrainJob; a fifth are limited to a zone by the user's runtime patch."""
    resources = {"requests": each, "limits": each} if each else {}
    spec: Object = {
        "runtimeRef": {"name": RUNTIME},
        "trainer": {"numNodes": size, "resourcesPerNode": resources},
    }
    if dice.random() < 0.2:
        pods = {"spec": {"template": {"spec": {"nodeSelector": zone}}}}
        template = {"spec": {"replicatedJobs": [{"name": _NODE, "template": pods}]}}
        entry = {"manager": "soak.example.com/zone", "trainingRuntimeSpec": {"template": template}}
        spec["runtimePatches"] = [entry]
    metadata = {"name": name, "annotations": annotations}
    train_job_type = {"apiVersion": KINDS[TrainJob.name].api_version, "kind": TrainJob.name}
    return {**train_job_type, "metadata": metadata, "spec": spec}


def as_pytorch_job(raw: Object) -> Object:
    spec, status = raw["spec"], raw.get("status") or {}
    pod: Object = {
        "containers": [{"name": _NODE, "resources": spec["trainer"].get("resourcesPerNode", {})}]
    }
    for entry in spec.get("runtimePatches") or ():
        template = entry.get("trainingRuntimeSpec", {}).get("template", {}).get("spec", {})
        for job in template.get("replicatedJobs") or ():
            pod |= job["template"]["spec"]["template"].get("spec") or {}
    replicas = {_NODE: {"replicas": spec["trainer"]["numNodes"], "template": {"spec": pod}}}
    conditions = [
        {**condition, "type": "Succeeded" if condition["type"] == "Complete" else condition["type"]}
        for condition in status.get("conditions") or ()
    ]
    policy = {"suspend": spec.get("suspend") is True}
    as_v1 = {"runPolicy": policy, "pytorchReplicaSpecs": replicas}
    return {**raw, "spec": as_v1, "status": {**status, "conditions": conditions}}


def owner_of(jobset: Object) -> str:
    """Return the uid of the TrainJob of a JobSet; empty if it has none."""
    owners: Iterable[Object] = jobset["metadata"].get("ownerReferences", ())
    return next((owner["uid"] for owner in owners if owner.get("controller")), "")


def as_pod_of_train_job(raw: Object, jobs: Mapping[str, str]) -> Object:
    """Return a pod of a JobSet as a pod of its TrainJob; `jobs`: TrainJob uids by JobSet uid."""
    metadata = raw["metadata"]
    labels = metadata.get("labels") or {}
    job = jobs.get(labels.get("jobset.sigs.k8s.io/jobset-uid", ""))
    if job is None:
        return raw
    replica = {_TYPE: labels[TrainJob.type_label], _INDEX: labels[TrainJob.index_label]}
    owners = [{"uid": job, "controller": True}]
    metadata_as_member = {**metadata, "ownerReferences": owners, "labels": {**labels, **replica}}
    return {**raw, "metadata": metadata_as_member}
