"""Which host ports a pod uses, as kube-scheduler counts them."""

from typing import Any

import pytest

from kfext.model.constraints import parse_constraints


def container(*ports: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"ports": list(ports), **fields}


SIDECAR = {"restartPolicy": "Always"}
PORTS: dict[str, tuple[dict[str, Any], set[tuple[str, int]]]] = {
    "only a container port": ({"containers": [container({"containerPort": 80})]}, set()),
    "a host port, TCP by default": (
        {"containers": [container({"containerPort": 80, "hostPort": 8080})]},
        {("TCP", 8080)},
    ),
    "a UDP and a TCP port of the same number are two": (
        {"containers": [container({"hostPort": 1}, {"hostPort": 1, "protocol": "UDP"})]},
        {("TCP", 1), ("UDP", 1)},
    ),
    "every container counts": (
        {"containers": [container({"hostPort": 1}), container({"hostPort": 2})]},
        {("TCP", 1), ("TCP", 2)},
    ),
    "the port of a sidecar counts": (
        {"containers": [], "initContainers": [container({"hostPort": 1}, **SIDECAR)]},
        {("TCP", 1)},
    ),
    "the port of an init container does not count": (
        {"containers": [], "initContainers": [container({"hostPort": 1})]},
        set(),
    ),
    "on the host network a container port is a host port": (
        {"hostNetwork": True, "containers": [container({"containerPort": 80})]},
        {("TCP", 80)},
    ),
    "on the host network a host port of 0 means the container port": (
        {"hostNetwork": True, "containers": [container({"containerPort": 80, "hostPort": 0})]},
        {("TCP", 80)},
    ),
    "a port on one address counts on all addresses": (
        {"containers": [container({"hostPort": 1, "hostIP": "10.0.0.1"})]},
        {("TCP", 1)},
    ),
}


@pytest.mark.parametrize(("spec", "want"), PORTS.values(), ids=PORTS)
def test_the_host_ports_of_a_pod(spec: dict[str, Any], want: set[tuple[str, int]]) -> None:
    assert set(parse_constraints(spec).host_ports) == want


def test_a_pod_that_names_its_node_is_pinned_by_nothing_else() -> None:
    constraints = parse_constraints({"nodeName": "a"})
    assert constraints.node_name == "a"
    assert constraints.pinned_to is None
