"""The prioritised job of a node, and the request of each job there."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.queue.quota import NO_RAISE
from kfext.state.running.cpu.contest import (
    MIN_REQUEST,
    Contest,
    Recipient,
    contests,
    fair_ends,
    prioritised_jobs,
    share_out,
)
from kfext.state.running.signals import JobSignal, Sharer, Signals
from tests.unit.state.running.jobs import NODE, job, pod, signals

SIZE = 1000


def job_with(uid: str, remaining: float | None, **fields: Any) -> JobSignal:
    """Return a job with one pod that requests 100m, created at 0 s; `remaining`: core-seconds."""
    pod_fields = {key: fields.pop(key) for key in fields.keys() & POD_FIELDS}
    worker = pod(f"{uid}-0", **{"request": 100, "use": 300, **pod_fields})
    return job(uid, worker, remaining=remaining, **fields)


POD_FIELDS = {"request", "user_request", "limit", "created", "node", "allocated"}


def contest(*jobs: JobSignal, headroom: dict[str, int] | None = None, **node: Any) -> Contest:
    here = signals(*jobs, allocatable=SIZE)
    here = replace(here, headroom=headroom or {})
    return replace(contests(here)[NODE], signal=replace(here.nodes[NODE], **node))


def requests(on_node: Contest, prioritised: str) -> dict[str, int]:
    first = next((job for job in on_node.jobs if job.uid == prioritised), None)
    return on_node.requests(first, on_node.jobs)


# --- the prioritised job ------------------------------------------------------------------------

A, B, C = job_with("a", 50.0), job_with("b", 100.0), job_with("c", 80.0)
YOUNG = job_with("y", math.inf, young=True)
FIRST: dict[str, tuple[list[JobSignal], str | None]] = {
    "would end first": ([A, B, C], "a"),
    "would end first, although its remaining time is longer": (
        [job_with("old", 60.0, done=10.0, created=0.0), job_with("new", 50.0, created=100.0)],
        "old",
    ),
    "is a known job, not a job that has just begun": ([YOUNG, B], "b"),
    "is no job if no remaining work is known": ([YOUNG, job_with("z", math.inf)], None),
    "stays until a job would end clearly before it": (
        [job_with("a", 95.0), job_with("b", 100.0, request=500, user_request=100)],
        "b",
    ),
    "is replaced by a job that would end clearly before it": (
        [job_with("a", 50.0), job_with("b", 100.0, request=500, user_request=100)],
        "a",
    ),
}


@pytest.mark.parametrize(("jobs", "want"), FIRST.values(), ids=FIRST)
def test_the_prioritised_job_of_a_node(jobs: list[JobSignal], want: str | None) -> None:
    first = prioritised_jobs({NODE: contest(*jobs)}, jobs).get(NODE)
    assert (first and first.uid) == want


def test_ended_jobs_count_under_equal_shares() -> None:
    """The ended job delays the old job under equal shares, so that the new job is first."""
    jobs = [job_with("old", 140.0, created=0.0), job_with("new", 50.0, created=100.0)]
    assert prioritised_jobs({NODE: contest(*jobs)}, jobs)[NODE].uid == "old"
    gone = contest(*jobs, gone=(Sharer("gone", 0.0, 90.0),))
    assert prioritised_jobs({NODE: gone}, jobs)[NODE].uid == "new"


def test_only_candidates_are_prioritised() -> None:
    assert prioritised_jobs({NODE: contest(A, B)}, [B])[NODE].uid == "b"


CLOSED: dict[str, tuple[list[JobSignal], dict[str, Any]]] = {
    "no jobs contend for it": ([A, B], {"crowded": False}),
    "a pod waits for its CPU": ([A, B], {"awaited": True}),
    "a new controller does not know the job with a boost yet": (
        [A, replace(job_with("b", math.inf, request=500, user_request=100), followed=299.0)],
        {},
    ),
}


@pytest.mark.parametrize(("jobs", "node"), CLOSED.values(), ids=CLOSED)
def test_a_node_has_no_prioritised_job_while(jobs: list[JobSignal], node: dict[str, Any]) -> None:
    assert prioritised_jobs({NODE: contest(*jobs, **node)}, jobs) == {}


def spread(uid: str, remaining: float) -> JobSignal:
    pods = (pod(f"{uid}-{node}", node=node, request=100, use=300) for node in ("n1", "n2"))
    return job(uid, *pods, remaining=remaining)


def test_a_boosted_job_without_a_known_end_is_replaced_after_300_s() -> None:
    silent = job_with("b", math.inf, request=500, user_request=100)
    late = replace(silent, followed=300.0)
    assert prioritised_jobs({NODE: contest(A, late)}, [A, late])[NODE].uid == "a"


def test_nothing_is_boosted_while_all_other_jobs_have_just_begun() -> None:
    """All have equal shares already. A boost that exists is shared with a new job."""
    requested = {"a": 100, "y": 100}
    assert requests(contest(A, YOUNG, free=800), "a") == requested
    raised = job_with("a", 50.0, request=820, user_request=100)
    shared = requests(contest(raised, YOUNG, free=800), "a")
    assert shared["a"] > shared["y"] - 20 > requested["y"]


SEVERAL_NODES: dict[str, tuple[list[JobSignal], dict[str, str]]] = {
    "all of its nodes": (
        [spread("w", 50.0), job_with("a", 80.0), job_with("b", 90.0, node="n2")],
        {"n1": "w", "n2": "w"},
    ),
    "no node, if a job on one of its nodes would end first": (
        [spread("w", 100.0), job_with("a", 10.0), job_with("b", 90.0, node="n2")],
        {"n1": "a", "n2": "b"},
    ),
    "its nodes with other jobs": ([spread("w", 50.0), job_with("a", 80.0)], {"n1": "w"}),
}


@pytest.mark.parametrize(("jobs", "want"), SEVERAL_NODES.values(), ids=SEVERAL_NODES)
def test_a_job_of_several_nodes_is_prioritised_on(
    jobs: list[JobSignal], want: dict[str, str]
) -> None:
    by_node = contests(signals(*jobs, allocatable=SIZE))
    assert {node: job.uid for node, job in prioritised_jobs(by_node, jobs).items()} == want


# --- the request of each job ----------------------------------------------------------------------

FULL = {"free": 0}
ELSEWHERE = job_with("b", 100.0, namespace="other")
REQUESTS: dict[str, tuple[list[JobSignal], dict[str, Any], dict[str, int]]] = {
    "boost first: nine tenths of the free CPU of the node": (
        [A, B, C], {"free": 700}, {"a": 730, "b": 100, "c": 100}
    ),
    "at most its limit": (
        [job_with("a", 50.0, limit=400), B], {"free": 800}, {"a": 399, "b": 100}
    ),
    "90 % of a quota": (
        [A, B], {"free": 800, "headroom": {"": 200}}, {"a": 300, "b": 100}
    ),
    "shift where the node is full: the sum stays": (
        [A, B, C], FULL, {"a": 280, "b": MIN_REQUEST, "c": MIN_REQUEST}
    ),
    "shift beside the little free CPU": (
        [A, B, C], {"free": 50}, {"a": 325, "b": MIN_REQUEST, "c": MIN_REQUEST}
    ),
    "others are lowered by no more than its limit allows it to grow": (
        [job_with("a", 50.0, limit=161), B, C], FULL, {"a": 160, "b": 70, "c": 70}
    ),
    "no job of a different namespace is lowered": ([A, ELSEWHERE], FULL, {"a": 100, "b": 100}),
    "a full quota still allows a shift": (
        [A, B, C],
        {"free": 500, "headroom": {"": -50}},
        {"a": 280, "b": MIN_REQUEST, "c": MIN_REQUEST},
    ),
    "a job that has just begun keeps an equal share": (
        [A, B, YOUNG], {"free": 700}, {"a": 520, "b": 100, "y": 310}
    ),
    "a job without a known end keeps its user's request": (
        [A, job_with("b", None)], {"free": 800}, {"a": 820, "b": 100}
    ),
    "a job that has just begun is not lowered": (
        [A, B, YOUNG], FULL, {"a": 190, "b": MIN_REQUEST, "y": 100}
    ),
    "a job alone has its user's request": (
        [job_with("a", 50.0, request=500, user_request=100)], {"free": 900}, {"a": 100}
    ),
}  # fmt: skip


@pytest.mark.parametrize(("jobs", "node", "want"), REQUESTS.values(), ids=REQUESTS)
def test_requests(jobs: list[JobSignal], node: dict[str, Any], want: dict[str, int]) -> None:
    node = dict(node)
    headroom = node.pop("headroom", {})
    assert requests(contest(*jobs, headroom=headroom, **node), "a") == want


def test_the_request_of_a_job_is_split_in_proportion_to_the_users_requests() -> None:
    pods = (pod("ps", request=100), pod("worker", request=300, limit=500))
    on_node = contest(job("a", *pods, remaining=50.0), B)
    assert on_node.split(on_node.jobs[0], 400) == {"ps": 100, "worker": 300}
    assert on_node.split(on_node.jobs[0], 800) == {"ps": 301, "worker": 499}
    assert on_node.split(on_node.jobs[0], 20) == {"ps": 5, "worker": 15}


GROWN: dict[str, tuple[list[JobSignal], dict[str, Any], int]] = {
    "the free CPU": ([A, B], {"free": 800}, 720),
    "the free CPU less its boost": (
        [job_with("a", 50.0, request=500, user_request=100), B], {"free": 800}, 320
    ),
    "the free CPU less boosts of another namespace": (
        [A, replace(job_with("b", 9.0, request=500, user_request=100), namespace="x")],
        {"free": 800}, 320
    ),
    "the free CPU and requests lowered in its namespace": (
        [A, job_with("b", 9.0, request=10, user_request=100)], FULL, 90
    ),
    "no lowered requests before the kubelet has allocated them": (
        [A, job_with("b", 9.0, request=10, allocated=100, user_request=100)], FULL, 0
    ),
    "no requests lowered in a different namespace": (
        [A, replace(job_with("b", 9.0, request=10, user_request=100), namespace="x")], FULL, 0
    ),
}  # fmt: skip


@pytest.mark.parametrize(("jobs", "node", "want"), GROWN.values(), ids=GROWN)
def test_a_job_may_grow_by(jobs: list[JobSignal], node: dict[str, Any], want: int) -> None:
    assert contest(*jobs, **node).allowance("") == want


# --- any jobs -------------------------------------------------------------------------------------


@st.composite
def any_contest(draw: st.DrawFn) -> Signals:
    jobs = []
    for index in range(draw(st.integers(1, 6))):
        request = draw(st.integers(0, 300))
        limit = draw(st.none() | st.integers(request + 1, 2000))
        jobs.append(
            job(
                f"j{index}",
                pod(f"j{index}-0", request=request, limit=limit, use=200),
                remaining=draw(st.sampled_from([None, math.inf, 20.0, 90.0])),
                young=draw(st.booleans()),
                namespace=draw(st.sampled_from(["a", "b"])),
            )
        )
    return signals(*jobs, allocatable=draw(st.integers(0, 2000)))


@given(any_contest())
def test_sums_stay_below_the_node_and_no_namespace_pays_for_another(here: Signals) -> None:
    (on_node,) = contests(here).values()
    first = prioritised_jobs({NODE: on_node}, here.jobs).get(NODE)
    wanted = on_node.requests(first, here.jobs)
    requested = {job.uid: on_node.requested(job) for job in here.jobs}
    assert sum(wanted.values()) <= max(sum(requested.values()), on_node.signal.allocatable)
    for job_ in here.jobs:
        assert wanted[job_.uid] >= min(requested[job_.uid], MIN_REQUEST)
        assert wanted[job_.uid] <= on_node.most(job_)
        assert sum(on_node.split(job_, wanted[job_.uid]).values()) == wanted[job_.uid]
    for namespace in ("a", "b"):
        uids = [job_.uid for job_ in here.jobs if job_.namespace == namespace]
        if first is None or first.namespace != namespace:
            assert all(wanted[uid] >= requested[uid] for uid in uids)
        else:
            assert sum(wanted[uid] for uid in uids) >= sum(requested[uid] for uid in uids)


def test_a_full_quota_prevents_no_boost_in_other_namespaces() -> None:
    first, second = pair = [job_with(name, 50.0, namespace=name) for name in ("a", "b")]
    on_node = contest(*pair, headroom={"a": NO_RAISE}, crowded=True)
    assert on_node.requests(first, on_node.jobs)["a"] == 100
    assert on_node.requests(second, on_node.jobs)["b"] > 100


# --- a sum that is divided among recipients with bounds -------------------------------------------

SHARES: dict[str, tuple[int, list[tuple[float, int, int]], list[int]]] = {
    "by weight": (1000, [(1, 0, 1000), (3, 0, 1000)], [250, 750]),
    "equally without weights": (900, [(0, 0, 900), (0, 0, 900), (0, 0, 900)], [300, 300, 300]),
    "no less than the least": (1000, [(0, 100, 1000), (1, 0, 1000)], [100, 900]),
    "no more than the most": (1000, [(9, 0, 500), (1, 0, 1000)], [500, 500]),
    "both bounds at once": (1000, [(9, 0, 500), (1, 0, 900), (0, 200, 900)], [500, 300, 200]),
    "too little for the least": (100, [(1, 100, 500), (1, 200, 500)], [100, 200]),
    "too much for the most": (5000, [(1, 0, 500), (1, 0, 600)], [500, 600]),
    "a recipient without weight gets what is left": (900, [(1, 0, 300), (0, 0, 900)], [300, 600]),
    "the remainder of a division goes to the first": (100, [(1, 0, 99)] * 3, [34, 33, 33]),
    "no recipient": (100, [], []),
}


@pytest.mark.parametrize(("total", "recipients", "want"), SHARES.values(), ids=SHARES)
def test_a_sum_is_divided(
    total: int, recipients: list[tuple[float, int, int]], want: list[int]
) -> None:
    assert share_out(total, [Recipient(*recipient) for recipient in recipients]) == want


@st.composite
def any_recipient(draw: st.DrawFn) -> Recipient:
    least = draw(st.integers(0, 2000))
    weight = draw(st.one_of(st.just(0.0), st.floats(0.001, 1e6)))
    return Recipient(weight, least, least + draw(st.integers(0, 4000)))


@given(st.integers(0, 20000), st.lists(any_recipient(), min_size=1, max_size=12))
def test_the_sum_is_the_total_within_all_bounds(total: int, recipients: list[Recipient]) -> None:
    amounts = share_out(total, recipients)
    for amount, recipient in zip(amounts, recipients, strict=True):
        assert recipient.least <= amount <= recipient.most
    low = sum(recipient.least for recipient in recipients)
    high = sum(recipient.most for recipient in recipients)
    assert sum(amounts) == min(max(total, low), high)


@given(st.integers(0, 20000), st.lists(any_recipient(), min_size=2, max_size=8))
def test_without_bounds_a_larger_weight_gets_more(total: int, recipients: list[Recipient]) -> None:
    unbounded = [Recipient(recipient.weight, 0, 10000) for recipient in recipients]
    pairs = zip(unbounded, share_out(total, unbounded), strict=True)
    ordered = [amount for _, amount in sorted(pairs, key=lambda pair: (pair[0].weight, pair[1]))]
    assert all(low <= high + 1 for low, high in pairwise(ordered))


# --- equal shares ---------------------------------------------------------------------------------

ENDS: dict[str, tuple[list[Sharer], float, dict[str, float]]] = {
    "no job": ([], 1.0, {}),
    "a job alone": ([Sharer("a", 5.0, 10.0)], 1.0, {"a": 15.0}),
    "two jobs begin together": (
        [Sharer("a", 0, 10), Sharer("b", 0, 30)], 1.0, {"a": 20, "b": 40}
    ),
    "a job that begins later": ([Sharer("a", 0, 20), Sharer("b", 10, 20)], 1.0, {"a": 30, "b": 40}),
    "a job that begins after the end of the first": (
        [Sharer("a", 0, 5), Sharer("b", 100, 5)], 1.0, {"a": 5, "b": 105}
    ),
    "on more cores": ([Sharer("a", 0, 20), Sharer("b", 0, 60)], 2.0, {"a": 20, "b": 40}),
    "a job that cannot use its share leaves the rest to others": (
        [Sharer("a", 0, 20, most=0.5), Sharer("b", 0, 60)], 2.0, {"a": 40, "b": 40}
    ),
    "a job with unknown work has its share and never ends": (
        [Sharer("a", 0, 10), Sharer("b", 0, math.inf)], 1.0, {"a": 20, "b": math.inf}
    ),
    "times since the epoch": (
        [Sharer("a", 1.7e9, 10), Sharer("b", 1.7e9, 30)], 1.0, {"a": 1.7e9 + 20, "b": 1.7e9 + 40}
    ),
    "after work with a rounding error of over a second": (
        [Sharer("a", 32393.0, 2.481261937993402e16), Sharer("b", 9785.0, 7.618072987939312e16)],
        1.0, {"a": 4.962523875986804e16, "b": 1.0099334925932714e17}
    ),
}  # fmt: skip


@pytest.mark.parametrize(("sharers", "cores", "want"), ENDS.values(), ids=ENDS)
def test_when_a_job_would_end(sharers: list[Sharer], cores: float, want: dict[str, float]) -> None:
    assert fair_ends(sharers, cores=cores) == pytest.approx(want)


def ends_in_fair_order(sharers: Sequence[Sharer]) -> dict[str, float]:
    """Return when jobs end on one core if the job that would end first always has all of it."""
    fair = fair_ends(sharers, cores=1.0)
    remaining, now, ends = {sharer.uid: sharer.work for sharer in sharers}, 0.0, dict[str, float]()
    while remaining:
        here = [s for s in sharers if s.uid in remaining and s.began <= now + 1e-9]
        coming = [s.began for s in sharers if s.uid in remaining and s.began > now + 1e-9]
        if not here:
            now = min(coming)
            continue
        first = min(here, key=lambda sharer: fair[sharer.uid])
        spent = min(remaining[first.uid], min(coming, default=math.inf) - now)
        now += spent
        remaining[first.uid] -= spent
        if remaining[first.uid] <= 1e-9:
            ends[first.uid] = now
            del remaining[first.uid]
    return ends


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 200)), min_size=1, max_size=12))
def test_no_job_ends_later_than_under_equal_shares(jobs: list[tuple[int, int]]) -> None:
    sharers = [Sharer(f"{uid}", float(at), float(work)) for uid, (at, work) in enumerate(jobs)]
    fair, first = fair_ends(sharers, cores=1.0), ends_in_fair_order(sharers)
    for sharer in sharers:
        assert first[sharer.uid] <= fair[sharer.uid] + 1e-6
