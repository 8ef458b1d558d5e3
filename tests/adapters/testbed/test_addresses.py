import ipaddress
from itertools import combinations
from pathlib import Path

import pytest

from e2e.testbed.addresses import SLOTS, Addresses, choose, claim


@pytest.mark.parametrize(
    ("held", "routes", "slot"),
    [
        (set(), [], 0),
        ({0, 1}, [], 2),
        ({1}, [], 0),
        (set(), ["10.208.0.0/16"], 1),
        (set(), ["10.208.7.0/24"], 1),  # a route inside slot 0
        (set(), ["10.208.0.0/15"], 2),  # a route around slots 0 and 1
        (set(), ["10.209.3.4"], 0),  # a host route outside slot 0
        (set(), ["192.168.0.0/16", "10.0.0.0/9"], 0),
        ({0}, ["10.209.0.0/16"], 2),
    ],
)
def test_the_first_slot_without_a_holder_and_a_route_is_chosen(
    held: set[int], routes: list[str], slot: int
) -> None:
    assert choose(held, routes) == Addresses(slot)


@pytest.mark.parametrize("slot", [0, 7, SLOTS - 1])
def test_the_networks_of_a_slot_lie_within_it_and_do_not_overlap(slot: int) -> None:
    addresses = Addresses(slot)
    network_of_slot = ipaddress.IPv4Network(addresses.network)
    parts = [addresses.node_network, addresses.service_cidr]
    parts += [addresses.pod_cidr(index) for index in (0, 1, 199)]
    networks = [ipaddress.IPv4Network(part) for part in parts]
    assert all(network.subnet_of(network_of_slot) for network in networks)
    assert not any(network.overlaps(other) for network, other in combinations(networks, 2))
    nodes, services = networks[0], networks[1]
    assert ipaddress.IPv4Address(addresses.bridge) in nodes
    assert all(ipaddress.IPv4Address(addresses.node(index)) in nodes for index in (0, 199))
    assert addresses.node(0) != addresses.bridge
    # Kubernetes gives its own Service the first address of the Service range.
    assert ipaddress.IPv4Address(addresses.kubernetes_service) == services[1]


def test_a_claimed_slot_is_held_as_long_as_its_record_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("e2e.testbed.addresses.routes", list)
    slots = []
    for name in ("one", "two"):
        with claim(tmp_path) as addresses:
            (tmp_path / name).mkdir()
            (tmp_path / name / "slot").write_text(str(addresses.slot))
        slots.append(addresses.slot)
    assert slots == [0, 1]
    (tmp_path / "one" / "slot").unlink()
    with claim(tmp_path) as addresses:
        assert addresses.slot == 0
