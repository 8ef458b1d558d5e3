"""AdmissionReviews as the API server sends them, made of what it says to a dry run.

So defaults, managed fields and the service account's volume are in them. The PyTorchJob is padded
with environment variables to about 11 KB, the pod to about 5 KB of JSON.
"""

import uuid
from pathlib import Path
from typing import Any

import orjson

from e2e.bench.bed import Bench
from e2e.bench.gang_objects import job_body, pod_body

_SIZES = {"job": 11_000, "pod": 5_000}
_KINDS = {
    "job": ("kubeflow.org", "PyTorchJob", "pytorchjobs"),
    "pod": ("", "Pod", "pods"),
}
_MANY = 100
"""Reviews that differ in uid and name; they are sent in turn."""

Object = dict[str, Any]


def write_bodies(bench: Bench, namespace: str, folder: Path) -> dict[str, Path]:
    """Write the reviews of each kind to a file, one a line; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for kind, size in _SIZES.items():
        stored = _stored(bench, namespace, kind, size)
        lines = [orjson.dumps(_review(kind, stored, namespace, number)) for number in range(_MANY)]
        files[kind] = folder / f"{kind}.jsonl"
        files[kind].write_bytes(b"\n".join(lines))
    return files


def _stored(bench: Bench, namespace: str, kind: str, size: int) -> Object:
    """Return an object as the API server would store it, of about `size` bytes."""
    group, _, plural = _KINDS[kind]
    root = f"/apis/{group}/v1" if group else "/api/v1"
    # Not managed, so that what comes back is the object before kfext's edit.
    path = f"{root}/namespaces/default/{plural}?dryRun=All"
    padding = 0
    while True:
        stored: Object = bench.testbed.api.create(path, _manifest(kind, padding))
        stored["metadata"]["namespace"] = namespace
        if len(orjson.dumps(stored)) >= size:
            return stored
        padding += 1


def _manifest(kind: str, padding: int) -> Object:
    environment = [
        {"name": f"TRAINING_OPTION_{number}", "value": f"--some-flag-of-the-job={number}"}
        for number in range(padding)
    ]
    # Copied, because its two templates are one object.
    manifest: Object = orjson.loads(orjson.dumps(job_body("review", 4, held=False)))
    manifest["spec"]["runPolicy"] = {"cleanPodPolicy": "None"}
    if kind == "pod":
        owner = {"metadata": {"name": "review", "uid": str(uuid.uuid4())}}
        manifest = pod_body(owner, 1, affinity={})
        del manifest["spec"]["schedulingGates"]
        specs = [manifest["spec"]]
    else:
        manifest["metadata"]["annotations"] = {}
        replicas = manifest["spec"]["pytorchReplicaSpecs"].values()
        specs = [each["template"]["spec"] for each in replicas]
    for spec in specs:
        container = spec["containers"][0]
        spec["containers"] = [{**container, "env": [*container.get("env", []), *environment]}]
    return manifest


def _review(kind: str, stored: Object, namespace: str, number: int) -> Object:
    group, name, plural = _KINDS[kind]
    identity = {"name": f"{stored['metadata']['name']}-{number}"}
    version = {"group": group, "version": "v1"}
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": str(uuid.uuid4()),
            "kind": {**version, "kind": name},
            "resource": {**version, "resource": plural},
            "requestKind": {**version, "kind": name},
            "requestResource": {**version, "resource": plural},
            "name": identity["name"],
            "namespace": namespace,
            "operation": "CREATE",
            "userInfo": {
                "username": "system:serviceaccount:kubeflow:training-operator",
                "groups": ["system:serviceaccounts", "system:authenticated"],
            },
            "object": {**stored, "metadata": {**stored["metadata"], **identity}},
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    }
