import ipaddress
from itertools import combinations
from pathlib import Path

import pytest

from e2e.testbed.addresses import SLOTS, Addresses, choose, claim


@pytest.mark.parametrize(
    ("taken", "routes", "slot"),
    [
        (set(), [], 0),
        ({0, 1}, [], 2),
        ({1}, [], 0),
        (set(), ["10.208.0.0/16"], 1),
        (set(), ["10.208.7.0/24"], 1),  # a small network within
        (set(), ["10.208.0.0/15"], 2),  # a large network around
        (set(), ["10.209.3.4"], 0),  # a host route elsewhere
        (set(), ["192.168.0.0/16", "10.0.0.0/9"], 0),
        ({0}, ["10.209.0.0/16"], 2),
    ],
)
def test_first_slot_that_nobody_holds_or_routes(
    taken: set[int], routes: list[str], slot: int
) -> None:
    assert choose(taken, routes) == Addresses(slot)


@pytest.mark.parametrize("slot", [0, 7, SLOTS - 1])
def test_parts_of_a_slot_lie_within_it_and_apart(slot: int) -> None:
    addresses = Addresses(slot)
    whole = ipaddress.IPv4Network(addresses.network)
    parts = [addresses.node_network, addresses.service_cidr]
    parts += [addresses.pod_cidr(index) for index in (0, 1, 199)]
    networks = [ipaddress.IPv4Network(part) for part in parts]
    assert all(network.subnet_of(whole) for network in networks)
    assert not any(network.overlaps(other) for network, other in combinations(networks, 2))
    nodes, services = networks[0], networks[1]
    assert ipaddress.IPv4Address(addresses.bridge) in nodes
    assert all(ipaddress.IPv4Address(addresses.node(index)) in nodes for index in (0, 199))
    assert addresses.node(0) != addresses.bridge
    # Kubernetes gives its own Service the first address of the range.
    assert ipaddress.IPv4Address(addresses.kubernetes_service) == services[1]


def test_claimed_slot_is_held_as_long_as_its_record_exists(
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
