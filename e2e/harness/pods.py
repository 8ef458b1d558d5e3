"""Changes that a test makes to pods, and ways to make the API server refuse pods."""

from collections.abc import Iterator
from contextlib import contextmanager

from e2e.harness.faults import Delay
from e2e.harness.jobs import ports
from e2e.harness.kube import Object
from e2e.harness.nodes import wait_received
from e2e.harness.space import CASE, Space
from e2e.harness.wait import until

FOREIGN = "example.com/gate"
FOREIGN_GATE = {"schedulingGates": [{"name": FOREIGN}]}
_FINALIZER = "example.com/slow"
HOST = {"kfext.dev/network": "host"}


def remove_foreign_gate(space: Space, job: str) -> None:
    """Remove the other system's scheduling gate from the pods of a job, as that system would."""
    for pod in space.pods(job):
        gates = [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]
        if FOREIGN in gates:
            operation = {"op": "remove", "path": f"/spec/schedulingGates/{gates.index(FOREIGN)}"}
            path = space.path("pods", pod["metadata"]["name"])
            space.kube.patch(path, [operation], kind="json")


def occupy(space: Space, path: str) -> None:
    """Create a pod without a job under the name in `path`, so that the operator cannot use it."""
    space.kube.create(space.path("pods"), occupying_pod(path.rsplit("/", 1)[-1]))


def occupying_pod(name: str) -> Object:
    """Return a pod without a job that only occupies a name."""
    spec = {"containers": [{"name": "squatter", "image": "none"}], **FOREIGN_GATE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def end_slowly(space: Space, names: list[str]) -> None:
    """Add a finalizer to pods, so that deleted pods stay terminating until `end_now`."""
    for name in names:
        space.kube.patch(space.path("pods", name), {"metadata": {"finalizers": [_FINALIZER]}})


def end_now(space: Space, names: list[str]) -> None:
    for name in names:
        space.kube.patch(space.path("pods", name), {"metadata": {"finalizers": None}})


def succeed(space: Space, name: str) -> None:
    """Wait until a pod runs, and let it succeed."""
    path = space.path("pods", name)
    space.until(lambda: space.kube.get(path)["status"].get("phase") == "Running", f"{name} runs")
    space.kube.patch(f"{path}/status", {"status": {"phase": "Succeeded"}})


def uids(space: Space, job: str) -> dict[str, str]:
    """Return the uids of the pods of a job, by name."""
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in space.pods(job)}


def host_network_condition(space: Space, name: str, kind: str = "PyTorchJob") -> Object:
    """Wait for the condition HostNetwork of a job, and return it."""

    def host_network() -> Object | None:
        conditions = space.view(name, kind).get("conditions", [])
        return next(
            (condition for condition in conditions if condition["type"] == "HostNetwork"), None
        )

    condition: Object = space.until(host_network, "the TrainingPlan has the condition HostNetwork")
    return condition


def reasons(space: Space, name: str) -> set[str]:
    """Return the reasons of the events about an object."""
    return {event["reason"] for event in space.events(name)}


def master_port(space: Space, name: str) -> int:
    """Wait until a job is placed; return the only host port of its master."""
    space.phase(name, "Placed")
    (port,) = next(
        ports(pod) for pod in space.pods(name) if pod["metadata"]["name"] == f"{name}-master-0"
    )
    return port


_ENFORCE = "pod-security.kubernetes.io/enforce"
_ROOT = "/apis/admissionregistration.k8s.io/v1"
_JSON_PATCH = "application/json-patch+json"
_ADMITTED, _NOT_ADMITTED = {201}, {403, 422}
_CLAIM: Object = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "probe"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    },
}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}


def limit_pods(space: Space, number: int) -> str:
    """Set a quota on the number of pods of a namespace; return the API path of the quota.

    When a pod is deleted, Kubernetes counts again, and may miss a new pod; a case that needs an
    exact number must not delete pods.
    """
    path = f"/api/v1/namespaces/{space.name}/resourcequotas"
    # No volume claim is allowed, so a refused claim shows that the quota is in force.
    hard = {"pods": str(number), "persistentvolumeclaims": "0"}
    body = {"metadata": {"name": "limit"}, "spec": {"hard": hard}}
    space.kube.create(path, {"apiVersion": "v1", "kind": "ResourceQuota", **body})
    until(lambda: space.kube.get(f"{path}/limit").get("status"), what="the quota has a status")
    _wait(space, _CLAIM, _NOT_ADMITTED)
    wait_received(space.kfext, f"{path}/limit")
    return f"{path}/limit"


