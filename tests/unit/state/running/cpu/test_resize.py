"""Proposals of resize: boosts from free CPU, lowered requests on a full node, and restores."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.policy import Mode
from kfext.model.qos import QoS
from kfext.state.running.cpu.resize import RESIZE
from kfext.state.running.policy import Advice
from kfext.state.running.signals import JobSignal, Signals
from tests.unit.state.running.jobs import NODE, job, pod, signals

SIZE = 1000
POD_FIELDS = {"limit", "allocated", "qos", "node"}


def job_with(uid: str, remaining: float | None, request: int = 100, **fields: Any) -> JobSignal:
    """Return a job with one pod and a user's request of 100m; `remaining`: core-seconds."""
    pod_fields = {key: fields.pop(key) for key in fields.keys() & POD_FIELDS}
    worker = pod(f"{uid}-0", request=request, user_request=100, use=300, **pod_fields)
    return job(uid, worker, remaining=remaining, **fields)


def on_node(*jobs: JobSignal, **fields: Any) -> Signals:
    """Return the signals of jobs on a node of 1000m; `fields`: fields of its NodeSignal."""
    of_jobs = signals(*jobs, allocatable=SIZE)
    nodes = {name: replace(node, **fields) for name, node in of_jobs.nodes.items()}
    return replace(of_jobs, nodes=nodes)


def sizes(advice: Advice) -> dict[str, int | None]:
    return {
        size.pod: size.request
        for proposal in advice.proposals
        for stage in proposal.stages
        for size in stage
    }


FULL = {"free": 0}
PROPOSED: dict[str, tuple[list[JobSignal], dict[str, Any], dict[str, int]]] = {
    "boost: only the prioritised job is written": (
        [job_with("a", 50.0), job_with("b", 90.0)], {"free": 800}, {"a-0": 820}
    ),
    "a switch: the last prioritised job shrinks, and the next waits for it": (
        [job_with("a", 50.0, 820), job_with("b", 20.0)], {"free": 800}, {"a-0": 100}
    ),
    "a switch: the next grows once the kubelet has lowered the last": (
        [job_with("a", 50.0), job_with("b", 20.0)], {"free": 800}, {"b-0": 820}
    ),
    "a switch: the next waits while the kubelet has not lowered the last": (
        [job_with("a", 50.0, allocated=820), job_with("b", 20.0)], {"free": 800}, {}
    ),
    "full node: other jobs are lowered first": (
        [job_with("a", 50.0), job_with("b", 90.0), job_with("c", 90.0)],
        FULL, {"b-0": 10, "c-0": 10}
    ),
    "full node: then the prioritised job grows": (
        [job_with("a", 50.0), job_with("b", 90.0, 10), job_with("c", 90.0, 10)], FULL, {"a-0": 280}
    ),
    "full node: it grows by the CPU that kubelets have freed so far": (
        [job_with("a", 50.0), job_with("b", 90.0, 10), job_with("c", 90.0, 10, allocated=100)],
        FULL, {"a-0": 190}
    ),
    "restore: once it is alone": (
        [job_with("a", 50.0, 820)], {"free": 900}, {"a-0": 100}
    ),
    "restore lowered jobs if no remaining job shows its end": (
        [job_with("b", None, 10), job_with("c", None, 10)], {"free": 300}, {"b-0": 100, "c-0": 100}
    ),
    "restore lowered jobs if none contend any more": (
        [job_with("b", None, 10), job_with("c", None, 10)],
        {"free": 300, "crowded": False}, {"b-0": 100, "c-0": 100}
    ),
    "restore a boosted job that no longer shows its end": (
        [job_with("a", None, 820), job_with("b", None)], {"free": 900}, {"a-0": 100}
    ),
    "a switch from a job that no longer shows its end": (
        [job_with("a", None, 820), job_with("b", 90.0)], {"free": 800}, {"a-0": 100}
    ),
    "nothing while a new controller does not know a young job with a boost": (
        [job_with("a", math.inf, 820, young=True, followed=9.0), job_with("b", math.inf)],
        {"free": 800}, {}
    ),
    "a switch on a full node: the last prioritised job is restored first": (
        [job_with("a", 50.0, 10), job_with("b", 20.0, 10), job_with("c", 200.0, 280)],
        FULL, {"c-0": 10}
    ),
    "restore on a full node: the prioritised job returns the CPU of others": (
        [job_with("a", 50.0, 190), job_with("b", 90.0, 10, policy="none")], FULL, {"a-0": 100}
    ),
    "a change of a few millicores is not written": (
        [job_with("a", 50.0, 800), job_with("b", 90.0)], {"free": 800}, {}
    ),
    "nothing while a pod waits for its CPU": (
        [job_with("a", 50.0), job_with("b", 90.0)], {"free": 800, "awaited": True}, {}
    ),
    "nothing if no jobs contend": (
        [job_with("a", 50.0), job_with("b", 90.0)], {"free": 800, "crowded": False}, {}
    ),
    "nothing while no remaining work is known": (
        [job_with("a", math.inf), job_with("b", math.inf)], {"free": 800}, {}
    ),
}  # fmt: skip


@pytest.mark.parametrize(("jobs", "node", "want"), PROPOSED.values(), ids=PROPOSED)
def test_proposals(jobs: list[JobSignal], node: dict[str, Any], want: dict[str, int]) -> None:
    assert sizes(RESIZE.propose(on_node(*jobs, **node))) == want


