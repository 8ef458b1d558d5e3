"""kfext stores little of the largest objects that the API server accepts."""

import gc
import tracemalloc
from collections.abc import Callable
from copy import deepcopy

import msgspec
import pytest

from kfext import names
from kfext.kube.wire import decode_pod, decode_rendered
from kfext.state.mirror.cluster import Cluster
from tests import largest_objects
from tests.largest_objects import Object

JOB_BYTES = 100_000
"""The most bytes of a job in the mirror; an ordinary job has a tenth."""
POD_BYTES = 40_000


def kept_bytes(function: Callable[[], object]) -> int:
    """Return the bytes that a function has allocated and that its result keeps in use."""
    gc.freeze()  # earlier allocations need not be searched
    tracemalloc.start()
    result = function()
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    gc.unfreeze()
    del result
    return used


def keeps_less_than(limit: int, function: Callable[[], object]) -> bool:
    """Return whether the result of a function keeps less than `limit` bytes in use.

    In one try a table of the process (interned strings, a cache) may have to grow, so there are
    three tries.
    """
    return any(kept_bytes(function) < limit for _ in range(3))


def as_stored(raw: Object, uid: str = "uid-1") -> bytes:
    stored = deepcopy(raw)
    stored["metadata"] |= {"namespace": "team", "uid": uid, "resourceVersion": "1"}
    return msgspec.json.encode(stored)


@pytest.mark.parametrize("what", largest_objects.jobs())
def test_little_is_kept_of_a_large_job(what: str) -> None:
    written = as_stored(largest_objects.jobs()[what]())

    def observe() -> Cluster:
        cluster = Cluster()
        cluster.observe_job(msgspec.json.decode(written))
        return cluster

    assert keeps_less_than(JOB_BYTES, observe)


@pytest.mark.parametrize("what", largest_objects.jobsets())
def test_little_is_kept_of_a_large_jobset(what: str) -> None:
    written = as_stored(largest_objects.jobsets()[what]())
    assert keeps_less_than(JOB_BYTES, lambda: decode_rendered(written))


@pytest.mark.parametrize("gated", [False, True], ids=["running", "gated"])
@pytest.mark.parametrize("what", largest_objects.pods())
def test_little_is_kept_of_a_large_pod(what: str, *, gated: bool) -> None:
    raw = largest_objects.pods()[what]()
    if gated:
        raw["spec"]["schedulingGates"] = [{"name": names.GATE}]
    written = as_stored(raw)
    assert keeps_less_than(POD_BYTES, lambda: decode_pod(written))


def test_the_cache_of_many_different_pods_is_bounded() -> None:
    term = {"key": "k", "operator": "In", "values": ["v"]}
    affinity = {"nodeAffinity": {"preferred": [term] * 200}}

    stored = [
        as_stored(
            largest_objects.pod("p", affinity=affinity, nodeSelector={"k": str(number)}),
            uid=f"uid-{number}",
        )
        for number in range(2000)
    ]

    def decode() -> None:
        for body in stored:
            decode_pod(body)

    assert kept_bytes(decode) < 60 * 2**20
