"""What a test does to the pods of a job, and what kfext says of their host network."""

from e2e.harness.jobs import ports
from e2e.harness.kube import Object
from e2e.harness.space import Space

FOREIGN = "example.com/gate"
FOREIGN_GATE = {"schedulingGates": [{"name": FOREIGN}]}
_SLOW = "example.com/slow"
HOST = {"kfext.dev/network": "host"}


def take_foreign_gate(space: Space, job: str) -> None:
    """Play the other system that takes its own gate away."""
    for pod in space.pods(job):
        gates = [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]
        if FOREIGN in gates:
            operation = {"op": "remove", "path": f"/spec/schedulingGates/{gates.index(FOREIGN)}"}
            path = space.path("pods", pod["metadata"]["name"])
            space.kube.patch(path, [operation], kind="json")


def occupy(space: Space, path: str) -> None:
    """Have a pod of nobody's job bear a name, so that the operator cannot use it."""
    space.kube.create(space.path("pods"), squatter(path.rsplit("/", 1)[-1]))


def squatter(name: str) -> Object:
    """Return a pod of nobody's job that does nothing but bear a name."""
    spec = {"containers": [{"name": "squatter", "image": "none"}], **FOREIGN_GATE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def end_slowly(space: Space, names: list[str]) -> None:
    """Have pods take as long to end as the test likes."""
    for name in names:
        space.kube.patch(space.path("pods", name), {"metadata": {"finalizers": [_SLOW]}})


def end_now(space: Space, names: list[str]) -> None:
    for name in names:
        space.kube.patch(space.path("pods", name), {"metadata": {"finalizers": None}})


def succeed(space: Space, name: str) -> None:
    """Have the program in a pod come to its end, once it runs: a kubelet would say so after."""
    path = space.path("pods", name)
    space.until(lambda: space.kube.get(path)["status"].get("phase") == "Running", f"{name} runs")
    space.kube.patch(f"{path}/status", {"status": {"phase": "Succeeded"}})


def uids(space: Space, job: str) -> dict[str, str]:
    """Return the uid of each pod of a job: another one is another pod."""
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in space.pods(job)}


def asked(space: Space, name: str, kind: str = "PyTorchJob") -> Object:
    """Return the condition that answers who asked for the host network."""

    def told() -> Object | None:
        conditions = space.view(name, kind).get("conditions", [])
        return next(
            (condition for condition in conditions if condition["type"] == "HostNetwork"), None
        )

    found: Object = space.until(told, "the TrainingPlan says which network")
    return found


def reasons(space: Space, name: str) -> set[str]:
    """Return the reasons of the events of a job."""
    return {event["reason"] for event in space.events(name)}


def master_port(space: Space, name: str) -> int:
    """Wait until a job is placed; return the port of the node that its master has."""
    space.phase(name, "Placed")
    (port,) = next(
        ports(pod) for pod in space.pods(name) if pod["metadata"]["name"] == f"{name}-master-0"
    )
    return port
