"""Actions of tenants, who may do everything in their own namespace, and nothing elsewhere.

They forge objects to get more than they may have, or to keep kfext from its work. Also here are
admission policies that refuse writes in namespaces with a certain label. They exist from the start,
because a new policy takes effect only after seconds, a new label at once.
"""

import json
from pathlib import Path
from typing import Any

from e2e.harness import jobs
from e2e.harness.jobs import jobs_path
from e2e.harness.kube import Kube
from e2e.harness.space import Space
from e2e.harness.tenant import Tenant
from e2e.harness.wait import until
from e2e.soak.actions import REFUSAL, Actor, pods_path
from e2e.soak.facts import FORGED, HELD, PLAN, REFUSES, STATE
from e2e.soak.manifests import thief

Object = dict[str, Any]
MARKS = (PLAN, STATE, HELD)
FORGERIES = ("copied", "paused", "elsewhere", "queued", "junk", "giant")
_JOB_NAME = "training.kubeflow.org/job-name"
_MAX_REPLICAS = 2**31 - 1
_GPU = {"nvidia.com/gpu": "1", "cpu": "1", "memory": "1Gi"}
_JUNK_KEYS = 1000
MAX_BYTES = 256 << 10
"""The API server's limit for all keys and values of annotations together."""
SPARE_BYTES = 100
"""Enough for the mark `held`, but not for a plan."""
_STAY = "soak.example.com/stay"
_FAR = 4e9
_PROTECTED = "only kfext may add or change"
_MERGE = "application/merge-patch+json"
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
"""By kind of write, the requests to refuse, and a CEL expression for requests to admit."""


def forged_job(name: str, forgery: str, *, kind: str = "PyTorchJob", size: int = 2) -> Object:
    """Return a job with kfext's marks, as if it had been placed before.

    `copied`: as from a backup. `paused`: also suspended as by kfext. `elsewhere`: managed by
    another operator. `queued`: with Kueue's label. `junk`: with the most annotations that the API
    server accepts. `giant`: with the most replicas, without any pods.
    """
    counts = {"PyTorchJob": {"Master": 1, "Worker": size}, "TFJob": {"Worker": size}}[kind]
    if forgery == "giant":
        counts = {"Worker": _MAX_REPLICAS}
    job = jobs.job(name, counts, kind=kind, each=_GPU)
    # The uid is unknown before, so a forger can only guess.
    marks = {key: forged_mark(key, job, ["node-000"]) for key in MARKS}
    job["metadata"]["annotations"] = {FORGED: forgery, **(_junk() if forgery == "junk" else marks)}
    policy = job["spec"]["runPolicy"]
    if forgery in {"paused", "giant"}:
        policy["suspend"] = True
    if forgery in {"elsewhere", "giant"}:
        policy["managedBy"] = "kueue.x-k8s.io/multikueue"
    if forgery == "queued":
        job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "absent"
    return job


def _junk() -> dict[str, str]:
    """Return annotations that resemble kfext's, and leave only `SPARE_BYTES` for others."""
    junk = {f"kfext.dev/colocatio-{number}": "required" for number in range(_JUNK_KEYS)}
    used = sum(len(key) + len(value) for key, value in junk.items())
    notes = "notes"
    spare = MAX_BYTES - SPARE_BYTES - used - len(notes) - len(FORGED) - len("junk")
    return {**junk, notes: "x" * spare}


def forged_mark(key: str, job: Object, nodes: list[str]) -> str:
    """Return a forged value of a mark; a forged plan has all pods on `nodes`."""
    uid = job["metadata"].get("uid", "a-guess")
    if key == HELD:
        return "forged"
    if key == STATE:
        return json.dumps({"uid": uid, "strikes": -5, "retryAt": _FAR, "generation": 7})
    places = {
        type_.lower(): [number % len(nodes) for number in range(min(spec["replicas"], 64))]
        for type_, spec in jobs.specs(job).items()
    }
    plan = {"uid": uid, "generation": 7, "nodes": nodes, "replicas": places, "why": "forged"}
    return json.dumps(plan)


def stray_pod(name: str, owner: Object) -> Object:
    """Return a pod that claims to be a member of a job, with a finalizer."""
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


