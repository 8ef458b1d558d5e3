"""The record of the capacity: the entry of each node, the totals, and the size of the record."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.ledger.ledger import Ledger
from kfext.core.queue.capacity_record import MAX_BYTES, capacity_record, capacity_totals
from kfext.core.queue.reservation import Reservation, kept_claims
from kfext.model.node import Node
from kfext.model.quantity import CPU, MEMORY
from kfext.names import DRAIN
from tests.builders import Raw, node
from tests.unit.core.queue.cluster import GPU, Use, cluster

CONFIG_MAP_BYTES = 2**20
"""The API server's limit on a ConfigMap."""


def reservation(
    capacity: Ledger, kept: Mapping[str, int], *, until: float = math.inf
) -> Reservation:
    """A reservation, and its claims on the ledger; `kept`: the reserved GPUs by node."""
    claims = kept_claims("uid-of-the-head", {name: {GPU: count} for name, count in kept.items()})
    capacity.claim_all(claims)
    nodes = tuple(sorted(kept))
    return Reservation(job="uid-of-the-head", nodes=nodes, to_free=0.0, claims=claims, until=until)


def record(capacity: Ledger, current: Reservation | None = None) -> dict[str, Any]:
    results: dict[str, Any] = json.loads(capacity_record(capacity, current))
    return results


def totals(capacity: Ledger, current: Reservation | None = None) -> dict[str, int]:
    """The number of GPUs in each state."""
    result = capacity_totals(capacity, current)
    return {state: number for resource, state, number in result if resource == GPU}


@dataclass(frozen=True)
class Case:
    """A cluster of nodes with 8 GPUs each.

    `free`: the free GPUs in the record, by node.
    `totals`: the used, reserved and free GPUs.
    `kept`: the reserved GPUs by node.
    `node`: the fields of some nodes, by name.
    """

    use: Use
    free: Mapping[str, int]
    totals: tuple[int, ...]
    kept: Mapping[str, int] | None = None
    node: Mapping[str, Raw] | None = None


DRAINED: Raw = {"taints": [{"key": DRAIN, "effect": "PreferNoSchedule"}]}
CASES: dict[str, Case] = {
    "pods and plans of all namespaces count": Case(
        {"a": {"x": 3, "": 1}, "b": {}}, {"a": 4, "b": 8}, (4, 0, 12)
    ),
    "reserved capacity is free for one job": Case(
        {"a": {"x": 3}, "b": {}}, {"a": 5, "b": 8}, (3, 7, 6), kept={"a": 5, "b": 2}
    ),
    "overcommitted capacity counts as used once": Case(
        {"a": {"ends": 8, "next": 4}, "b": {}}, {"a": 0, "b": 8}, (8, 0, 8)
    ),
    "capacity that pods still use is not reserved": Case(
        {"a": {"ends": 6}}, {"a": 2}, (6, 2, 0), kept={"a": 8}
    ),
    "the total free capacity excludes cordoned and drained nodes": Case(
        {"a": {"x": 1}, "b": {"y": 1}, "c": {}},
        {"a": 7, "b": 7, "c": 8},
        (2, 0, 8),
        node={"a": {"cordoned": True}, "b": DRAINED},
    ),
    "no nodes": Case({}, {}, ()),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_free_used_and_reserved_capacity(case: Case) -> None:
    capacity = cluster(case.use)
    for name, more in (case.node or {}).items():
        capacity.set_node(node(name, gpus=8, **more))
    current = reservation(capacity, case.kept) if case.kept else None
    result = record(capacity, current)["nodes"]
    assert {name: entry["free"][GPU] for name, entry in result.items()} == case.free
    assert all(entry["allocatable"][GPU] == 8 for entry in result.values())
    assert tuple(totals(capacity, current).values()) == case.totals


def test_the_numbers_are_millicores_bytes_and_devices() -> None:
    capacity = Ledger([node("a", cpu="1500m", memory="2Gi", gpus=1)])
    amounts = {CPU: 1500, MEMORY: 2 * 2**30, GPU: 1}
    assert record(capacity)["nodes"] == {"a": {"allocatable": amounts, "free": amounts}}


def test_only_the_main_resources_that_the_node_has_are_listed() -> None:
    capacity = Ledger([node("a", gpus=8), node("b", **{"hugepages-2Mi": "1Gi"})])
    listed = {name: [*entry["free"]] for name, entry in record(capacity)["nodes"].items()}
    assert listed == {"a": [CPU, MEMORY, GPU], "b": [CPU, MEMORY]}


UNTIL: dict[str, tuple[float, int | None]] = {
    "unknown": (math.inf, None),
    "in the past, if the jobs are late": (100.0, 120),
    "rounded to a minute, or each step of a job would change the record": (1_000_019.0, 1_000_020),
}


@pytest.mark.parametrize(("until", "shown"), UNTIL.values(), ids=UNTIL)
def test_the_reservation_has_its_nodes_and_its_expected_end(
    until: float, shown: int | None
) -> None:
    capacity = cluster({"a": {"x": 3}, "b": {}})
    current = reservation(capacity, {"b": 2, "a": 5}, until=until)
    assert record(capacity, current)["reservation"] == {"nodes": ["a", "b"], "until": shown}
    assert record(capacity)["reservation"] is None


def test_the_record_names_no_job() -> None:
    capacity = cluster({"a": {"uid-of-a-job": 3}})
    assert "uid-of" not in capacity_record(capacity, reservation(capacity, {"a": 5}))


def large(count: int, *, length: int, gpus: int = 8) -> list[Node]:
    """Nodes with names of a length, and amounts of as many digits as real nodes have."""
    full = {"cpu": "191500m", "memory": "2113341046784"}
    names = (f"n{number:05}".ljust(length, "x") for number in range(count))
    return [node(name, gpus=gpus, **full) for name in names]


def test_five_thousand_nodes_with_long_names_fit_into_a_config_map() -> None:
    capacity = Ledger(large(5000, length=40))
    assert len(record(capacity)["nodes"]) == 5000
    assert len(capacity_record(capacity, None)) <= CONFIG_MAP_BYTES


def test_of_too_many_nodes_the_last_without_gpus_are_omitted() -> None:
    with_gpus, without = large(3000, length=60), large(6000, length=61, gpus=0)
    capacity = Ledger([*without, *with_gpus])
    current = reservation(capacity, {known.name: 8 for known in with_gpus[:500]})
    written = capacity_record(capacity, current)
    assert MAX_BYTES - 1000 < len(written) <= CONFIG_MAP_BYTES
    listed = sorted(json.loads(written)["nodes"].keys() - {known.name for known in with_gpus})
    assert len(listed) == len(json.loads(written)["nodes"]) - 3000
    assert listed == sorted(known.name for known in without)[: len(listed)]


@given(
    use=st.dictionaries(
        st.sampled_from("abcd"),
        st.dictionaries(st.sampled_from(["x", "y", ""]), st.integers(0, 12), max_size=3),
    ),
    kept=st.dictionaries(st.sampled_from("abcd"), st.integers(1, 8), max_size=4),
)
def test_the_states_add_up_to_the_capacity_of_the_nodes(use: Use, kept: Mapping[str, int]) -> None:
    capacity = cluster(use)
    current = reservation(capacity, {name: count for name, count in kept.items() if name in use})
    by_state = Counter(totals(capacity, current))
    assert min(by_state.values(), default=0) >= 0
    assert by_state.total() == 8 * len(use)
    free = sum(entry["free"][GPU] for entry in record(capacity, current)["nodes"].values())
    assert free == by_state["free"] + by_state["reserved"]
