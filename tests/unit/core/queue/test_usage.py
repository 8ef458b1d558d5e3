"""The usage of namespaces, and the order between their jobs."""

import json
import math
from collections.abc import Mapping, Sequence
from heapq import merge
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.ledger.cards import as_sharing
from kfext.core.queue.usage import (
    NamespaceUsage,
    UsageRecord,
    decode_usage,
    dominant_share,
    full_usage,
    requests_of,
    usage_after,
)
from kfext.core.settings.resolve import share_of
from kfext.names import GPU_SHARE, NATIVE_GPU
from tests.builders import job

DAY = 86_400.0
CAPACITY = {"cpu": 100_000.0, "memory": 1000.0, NATIVE_GPU: 8.0}


def projected(sizes: Sequence[float], used: float, weight: float, held: float = 0.0) -> list[float]:
    """The projected usage of each job of a namespace; `sizes`: their fractions of the cluster."""
    return [
        NamespaceUsage(used, weight, held).projected(ahead, half_life=DAY)
        for ahead in accumulate(sizes[:-1], initial=0.0)
    ]


def order(**waiting: tuple[Sequence[float], float, float]) -> list[str]:
    """The namespaces in the order of their jobs; each has sizes, usage and weight."""
    lists = ([(usage, name) for usage in projected(*each)] for name, each in waiting.items())
    return [name for _, name in merge(*lists)]


ORDERS: Mapping[str, tuple[dict[str, tuple[Sequence[float], float, float]], str]] = {
    "the namespace that used less goes first": (
        {"a": ([0.1], DAY, 1.0), "b": ([0.1], 0.5 * DAY, 1.0)},
        "ba",
    ),
    "with equal usage namespaces alternate": (
        {"a": ([0.1] * 3, 0.0, 1.0), "b": ([0.1] * 3, 0.0, 1.0)},
        "ababab",
    ),
    "the size of a job itself does not count": (
        {"a": ([0.5, 0.1], 0.0, 1.0), "b": ([0.1, 0.1], 0.0, 1.0)},
        "abba",
    ),
    "with weights 2 and 1, two jobs start for each job of the other": (
        {"a": ([0.1] * 4, 0.0, 2.0), "b": ([0.1] * 2, 0.0, 1.0)},
        "aabaab",
    ),
    "weight 0 comes last, regardless of usage": (
        {"a": ([0.1], 0.0, 0.0), "b": ([0.1], DAY, 1.0), "c": ([0.1], DAY, 0.001)},
        "bca",
    ),
    "jobs without requests have an order": ({"a": ([0.0], 0.0, 0.0), "b": ([0.0], 0.0, 1.0)}, "ba"),
    "tiny differences count": ({"a": ([1e-9], 2e-9, 1.0), "b": ([1e-9], 1e-9, 1.0)}, "ba"),
}


@pytest.mark.parametrize(("waiting", "want"), ORDERS.values(), ids=ORDERS)
def test_the_order_between_namespaces(
    waiting: dict[str, tuple[Sequence[float], float, float]], want: str
) -> None:
    # At a tie of aab and aba either is right.
    assert "".join(order(**waiting)) in {want, want.replace("aab", "aba", 2)}


def test_the_jobs_of_a_namespace_with_ten_thousand_jobs_alternate_with_those_of_another() -> None:
    result = order(a=([1e-3] * 10_000, 0.0, 1.0), b=([1e-3] * 3, 0.0, 1.0))
    assert result[:6].count("b") == 3


@given(
    st.lists(st.floats(0, 1), max_size=8), st.floats(0, 1e6), st.floats(0, 1), st.floats(1e-3, 9)
)
def test_within_a_namespace_projected_usage_rises_in_the_order_of_its_jobs(
    sizes: list[float], used: float, held: float, weight: float
) -> None:
    result = projected(sizes, used, weight, held)
    assert result == sorted(result)
    assert all(map(math.isfinite, result))


# --- usage --------------------------------------------------------------------------------------


@given(st.floats(0, 1e6), st.floats(0, 1), st.lists(st.floats(0, 1e5), max_size=9))
def test_usage_does_not_depend_on_when_it_is_sampled(
    used: float, held: float, samples: list[float]
) -> None:
    by_samples = used
    for seconds in samples:
        by_samples = usage_after(seconds, by_samples, held=held, half_life=DAY)
    at_once = usage_after(sum(samples), used, held=held, half_life=DAY)
    assert by_samples == pytest.approx(at_once, rel=1e-6, abs=1e-6)


