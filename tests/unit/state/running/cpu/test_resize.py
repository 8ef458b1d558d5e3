"""Proposals of resize: raise first, shift where a node is full, and restore in the same way."""

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


def ends(uid: str, remaining: float | None, request: int = 100, **fields: Any) -> JobSignal:
    """A job with a user's request of 100m; it needs these core-seconds."""
    own = {key: fields.pop(key) for key in fields.keys() & {"limit", "allocated", "qos", "node"}}
    its = pod(f"{uid}-0", request=request, user_request=100, use=300, **own)
    return job(uid, its, remaining=remaining, **fields)


def here(*jobs: JobSignal, **node: Any) -> Signals:
    result = signals(*jobs, allocatable=SIZE)
    return replace(result, nodes={name: replace(of, **node) for name, of in result.nodes.items()})


def sizes(advice: Advice) -> dict[str, int | None]:
    return {
        size.pod: size.request
        for proposal in advice.proposals
        for stage in proposal.stages
        for size in stage
    }


FULL = {"free": 0}
PROPOSED: dict[str, tuple[list[JobSignal], dict[str, Any], dict[str, int]]] = {
    "raise first: the favourite alone is written": (
        [ends("a", 50.0), ends("b", 90.0)], {"free": 800}, {"a-0": 820}
    ),
    "a switch: the last favourite shrinks, and the next waits for it": (
        [ends("a", 50.0, 820), ends("b", 20.0)], {"free": 800}, {"a-0": 100}
    ),
    "a switch: the next grows once the kubelet has lowered the last": (
        [ends("a", 50.0), ends("b", 20.0)], {"free": 800}, {"b-0": 820}
    ),
    "a switch: the next waits while the kubelet has not lowered the last": (
        [ends("a", 50.0, allocated=820), ends("b", 20.0)], {"free": 800}, {}
    ),
    "shift where the node is full: others shrink first": (
        [ends("a", 50.0), ends("b", 90.0), ends("c", 90.0)], FULL, {"b-0": 10, "c-0": 10}
    ),
    "shift where the node is full: then the favourite grows": (
        [ends("a", 50.0), ends("b", 90.0, 10), ends("c", 90.0, 10)], FULL, {"a-0": 280}
    ),
    "it grows by the CPU that kubelets have freed so far": (
        [ends("a", 50.0), ends("b", 90.0, 10), ends("c", 90.0, 10, allocated=100)],
        FULL, {"a-0": 190}
    ),
    "restore: once it is alone on its node": ([ends("a", 50.0, 820)], {"free": 900}, {"a-0": 100}),
    "restore lowered jobs where no remaining job shows its end": (
        [ends("b", None, 10), ends("c", None, 10)], {"free": 300}, {"b-0": 100, "c-0": 100}
    ),
    "restore lowered jobs where none contend any more": (
        [ends("b", None, 10), ends("c", None, 10)],
        {"free": 300, "crowded": False}, {"b-0": 100, "c-0": 100}
    ),
    "restore a raised job that no longer shows its end": (
        [ends("a", None, 820), ends("b", None)], {"free": 900}, {"a-0": 100}
    ),
    "a switch from a job that no longer shows its end": (
        [ends("a", None, 820), ends("b", 90.0)], {"free": 800}, {"a-0": 100}
    ),
    "nothing while a new controller does not know a young job with a raise": (
        [ends("a", math.inf, 820, young=True, followed=9.0), ends("b", math.inf)],
        {"free": 800}, {}
    ),
    "a switch where the node is full: the last favourite is restored first": (
        [ends("a", 50.0, 10), ends("b", 20.0, 10), ends("c", 200.0, 280)], FULL, {"c-0": 10}
    ),
    "restore where the node is full: the favourite returns the CPU of others": (
        [ends("a", 50.0, 190), ends("b", 90.0, 10, policy="none")], FULL, {"a-0": 100}
    ),
    "a change of a few millicores is not written": (
        [ends("a", 50.0, 800), ends("b", 90.0)], {"free": 800}, {}
    ),
    "nothing while a pod waits for its CPU": (
        [ends("a", 50.0), ends("b", 90.0)], {"free": 800, "awaited": True}, {}
    ),
    "nothing where nothing contends": (
        [ends("a", 50.0), ends("b", 90.0)], {"free": 800, "crowded": False}, {}
    ),
    "nothing while no length is known": (
        [ends("a", math.inf), ends("b", math.inf)], {"free": 800}, {}
    ),
}  # fmt: skip


@pytest.mark.parametrize(("jobs", "node", "want"), PROPOSED.values(), ids=PROPOSED)
def test_proposals_of_resize(
    jobs: list[JobSignal], node: dict[str, Any], want: dict[str, int]
) -> None:
    assert sizes(RESIZE.propose(here(*jobs, **node))) == want


def test_limits_never_change() -> None:
    result = RESIZE.propose(here(ends("a", 50.0, limit=400), ends("b", 90.0), free=800))
    (size,) = (size for of in result.proposals for stage in of.stages for size in stage)
    assert (size.limit, size.request) == (None, 399)


