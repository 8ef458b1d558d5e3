"""Which pod counts as a replica if several claim to be it: any user may label pods."""

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from kfext.model.gpu import GpuShare
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.replicas import by_replica, first_with_share

KEY = ReplicaKey("worker", 0)
REAL = Pod("team", "train-worker-0", "b", replica=KEY, created=10.0)
STRAY = replace(REAL, name="mine", uid="a", created=20.0)
BOUND: dict[str, Any] = {"node_name": "n", "share": GpuShare(units=50)}
CASES: dict[str, tuple[tuple[Pod, ...], str, str]] = {
    "both wait": ((REAL, STRAY), "b", ""),
    "the older pod runs": ((replace(REAL, **BOUND), STRAY), "b", "b"),
    "the younger pod runs": ((REAL, replace(STRAY, **BOUND)), "a", "a"),
    "both run": ((replace(REAL, **BOUND), replace(STRAY, **BOUND)), "b", "b"),
    "the older pod is being deleted": (
        (replace(REAL, deleting=True, **BOUND), replace(STRAY, **BOUND)),
        "a",
        "b",
    ),
    "one pod has no replica": ((replace(STRAY, replica=None), REAL), "b", ""),
}


@pytest.mark.parametrize(("pods", "member", "holder"), CASES.values(), ids=CASES)
def test_the_oldest_pod_with_a_node_is_the_replica_in_any_order(
    pods: tuple[Pod, ...], member: str, holder: str
) -> None:
    for order in permutations(pods):
        assert by_replica(order)[KEY].uid == member
        assert first_with_share(order).get(KEY, "") == holder