class Tenants(Actor):
    """Actions of tenants: one method per action. `wrong`: messages on forgeries that succeeded."""

    def __init__(self, kube: Kube) -> None:
        super().__init__(kube)
        self._clients: dict[str, Kube] = {}
        self.wrong: list[str] = []

    def move_in(self, spaces: list[Space], folder: Path) -> None:
        """Create a tenant for each namespace; wait until the policy protects the marks."""
        for space in spaces:
            tenant_folder = folder / space.name
            tenant_folder.mkdir(parents=True, exist_ok=True)
            self._clients[space.name] = Tenant(space, tenant_folder).kube
        name = spaces[0].name
        probe = forged_job("probe", "paused")
        self._ask("POST", jobs_path(name, probe["kind"]), probe)
        path = jobs_path(name, probe["kind"], "probe")
        body = {"metadata": {"annotations": {PLAN: "{}"}}}
        until(
            lambda: self._clients[name].ask("PATCH", path, body, kind=_MERGE).status == 403,
            what="the policy that protects the marks is active",
        )
        self._ask("DELETE", path)

    def forge(self, namespace: str, kind: str, name: str, mark: str, node: str) -> None:
        job = self._kube.find(jobs_path(namespace, kind, name))
        if job is None:
            return
        body = {"metadata": {"annotations": {mark: forged_mark(mark, job, [node])}}}
        path = jobs_path(namespace, kind, name)
        answer = self._clients[namespace].ask("PATCH", path, body, kind=_MERGE)
        refused = answer.status == 403 and _PROTECTED in answer.message
        self.effects["forge"] += refused
        if not refused and answer.status != 404:
            self.wrong.append(
                f"[forged] a tenant wrote {mark} on {namespace}/{name}: "
                f"{answer.status} {answer.message}"
            )

    def submit_forged(self, namespace: str, manifest: Object) -> None:
        answer = self._clients[namespace].ask(
            "POST", jobs_path(namespace, manifest["kind"]), manifest
        )
        self.effects["submit_forged"] += self._expect(answer, manifest["metadata"]["name"])

    def drop_forged(self, namespace: str, kind: str, name: str) -> None:
        self._ask("DELETE", jobs_path(namespace, kind, name))

    def plant(self, namespace: str, kind: str, name: str, nodes: list[str]) -> None:
        """Write a plan on a job that kfext must not place, as from before the policy existed."""
        path = jobs_path(namespace, kind, name)
        job = self._kube.find(path)
        if job is not None:
            plan = forged_mark(PLAN, job, nodes)
            body = {"metadata": {"annotations": {PLAN: plan}}}
            self.effects["plant"] += self._patch(path, body)

    def stray(self, namespace: str, name: str, victim: tuple[str, str, str]) -> None:
        """Create a pod that names a job of another namespace as its owner, and has a finalizer."""
        victim_namespace, kind, job = victim
        owner = self._kube.find(jobs_path(victim_namespace, kind, job))
        if owner is not None:
            pod = stray_pod(name, owner)
            answer = self._clients[namespace].ask("POST", pods_path(namespace), pod)
            self.effects["stray"] += self._expect(answer, name)

    def drop_stray(self, namespace: str, name: str) -> None:
        self._patch(pods_path(namespace, name), {"metadata": {"finalizers": None}})
        self._ask("DELETE", pods_path(namespace, name))


def install_refusals(kube: Kube, probe: str) -> None:
    """Create the policies, and wait until they are active. `probe`: a namespace to try them in."""
    for writes, (rule, condition) in RULES.items():
        name = f"soak-{writes}"
        spec = {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {REFUSES: writes}},
                "resourceRules": [{"apiVersions": ["v1"], **rule}],
            },
            "validations": [{"expression": condition, "message": REFUSAL, "reason": "Forbidden"}],
        }
        _create(kube, "ValidatingAdmissionPolicy", name, spec)
        binding = {"policyName": name, "validationActions": ["Deny"]}
        _create(kube, "ValidatingAdmissionPolicyBinding", name, binding)
    labels = f"/api/v1/namespaces/{probe}"
    kube.patch(labels, {"metadata": {"labels": {REFUSES: "pods"}}})
    path = f"{pods_path(probe)}?dryRun=All"
    until(
        lambda: kube.ask("POST", path, thief("probe", "", 1)).status == 403,
        what="the soak's policies are active",
    )
    kube.patch(labels, {"metadata": {"labels": {REFUSES: None}}})


def _create(kube: Kube, kind: str, name: str, spec: Object) -> None:
    plural = "ies".join(kind.rsplit("y", 1)) if kind.endswith("y") else f"{kind}s"
    body = {"kind": kind, "metadata": {"name": name}, "spec": spec}
    body["apiVersion"] = "admissionregistration.k8s.io/v1"
    kube.create(f"{_ROOT}/{plural.lower()}", body)