def test_limits_never_change() -> None:
    result = RESIZE.propose(on_node(job_with("a", 50.0, limit=400), job_with("b", 90.0), free=800))
    (size,) = (size for item in result.proposals for stage in item.stages for size in stage)
    assert (size.limit, size.request) == (None, 399)


REASONS: dict[str, tuple[list[JobSignal], dict[str, Any], str]] = {
    "the prioritised job": (
        [job_with("a", 50.0), job_with("b", 90.0)],
        {"free": 800},
        "CPU request 100m becomes 820m: it would end first of the 2 jobs on n1",
    ),
    "the previous prioritised job": (
        [job_with("a", 50.0, 820), job_with("b", 20.0)],
        {"free": 800},
        "CPU request 820m becomes 100m: another of the 2 jobs on n1 would end first",
    ),
    "a job that has just begun": (
        [job_with("a", math.inf, young=True), job_with("b", 90.0, 400)],
        {"free": 800},
        "CPU request 100m becomes 460m: it keeps an equal share of the 2 jobs on n1 until its "
        "progress is known",
    ),
    "a job alone": (
        [job_with("a", 50.0, 820)],
        {"free": 900},
        "CPU request 820m becomes 100m: no other job shares its nodes",
    ),
}


@pytest.mark.parametrize(("jobs", "node", "want"), REASONS.values(), ids=REASONS)
def test_the_reason_has_the_request_before_and_after(
    jobs: list[JobSignal], node: dict[str, Any], want: str
) -> None:
    assert RESIZE.propose(on_node(*jobs, **node)).proposals[0].reason == want


# --- which jobs may change ------------------------------------------------------------------------


def test_the_dry_run_of_a_job_that_observes_is_proposed_beside_real_changes() -> None:
    observes, acts = job_with("a", 20.0, mode=Mode.OBSERVE), job_with("b", 50.0)
    result = RESIZE.propose(on_node(observes, acts, job_with("c", 90.0), free=700))
    assert sizes(result) == {"a-0": 730, "b-0": 730}


def test_no_change_is_proposed_that_needs_cpu_of_a_job_that_observes() -> None:
    observes = job_with("b", 90.0, mode=Mode.OBSERVE)
    result = RESIZE.propose(on_node(job_with("a", 50.0), observes, free=0))
    assert [proposal.job for proposal in result.proposals] == ["b"]


@pytest.mark.parametrize("qos", [QoS.GUARANTEED, QoS.BEST_EFFORT])
def test_a_pod_that_is_not_burstable_is_ineligible_with_the_reason(qos: QoS) -> None:
    result = RESIZE.propose(on_node(job_with("a", 50.0, qos=qos), job_with("b", 90.0), free=800))
    assert f"is {qos}" in result.ineligible["a"]
    assert sizes(result) == {"b-0": 820}


def test_a_job_without_progress_is_ineligible_with_the_reason() -> None:
    result = RESIZE.propose(
        on_node(job_with("a", None, unread="no lines"), job_with("b", 9.0), free=800)
    )
    assert result.ineligible == {"a": "no lines"}
    assert sizes(result) == {"b-0": 820}


# --- whatever happens -----------------------------------------------------------------------------


def written(before: Signals, advice: Advice) -> Signals:
    """Return the signals after the proposals were written, and allocated by the kubelets."""
    new = sizes(advice)

    def after(signal: JobSignal) -> JobSignal:
        pods = (replace(pod, request=new.get(pod.uid) or pod.request) for pod in signal.pods)
        return replace(signal, pods=tuple(pods))

    return replace(before, jobs=tuple(map(after, before.jobs)))


@st.composite
def nodes(draw: st.DrawFn) -> Signals:
    jobs = [
        job_with(
            f"j{index}",
            draw(st.sampled_from([20.0, 50.0, 90.0, math.inf])),
            young=draw(st.booleans()),
            namespace=draw(st.sampled_from(["a", "b"])),
            limit=draw(st.sampled_from([None, 150, 700])),
        )
        for index in range(draw(st.integers(1, 6)))
    ]
    return on_node(*jobs, free=draw(st.sampled_from([0, 60, 400])))


def sums(of_jobs: Signals) -> Mapping[str, int]:
    """Return the sum of all requests, with the key "", and the sum for each namespace."""
    result = {"": 0, "a": 0, "b": 0}
    for job_ in of_jobs.jobs:
        for pod_ in job_.pods:
            result[""] += pod_.request
            result[job_.namespace] += pod_.request
    return result


@given(nodes(), st.data())
def test_requests_stay_bounded_if_any_writes_are_lost_and_then_come_to_rest(
    before: Signals, data: st.DataObject
) -> None:
    requested, free = sums(before), before.nodes[NODE].free
    now = before
    for _ in range(6):
        advice = RESIZE.propose(now)
        arrived = [p for p in advice.proposals if data.draw(st.integers(0, 4), p.job)]
        now = written(now, replace(advice, proposals=tuple(arrived)))
        total = sums(now)
        assert total[""] <= requested[""] + 0.9 * free
        for namespace in "ab":
            assert total[namespace] <= requested[namespace] + 0.9 * free
        for job_ in now.jobs:
            assert all(pod_.request < (pod_.limit or math.inf) for pod_ in job_.pods)
    for _ in range(6):
        now = written(now, RESIZE.propose(now))
    assert not RESIZE.propose(now).proposals
