"""Which replica has which of the job's ports."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.ledger.port_offsets import offset_of, offsets
from kfext.model.pod import ReplicaKey
from tests.builders import JobBuilder, job

OFFSETS = {
    "only the master of a PyTorchJob listens": (job().master().worker(3), {"master-0": 0}),
    "a master alone listens to itself": (job().master(), {"master-0": 0}),
    "elastic workers meet at the first, and none may share a node": (
        job().worker(3).elastic(rdzvBackend="c10d"),
        {"worker-0": 0, "worker-1": 0, "worker-2": 0},
    ),
    "c10d is the default of an elastic job": (
        job().worker(2).elastic(),
        {"worker-0": 0, "worker-1": 0},
    ),
    "workers of neither kind meet nobody knows where": (job().worker(2), {}),
    "elastic workers that meet at a host outside": (
        job().worker(2).elastic(rdzvHost="etcd.example"),
        {"worker-0": 0, "worker-1": 0},
    ),
    "nobody listens if workers meet in etcd": (job().worker(2).elastic(rdzvBackend="etcd"), {}),
    "every replica of a TFJob listens": (
        job("TFJob").group("Chief").ps(2).worker(2).group("Evaluator"),
        {"chief-0": 0, "ps-0": 3, "ps-1": 4, "worker-0": 5, "worker-1": 6, "evaluator-0": 2},
    ),
    "a TFJob without servers": (job("TFJob").worker(2), {"worker-0": 3, "worker-1": 4}),
    "a single TensorFlow process listens to nobody": (job("TFJob").worker(1), {}),
}


@pytest.mark.parametrize(("made", "want"), OFFSETS.values(), ids=OFFSETS)
def test_who_declares_which_offset(made: JobBuilder, want: dict[str, int]) -> None:
    assert {
        f"{key.type}-{key.index}": offset for key, offset in offsets(made.build()).items()
    } == want


REPLICAS: dict[str, tuple[str, int, int | None]] = {
    "a chief is the first": ("chief", 0, 0),
    "a master comes after it": ("master", 0, 1),
    "an evaluator after both": ("evaluator", 0, 2),
    "there is one chief": ("chief", 1, None),
    "the first server": ("ps", 0, 3),
    "workers come after the servers": ("worker", 1, 6),
    "a type that nobody connects to": ("launcher", 0, None),
}


@pytest.mark.parametrize(("type_", "index", "want"), REPLICAS.values(), ids=REPLICAS)
def test_the_slot_of_a_replica_beside_two_servers(type_: str, index: int, want: int | None) -> None:
    assert offset_of(type_, index, servers=2) == want


@given(st.integers(0, 9), st.integers(1, 9), st.booleans())
def test_no_two_replicas_have_one_slot_and_more_workers_move_nobody(
    servers: int, workers: int, chief: bool
) -> None:
    def made(count: int) -> dict[ReplicaKey, int]:
        builder = job("TFJob").worker(count)
        if servers:
            builder.ps(servers)
        return dict(offsets((builder.group("Chief") if chief else builder).build()))

    smaller, larger = made(workers), made(workers + 1)
    assert len(set(smaller.values())) == len(smaller)
    assert smaller.items() <= larger.items()