def test_usage_halves_in_a_half_life_and_approaches_full_usage() -> None:
    assert usage_after(DAY, 100.0, held=0.0, half_life=DAY) == pytest.approx(50.0)
    assert usage_after(90 * DAY, 0.0, held=1.0, half_life=DAY) == pytest.approx(full_usage(DAY))
    assert usage_after(0.0, 100.0, held=1.0, half_life=DAY) == 100.0


def test_a_millionth_of_the_cluster_adds_up_over_a_thousand_seconds() -> None:
    used = 0.0
    for _ in range(1000):
        used = usage_after(1.0, used, held=1e-6, half_life=30 * DAY)
        used = decode_usage(record(used).encode()).namespaces["a"].used
    assert used == pytest.approx(1e-3, rel=1e-3)


SHARES: Mapping[str, tuple[list[dict[str, int]], float]] = {
    "CPU": ([{"cpu": 25_000, "pods": 1}], 0.25),
    "the largest fraction counts": ([{"cpu": 25_000, "memory": 500}], 0.5),
    "GPUs": ([{"cpu": 1000, NATIVE_GPU: 2}, {NATIVE_GPU: 2}], 0.5),
    "a GPU share": ([{"kfext.dev/gpu-3": 50, "cpu": 1000}], 0.5 / 8),
    "a resource that no node has": ([{"example.com/none": 7, "cpu": 10_000}], 0.1),
    "more than the cluster has": ([{"cpu": 10**18}], 1.0),
    "nothing": ([], 0.0),
}


@pytest.mark.parametrize(("requests", "want"), SHARES.values(), ids=SHARES)
def test_the_dominant_share_of_requests(requests: list[dict[str, int]], want: float) -> None:
    assert dominant_share(requests, CAPACITY) == pytest.approx(want)
    assert dominant_share(requests, {}) == 0.0


def test_the_requests_of_a_job_include_all_pods_and_gpu_shares() -> None:
    builder = job().worker(2, cpu="1", gpus=1)
    assert dominant_share(requests_of(builder.build()), CAPACITY) == pytest.approx(2 / 8)
    shares = builder.annotated(GPU_SHARE, "0.5").held().build()
    assert share_of(shares)
    assert dominant_share(requests_of(as_sharing(shares, None)), CAPACITY) == pytest.approx(1 / 8)


@pytest.mark.parametrize("half_life", [DAY / 24, DAY, 7 * DAY])
def test_a_change_of_the_half_life_keeps_the_means(half_life: float) -> None:
    result = record(0.3 * full_usage(DAY))
    result.rescale(half_life)
    assert result.half_life == half_life
    assert result.mean("a") == pytest.approx(0.3)


def test_the_mean_of_a_namespace_is_at_most_the_whole_cluster() -> None:
    result = decode_usage('{"at": 1, "namespaces": {"a": {"used": 60}}}')
    result.rescale(DAY)
    assert result.mean("a") == 1.0


# --- the record ---------------------------------------------------------------------------------


def record(used: float) -> UsageRecord:
    return UsageRecord(1e9, DAY, {"a": NamespaceUsage(used, 2.0, 0.25, 3)})


def test_decoding_an_encoded_record_returns_it() -> None:
    assert decode_usage(record(12.5).encode()) == record(12.5)


GARBLED: Mapping[str, str] = {
    "nothing": "",
    "no JSON": "{",
    "a list": "[]",
    "no object of namespaces": '{"at": 1, "half_life": 60, "namespaces": 3}',
    "NaN": '{"namespaces": {"a": {"used": NaN, "weight": Infinity}}}',
    "negative": '{"at": -5, "half_life": -1, "namespaces": {"a": {"used": -1, "held": -2}}}',
    "text": '{"at": "now", "namespaces": {"a": {"used": "much"}}}',
    "a namespace of text": '{"namespaces": {"a": "much"}}',
    "a usage too large": '{"at": 1e300, "half_life": 1e300, "namespaces": {"a": {"used": 1e300}}}',
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("written", GARBLED.values(), ids=GARBLED)
def test_a_garbled_record_counts_as_no_usage(written: str) -> None:
    result = decode_usage(written)
    assert result.at in {0.0, 1.0}
    assert all(each.used == 0.0 for each in result.namespaces.values())
    assert all(result.mean(name) == 0.0 for name in result.namespaces)


@given(st.recursive(st.none() | st.floats() | st.text(), lambda x: st.dictionaries(st.text(), x)))
def test_any_json_is_read(written: object) -> None:
    result = decode_usage(json.dumps({"namespaces": written, "half_life": written}))
    assert result.half_life >= 1.0