def refuse_pods(space: Space, *, create_timeout: str = "30m") -> None:
    """Make the API server refuse new pods; kfext waits for the pods for `create_timeout`."""
    space.policy(placement={"createTimeout": create_timeout})
    space.label({_ENFORCE: "restricted"})
    _wait(space, occupying_pod("probe"), _NOT_ADMITTED)


def admit_pods(space: Space, *jobs: str) -> None:
    """Admit pods again, and make the operator reconcile some jobs at once."""
    space.label({_ENFORCE: None})
    _wait(space, occupying_pod("probe"), _ADMITTED)
    for job in jobs:
        space.patch_job(job, {"metadata": {"labels": {"looked-at": "again"}}})


@contextmanager
def event_before_list(space: Space) -> Iterator[None]:
    """Delay kfext's request for the operator's events FailedCreatePod until there is such an event.

    The `with` block must submit a job with pods that the API server refuses.
    """
    request = Delay(lambda exchange: "FailedCreatePod" in exchange.query.get("fieldSelector", ""))
    space.kfext.proxy.arm(request)
    yield
    events = f"/api/v1/namespaces/{space.name}/events"
    space.until(
        lambda: [e for e in space.kube.items(events) if e["reason"] == "FailedCreatePod"],
        "the operator reports FailedCreatePod",
    )
    request.go.set()


@contextmanager
def refusing(space: Space, *, unless: str, message: str, probe: Object) -> Iterator[None]:
    """Make the API server refuse new pods of a namespace, unless a CEL expression is true.

    `message`: the text of the refusal. `probe`: a pod that must be
    refused; the block begins once its dry run is refused.
    """
    with _policy(space, rule=_PODS, unless=unless, message=message):
        _wait(space, probe, _NOT_ADMITTED)
        yield


@contextmanager
def refusing_pins(space: Space, *, message: str) -> Iterator[None]:
    """Make the API server refuse every change that pins a pod of a namespace to nodes."""
    name = "probe"
    space.kube.create(space.path("pods"), occupying_pod(name))
    here = {"key": "metadata.name", "operator": "In", "values": ["nowhere"]}
    pin = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [{"matchFields": [here]}]}}}
    operation = {"op": "add", "path": "/spec/affinity", "value": pin}
    path = f"{space.path('pods', name)}?dryRun=All"
    unless = f"!has(object.spec.affinity.nodeAffinity.{_REQUIRED})"
    unless = f"!has(object.spec.affinity) || !has(object.spec.affinity.nodeAffinity) || {unless}"
    rule = {**_PODS, "operations": ["UPDATE"]}
    with _policy(space, rule=rule, unless=unless, message=message):
        until(
            lambda: (
                space.kube.ask("PATCH", path, [operation], kind=_JSON_PATCH).status in _NOT_ADMITTED
            ),
            what="a pin is refused",
        )
        space.kube.delete(space.path("pods", name), grace=0)
        yield


@contextmanager
def _policy(space: Space, *, rule: Object, unless: str, message: str) -> Iterator[None]:
    specs: dict[str, Object] = {
        "ValidatingAdmissionPolicy": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {CASE: space.name}},
                "resourceRules": [rule],
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
        yield
    finally:
        for path in paths:
            space.kube.delete(f"{path}/{space.name}")


def _wait(space: Space, probe: Object, wanted: set[int]) -> None:
    """Wait until the answer to the dry run of a pod or a claim has one of the wanted statuses."""
    plural = {"Pod": "pods", "PersistentVolumeClaim": "persistentvolumeclaims"}[probe["kind"]]
    path = f"/api/v1/namespaces/{space.name}/{plural}?dryRun=All"
    until(
        lambda: space.kube.ask("POST", path, probe).status in wanted,
        what=f"{plural} like {probe['metadata']['name']} are answered with {wanted}",
    )
