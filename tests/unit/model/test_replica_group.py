"""What the operator adds to the pods of a replica type beyond their template."""

from typing import Any

import pytest

from kfext.model.kinds.job_kind import JobKind
from kfext.model.kinds.registered import KINDS
from kfext.model.quantity import CPU, MEMORY
from kfext.model.replica_group import parse_groups

Spec = dict[str, Any]
PYTORCH, TENSORFLOW = KINDS["PyTorchJob"], KINDS["TFJob"]
OPERATOR_PORT = {"name": "pytorchjob-port", "containerPort": 29500}
METRICS = {"name": "metrics", "containerPort": 9090}


def on_host(*containers: Spec, host: bool = True) -> Spec:
    return {"hostNetwork": host, "containers": list(containers)}


def trainer(*ports: Spec, name: str = "pytorch") -> Spec:
    return {"name": name, "ports": list(ports)}


HOST_PORTS: dict[str, tuple[JobKind, Spec, list[int]]] = {
    "a PyTorchJob on the host network": (PYTORCH, on_host(trainer()), [23456]),
    "a TFJob on the host network": (TENSORFLOW, on_host(trainer(name="tensorflow")), [2222]),
    "beside a port of the user": (PYTORCH, on_host(trainer(METRICS)), [9090, 23456]),
    "the user sets the operator's port": (PYTORCH, on_host(trainer(OPERATOR_PORT)), [29500]),
    "another container has a port of that name": (
        PYTORCH,
        on_host(trainer(), {"name": "side", "ports": [OPERATOR_PORT]}),
        [23456, 29500],
    ),
    "no container has the expected name: the first container counts": (
        PYTORCH,
        on_host(trainer(OPERATOR_PORT, name="main"), {"name": "side"}),
        [29500],
    ),
    "on the pod network": (PYTORCH, on_host(trainer(METRICS), host=False), []),
    "without a container": (PYTORCH, on_host(), []),
    "with a malformed container": (PYTORCH, {"hostNetwork": True, "containers": ["x"]}, [23456]),
}


@pytest.mark.parametrize(("kind", "spec", "want"), HOST_PORTS.values(), ids=HOST_PORTS)
def test_on_the_host_network_the_port_that_the_operator_declares_is_a_host_port(
    kind: JobKind, spec: Spec, want: list[int]
) -> None:
    (group,) = parse_groups(
        kind, {"Worker": {"template": {"spec": spec}}}, namespace="team", shares_gpus=False
    )
    assert group.constraints.host_ports == tuple(("TCP", number) for number in want)
    # Only the user's own fields prevent `network: host`.
    assert ("TCP", 23456) not in group.networking.ports


@pytest.mark.parametrize(
    ("types", "want"),
    [
        (("Master", "Worker"), [(0, 0), (50, 10 * 2**20)]),
        (("master", "worker"), [(0, 0), (50, 10 * 2**20)]),
        (("Worker",), [(0, 0)]),
        (("Master",), [(0, 0)]),
    ],
)
def test_the_init_container_of_a_worker_beside_a_master_counts(
    types: tuple[str, ...], want: list[tuple[int, int]]
) -> None:
    specs = {type_: {"template": {"spec": {"containers": [trainer()]}}} for type_ in types}
    groups = parse_groups(PYTORCH, specs, namespace="team", shares_gpus=False)
    results = [group.requests for group in groups]
    assert [(each.get(CPU, 0), each.get(MEMORY, 0)) for each in results] == want
    assert [group.charge.best_effort for group in groups] == [cpu == 0 for cpu, _ in want]
