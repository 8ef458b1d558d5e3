"""What kfext says and does about the host network of a job."""

from e2e.harness.kube import Object
from e2e.harness.look import ports
from e2e.harness.space import Space

HOST = {"kfext.dev/network": "host"}


def asked(space: Space, name: str, kind: str = "PyTorchJob") -> Object:
    """Return the condition that answers who asked for the host network."""

    def told() -> Object | None:
        conditions = space.view(name, kind).get("conditions", [])
        return next((one for one in conditions if one["type"] == "HostNetwork"), None)

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