REASONS: dict[str, tuple[list[JobSignal], dict[str, Any], str]] = {
    "the favourite": (
        [ends("a", 50.0), ends("b", 90.0)],
        {"free": 800},
        "CPU request 100m becomes 820m: it would end first of the 2 jobs on n1",
    ),
    "the previous favourite": (
        [ends("a", 50.0, 820), ends("b", 20.0)],
        {"free": 800},
        "CPU request 820m becomes 100m: another of the 2 jobs on n1 would end first",
    ),
    "a job that has just begun": (
        [ends("a", math.inf, young=True), ends("b", 90.0, 400)],
        {"free": 800},
        "CPU request 100m becomes 460m: it keeps an equal share of the 2 jobs on n1 until its "
        "progress is known",
    ),
    "a job alone": (
        [ends("a", 50.0, 820)],
        {"free": 900},
        "CPU request 820m becomes 100m: no other job shares its nodes",
    ),
}


@pytest.mark.parametrize(("jobs", "node", "want"), REASONS.values(), ids=REASONS)
def test_the_reason_has_the_number_before_and_after(
    jobs: list[JobSignal], node: dict[str, Any], want: str
) -> None:
    assert RESIZE.propose(here(*jobs, **node)).proposals[0].reason == want


# --- which jobs may change ------------------------------------------------------------------------


def test_the_dry_run_of_a_job_that_observes_is_proposed_beside_real_changes() -> None:
    shown, acts = ends("a", 20.0, mode=Mode.OBSERVE), ends("b", 50.0)
    result = RESIZE.propose(here(shown, acts, ends("c", 90.0), free=700))
    assert sizes(result) == {"a-0": 730, "b-0": 730}


def test_a_job_that_observes_gives_nothing() -> None:
    shown = ends("b", 90.0, mode=Mode.OBSERVE)
    result = RESIZE.propose(here(ends("a", 50.0), shown, free=0))
    assert [proposal.job for proposal in result.proposals] == ["b"]


@pytest.mark.parametrize("qos", [QoS.GUARANTEED, QoS.BEST_EFFORT])
def test_a_pod_that_is_not_burstable_is_ineligible_with_the_reason(qos: QoS) -> None:
    result = RESIZE.propose(here(ends("a", 50.0, qos=qos), ends("b", 90.0), free=800))
    assert f"is {qos}" in result.ineligible["a"]
    assert sizes(result) == {"b-0": 820}


def test_a_job_that_shows_no_progress_says_so() -> None:
    result = RESIZE.propose(here(ends("a", None, unread="no lines"), ends("b", 9.0), free=800))
    assert result.ineligible == {"a": "no lines"}
    assert sizes(result) == {"b-0": 820}, "the others go on"


# --- whatever happens -----------------------------------------------------------------------------


def written(before: Signals, advice: Advice) -> Signals:
    """Return the signals after the proposals were written, and allocated by the kubelets."""
    to = sizes(advice)

    def after(of: JobSignal) -> JobSignal:
        pods = (replace(pod, request=to.get(pod.uid) or pod.request) for pod in of.pods)
        return replace(of, pods=tuple(pods))

    return replace(before, jobs=tuple(map(after, before.jobs)))


@st.composite
def nodes(draw: st.DrawFn) -> Signals:
    jobs = [
        ends(
            f"j{index}",
            draw(st.sampled_from([20.0, 50.0, 90.0, math.inf])),
            young=draw(st.booleans()),
            namespace=draw(st.sampled_from(["a", "b"])),
            limit=draw(st.sampled_from([None, 150, 700])),
        )
        for index in range(draw(st.integers(1, 6)))
    ]
    return here(*jobs, free=draw(st.sampled_from([0, 60, 400])))


def sums(of: Signals) -> Mapping[str, int]:
    """Return what the jobs request in all, and by namespace."""
    result = {"": 0, "a": 0, "b": 0}
    for job_ in of.jobs:
        for pod_ in job_.pods:
            result[""] += pod_.request
            result[job_.namespace] += pod_.request
    return result


@given(nodes(), st.data())
def test_after_any_changes_sums_stay_bounded_and_a_new_favourite_writes_two_jobs(
    before: Signals, data: st.DataObject
) -> None:
    asked, free = sums(before), before.nodes[NODE].free
    now = before
    for _ in range(6):
        advice = RESIZE.propose(now)
        some = [p for p in advice.proposals if data.draw(st.integers(0, 4), p.job)]
        now = written(now, replace(advice, proposals=tuple(some)))
        total = sums(now)
        assert total[""] <= asked[""] + 0.9 * free
        for namespace in "ab":
            assert total[namespace] <= asked[namespace] + 0.9 * free
        for job_ in now.jobs:
            assert all(pod_.request < (pod_.limit or math.inf) for pod_ in job_.pods)
    for _ in range(6):
        now = written(now, RESIZE.propose(now))
    assert not RESIZE.propose(now).proposals, "it comes to rest"
