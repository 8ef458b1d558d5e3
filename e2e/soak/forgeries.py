"""Objects of tenants who try to get what they must not have, or to keep kfext from its work."""

import json
from typing import Any

from e2e.harness import jobs
from e2e.soak.facts import FORGED, HELD, PLAN, STATE

Object = dict[str, Any]
MARKS = (PLAN, STATE, HELD)
HOW = ("copied", "paused", "elsewhere", "queued", "junk", "giant")
_JOB_NAME = "training.kubeflow.org/job-name"
_MOST_REPLICAS = 2**31 - 1
_GPU = {"nvidia.com/gpu": "1", "cpu": "1", "memory": "1Gi"}
_JUNK_KEYS = 1000
MOST_BYTES = 256 << 10
"""As much the API server takes of annotations, keys and values together."""
SPARE_BYTES = 100
"""Room for the mark that a job is held, and not for a plan."""
_STAY = "soak.example.com/stay"
_FAR = 4e9


def job(name: str, how: str, *, kind: str = "PyTorchJob", size: int = 2) -> Object:
    """Return a job with marks of kfext, as if it had been placed before.

    `copied`: as it may be in a backup; `paused`: and suspended as by kfext; `elsewhere`: said to be
    run by another operator; `queued`: with Kueue's label; `junk`: with as many annotations as the
    API server takes; `giant`: with as many replicas, of which nobody is to make the pods.
    """
    counts = {"PyTorchJob": {"Master": 1, "Worker": size}, "TFJob": {"Worker": size}}[kind]
    if how == "giant":
        counts = {"Worker": _MOST_REPLICAS}
    made = jobs.job(name, counts, kind=kind, each=_GPU)
    # Nobody knows the uid before, so a forger can only guess.
    marks = {key: mark(key, made, ["node-000"]) for key in MARKS}
    made["metadata"]["annotations"] = {FORGED: how, **(_junk() if how == "junk" else marks)}
    policy = made["spec"]["runPolicy"]
    if how in {"paused", "giant"}:
        policy["suspend"] = True
    if how in {"elsewhere", "giant"}:
        policy["managedBy"] = "kueue.x-k8s.io/multikueue"
    if how == "queued":
        made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "nobody"
    return made


def _junk() -> dict[str, str]:
    """Return annotations that look like settings of kfext, and leave little room for others."""
    junk = {f"kfext.dev/colocatio-{number}": "required" for number in range(_JUNK_KEYS)}
    used = sum(len(key) + len(value) for key, value in junk.items())
    notes = "notes"
    rest = MOST_BYTES - SPARE_BYTES - used - len(notes) - len(FORGED) - len("junk")
    return {**junk, notes: "x" * rest}


def mark(key: str, job: Object, nodes: list[str]) -> str:
    """Return what a forger writes under the key of a mark: all pods to some nodes."""
    uid = job["metadata"].get("uid", "a-guess")
    if key == HELD:
        return "forged"
    if key == STATE:
        return json.dumps({"uid": uid, "strikes": -5, "retryAt": _FAR, "generation": 7})
    places = {
        type_.lower(): [number % len(nodes) for number in range(min(one["replicas"], 64))]
        for type_, one in jobs.specs(job).items()
    }
    plan = {"uid": uid, "generation": 7, "nodes": nodes, "replicas": places, "why": "forged"}
    return json.dumps(plan)


def stray(name: str, owner: Object) -> Object:
    """Return a pod that claims to be a member of a job, and that is not deleted for a while."""
    metadata = owner["metadata"]
    labels = {
        _JOB_NAME: metadata["name"],
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "0",
    }
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": labels,
            "ownerReferences": [reference],
            "finalizers": [_STAY],
        },
        "spec": {"containers": [container]},
    }
