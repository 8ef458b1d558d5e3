"""The addresses of a TFJob on the host network."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.kinds.tfjob import TFConfig, offset_of
from tests.unit.objects import json_values

BASE = 20000


def address(type_: str, index: int, port: int = 2222) -> str:
    return f"train-{type_}-{index}.team.svc:{port}"


def config(**cluster: Any) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 1}})


FULL = {
    "chief": [address("chief", 0)],
    "ps": [address("ps", 0), address("ps", 1)],
    "worker": [address("worker", 0), address("worker", 1)],
}

# The first three ports are for the chief, the master and the evaluator, even if the job has none.
CLUSTERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "every replica has its own port": (
        FULL,
        {
            "chief": [address("chief", 0, BASE)],
            "ps": [address("ps", 0, BASE + 3), address("ps", 1, BASE + 4)],
            "worker": [address("worker", 0, BASE + 5), address("worker", 1, BASE + 6)],
        },
    ),
    "the sparse cluster of a worker": (
        {"ps": FULL["ps"], "worker": {"1": address("worker", 1)}},
        {
            "ps": [address("ps", 0, BASE + 3), address("ps", 1, BASE + 4)],
            "worker": {"1": address("worker", 1, BASE + 6)},
        },
    ),
    "a list with only the second parameter server: its index is not its position": (
        {"ps": [address("ps", 1)]},
        {"ps": [address("ps", 1, BASE + 4)]},
    ),
    "an address of another job stays": (
        {"worker": ["other-worker-0.team.svc:2222", address("worker", 0)]},
        {"worker": ["other-worker-0.team.svc:2222", address("worker", 0, BASE + 3)]},
    ),
    "an index that kfext does not accept": (
        {"worker": ["train-worker-9999999.team.svc:1", "train-worker-².team.svc:1"]},
        {"worker": ["train-worker-9999999.team.svc:1", "train-worker-².team.svc:1"]},
    ),
    "a type that no replica connects to": (
        {"launcher": [address("launcher", 0)]},
        {"launcher": [address("launcher", 0)]},
    ),
}


@pytest.mark.parametrize(("cluster", "want"), CLUSTERS.values(), ids=CLUSTERS)
def test_the_ports_of_a_cluster(cluster: dict[str, Any], want: Any) -> None:
    config_ = TFConfig(config(**cluster)).with_ports("train", base=BASE)
    assert config_ is not None
    content = json.loads(config_)
    assert content["cluster"] == want
    assert content["task"] == {"type": "worker", "index": 1}


def test_a_second_change_of_the_ports_changes_nothing() -> None:
    once = TFConfig(config(**FULL)).with_ports("train", base=BASE)
    assert once is not None
    assert TFConfig(once).with_ports("train", base=BASE) == once


LISTENS: dict[str, tuple[str, str, int, int | None]] = {
    "the chief at the base": (config(**FULL), "chief", 0, BASE),
    "a server": (config(**FULL), "ps", 1, BASE + 4),
    "a worker after all servers": (config(**FULL), "worker", 0, BASE + 5),
    "a worker without servers": (config(worker=FULL["worker"]), "worker", 0, BASE + 3),
    "a second chief": (config(**FULL), "chief", 1, None),
    "a replica of no cluster": (json.dumps({"task": {}}), "worker", 0, None),
}


@pytest.mark.parametrize(("written", "type_", "index", "want"), LISTENS.values(), ids=LISTENS)
def test_where_a_replica_listens(written: str, type_: str, index: int, want: int | None) -> None:
    assert TFConfig(written).port_of(type_, index, base=BASE) == want


REPLICAS: dict[str, tuple[str, int, int | None]] = {
    "a chief is the first": ("chief", 0, 0),
    "a master comes after it": ("master", 0, 1),
    "an evaluator after both": ("evaluator", 0, 2),
    "there is only one chief": ("chief", 1, None),
    "the first server": ("ps", 0, 3),
    "workers come after the servers": ("worker", 1, 6),
    "an index that kfext does not accept": ("ps", -1, None),
    "a type that no replica connects to": ("launcher", 0, None),
}


@pytest.mark.parametrize(("type_", "index", "want"), REPLICAS.values(), ids=REPLICAS)
def test_the_port_offset_beside_two_servers(type_: str, index: int, want: int | None) -> None:
    assert offset_of(type_, index, servers=2) == want


DAMAGED: dict[str, str] = {
    "nothing": "",
    "not JSON": "{",
    "brackets that never close": "[" * 100_000,
    "not an object": "[1]",
    "a cluster that is a number": '{"cluster": 3}',
    "an empty cluster": '{"cluster": {}}',
}


@pytest.mark.parametrize("written", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_cluster_stays_unchanged(written: str) -> None:
    result = TFConfig(written)
    assert result.with_ports("train", base=BASE) is None
    assert result.port_of("worker", 0, base=BASE) is None


@given(
    json_values
    | st.fixed_dictionaries({"cluster": st.dictionaries(st.sampled_from(["ps", "x"]), json_values)})
)
def test_any_cluster_gives_a_json_object_or_nothing(value: Any) -> None:
    config_ = TFConfig(json.dumps(value)).with_ports("train", base=BASE)
    assert config_ is None or isinstance(json.loads(config_), dict)
