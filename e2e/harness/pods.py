"""What others do to the pods of a job: a second system, a slow end, a program that is done."""

from e2e.harness.space import Space

FOREIGN = "example.com/gate"
FOREIGN_GATE = {"schedulingGates": [{"name": FOREIGN}]}
_SLOW = "example.com/slow"


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
    container = {"name": "squatter", "image": "none"}
    spec = {"containers": [container], **FOREIGN_GATE}
    metadata = {"name": path.rsplit("/", 1)[-1]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    space.kube.create(space.path("pods"), body)


def end_slowly(space: Space, names: list[str]) -> None:
    """Have pods take as long to end as the test likes."""
    for name in names:
        space.kube.patch(space.path("pods", name), {"metadata": {"finalizers": [_SLOW]}})


def end_now(space: Space, names: list[str]) -> None:
    for name in names:
        space.kube.patch(space.path("pods", name), {"metadata": {"finalizers": None}})


def succeed(space: Space, name: str) -> None:
    """Have the program in a pod come to its end."""
    space.kube.patch(f"{space.path('pods', name)}/status", {"status": {"phase": "Succeeded"}})


def uids(space: Space, job: str) -> dict[str, str]:
    """Return the uid of each pod of a job: another one is another pod."""
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in space.pods(job)}
