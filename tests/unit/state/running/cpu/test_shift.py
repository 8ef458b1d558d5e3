"""Proposals of shift: CPU moves between the components of a job, and the sum stays.

Names with C5 check the statements of tests/statements.md.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.qos import QoS
from kfext.state.running.cpu.shift import SHIFT, is_stopped, least_limit
from kfext.state.running.policy import Advice
from kfext.state.running.proposal import Measure, Size
from kfext.state.running.signals import JobSignal, PodSignal
from tests.unit.state.running.jobs import job, pod, signals

INTERVALS = 3
"""The intervals within which a job's limits must follow its use."""


def ps(limit: int | None, use: int | None, **fields: Any) -> PodSignal:
    return _pod("ps-0", limit, component="ps", use=use, **fields)


def worker(limit: int | None, use: int | None, index: int = 0, **fields: Any) -> PodSignal:
    return _pod(f"worker-{index}", limit, use=use, **fields)


def _pod(uid: str, limit: int | None, **fields: Any) -> PodSignal:
    return pod(uid, limit=limit, **{"user_limit": limit, **fields})


def job_of(*pods: PodSignal, **fields: Any) -> JobSignal:
    return job("j", *pods, policy="shift", **fields)


def advice(*pods: PodSignal, **fields: Any) -> Advice:
    return SHIFT.propose(signals(job_of(*pods, **fields)))


def carried_out(signal: JobSignal, result: Advice) -> JobSignal:
    """Return a job after its proposals were carried out."""
    sizes = {s.pod: s for proposal in result.proposals for stage in proposal.stages for s in stage}
    pods = tuple(
        replace(
            pod,
            limit=sizes[pod.uid].limit if pod.uid in sizes else pod.limit,
            request=(sizes[pod.uid].request if pod.uid in sizes else None) or pod.request,
        )
        for pod in signal.pods
    )
    return replace(signal, pods=pods)


def with_use(signal: JobSignal, wants: dict[str, int]) -> JobSignal:
    """Return a job with pods that use their wanted CPU within their limits."""
    pods = [replace(pod, use=min(wants[pod.uid], pod.limit or 10**6)) for pod in signal.pods]
    return replace(signal, pods=tuple(pods))


@pytest.mark.parametrize("qos", [QoS.BURSTABLE, QoS.GUARANTEED])
@pytest.mark.parametrize(
    ("wants", "want"),
    [
        pytest.param({"ps-0": 100, "worker-0": 5000}, {"ps-0": 167, "worker-0": 833}, id="worker"),
        pytest.param({"ps-0": 5000, "worker-0": 200}, {"ps-0": 714, "worker-0": 286}, id="server"),
        pytest.param({"ps-0": 0, "worker-0": 5000}, {"ps-0": 50, "worker-0": 950}, id="idle"),
    ],
)
def test_C5_limits_follow_the_use_within_a_few_intervals_and_keep_their_sum(
    wants: dict[str, int], want: dict[str, int], qos: QoS
) -> None:
    request = 500 if qos is QoS.GUARANTEED else 20
    followed = job_of(
        ps(500, 0, qos=qos, request=request), worker(500, 0, qos=qos, request=request)
    )
    for _ in range(INTERVALS):
        followed = with_use(followed, wants)
        followed = carried_out(followed, SHIFT.propose(signals(followed)))
        assert sum(pod.limit or 0 for pod in followed.pods) == 1000
        assert all((pod.request == pod.limit) is (qos is QoS.GUARANTEED) for pod in followed.pods)
    assert {pod.uid: pod.limit for pod in followed.pods} == want
    assert SHIFT.propose(signals(with_use(followed, wants))) == Advice()


def flipped(before: JobSignal, after: JobSignal) -> JobSignal:
    """Return the job after the opposite change: each pod shrinks by as much as it grew."""
    pods = [
        replace(old, limit=2 * (old.limit or 0) - (new.limit or 0))
        for old, new in zip(before.pods, after.pods, strict=True)
    ]
    return replace(before, pods=tuple(pods))


@pytest.mark.parametrize("busy", ["ps-0", "worker-0"])
def test_C5_shift_makes_a_job_faster_and_with_its_sign_flipped_slower(busy: str) -> None:
    wants = {"ps-0": 100, "worker-0": 100, busy: 900}

    def pace(signal: JobSignal) -> float:
        """Return the speed of the slowest component: the components wait for each other."""
        return min((pod.use or 0) / wants[pod.uid] for pod in with_use(signal, wants).pods)

    before = with_use(job_of(ps(500, 0), worker(500, 0)), wants)
    after = carried_out(before, SHIFT.propose(signals(before)))
    assert pace(after) > 1.5 * pace(before) > 2 * pace(flipped(before, after))


def test_C5_nothing_moves_while_the_use_may_predate_the_last_move() -> None:
    pods = ps(400, 100), worker(400, 400)
    assert advice(*pods).proposals
    assert not advice(*pods, settling=True).proposals


def test_C5_a_pod_keeps_the_CPU_that_it_uses_and_a_headroom() -> None:
    (result,) = advice(ps(1000, 600), worker(2000, 2000)).proposals
    assert result.stages == ((Size("ps-0", 720),), (Size("worker-0", 2280),))


def test_C5_the_limits_of_busy_pods_are_in_proportion_to_their_use() -> None:
    pods = (ps(400, 400), worker(400, 800), worker(400, 400, 1))
    (result,) = advice(*pods).proposals
    assert {size.pod: size.limit for stage in result.stages for size in stage} == {
        "ps-0": 300,
        "worker-0": 600,
        "worker-1": 300,
    }


def test_C5_shrinking_pods_have_a_stage_before_growing_pods() -> None:
    (result,) = advice(ps(500, 100), worker(500, 500), rate=3.0).proposals
    assert result.stages == ((Size("ps-0", 167),), (Size("worker-0", 833),))
    assert result.measure is Measure.RATE
    assert "ps from 500m to 167m and worker from 500m to 833m" in result.reason


NOTHING: dict[str, list[PodSignal]] = {
    "no limit stops it": [ps(500, 10), worker(500, 450)],
    "limits in proportion already": [ps(120, 105), worker(880, 880)],
    "a change below a tenth": [ps(500, 470), worker(500, 500)],
    "one component": [worker(500, 500), worker(500, 10, 1)],
    "components on different nodes": [ps(500, 10, node="n2"), worker(500, 500)],
    "an unknown use": [ps(500, None), worker(500, 500)],
    "all pods use their limits": [ps(500, 500), worker(500, 500)],
}


@pytest.mark.parametrize("pods", NOTHING.values(), ids=NOTHING)
def test_nothing_moves_if(pods: list[PodSignal]) -> None:
    assert advice(*pods) == Advice()


# --- the sum of the user's limits -----------------------------------------------------------------

OF_400: dict[str, Any] = {"user_limit": 400}
SUMS: dict[str, tuple[list[PodSignal], dict[str, int]]] = {
    "the CPU of the idle pod goes to a recreated busy pod": (
        [ps(50, 20, **OF_400), worker(400, 400, **OF_400)],
        {"ps-0": 50, "worker-0": 750},
    ),
    "a recreated idle pod is lowered again": (
        [ps(400, 20, **OF_400), worker(750, 750, **OF_400)],
        {"ps-0": 50, "worker-0": 750},
    ),
    "a recreated idle pod is lowered if the sum is too large": (
        [ps(400, 20, **OF_400), worker(750, 600, **OF_400)],
        {"ps-0": 50, "worker-0": 750},
    ),
    "two pods that need more than the sum share it": (
        [ps(400, 360, **OF_400), worker(750, 700, **OF_400)],
        {"ps-0": 272, "worker-0": 528},
    ),
    "a single pod regains its own limit if it needs it": ([ps(50, 50, **OF_400)], {"ps-0": 400}),
    "a single pod keeps its own limit": ([worker(750, 700, **OF_400)], {"worker-0": 400}),
    "nothing is written while no limit stops the remaining pod": (
        [ps(50, 20, **OF_400), worker(400, 300, **OF_400)],
        {"ps-0": 50, "worker-0": 400},
    ),
}


@pytest.mark.parametrize(("pods", "want"), SUMS.values(), ids=SUMS)
def test_C5_the_sum_is_as_the_users_limits(pods: list[PodSignal], want: dict[str, int]) -> None:
    before = job_of(*pods)
    after = carried_out(before, SHIFT.propose(signals(before)))
    assert {pod.uid: pod.limit for pod in after.pods} == want


def test_C5_a_limit_stays_above_a_request_that_resize_raised() -> None:
    raised = ps(400, 20, request=370, user_request=20, user_limit=400)
    before = job_of(raised, worker(400, 400))
    after = carried_out(before, SHIFT.propose(signals(before)))
    assert [pod.limit for pod in after.pods] == [400, 400]


CORRECTED: dict[str, tuple[list[PodSignal], Measure | None]] = {
    "on trial if a pod gets more than its own limit": (
        [ps(50, 20, **OF_400), worker(400, 400, **OF_400)],
        Measure.USE,
    ),
    "without a trial if a pod is only lowered": (
        [ps(400, 20, **OF_400), worker(750, 750, **OF_400)],
        None,
    ),
    "without a trial if a pod regains its own limit": ([ps(50, 50, **OF_400)], None),
}


@pytest.mark.parametrize(("pods", "measure"), CORRECTED.values(), ids=CORRECTED)
def test_C5_a_sum_is_corrected(pods: list[PodSignal], measure: Measure | None) -> None:
    (result,) = advice(*pods).proposals
    assert result.measure is measure
    assert ("are at their limits" in result.reason) is (measure is not None)


STAND_DOWN: dict[str, tuple[list[PodSignal], str]] = {
    "BestEffort": ([ps(500, 10, qos=QoS.BEST_EFFORT), worker(500, 500)], "BestEffort"),
    "a pod without a limit": ([ps(500, 10), worker(None, 500)], "no CPU limit"),
}


@pytest.mark.parametrize(("pods", "why"), STAND_DOWN.values(), ids=STAND_DOWN)
def test_a_job_is_ineligible_with_the_reason(pods: list[PodSignal], why: str) -> None:
    result = advice(*pods)
    assert result.proposals == ()
    assert why in result.ineligible["j"]


@st.composite
def jobs(draw: st.DrawFn) -> JobSignal:
    pods = []
    for index in range(draw(st.integers(2, 6))):
        qos = draw(st.sampled_from([QoS.BURSTABLE, QoS.GUARANTEED]))
        limit = draw(st.integers(60, 4000))
        pods.append(
            pod(
                f"p{index}",
                component=draw(st.sampled_from(["ps", "worker"])),
                node=draw(st.sampled_from(["n1", "n2"])),
                qos=qos,
                limit=limit,
                user_limit=limit,
                request=limit if qos is QoS.GUARANTEED else draw(st.integers(0, limit - 1)),
                use=draw(st.integers(0, limit)),
            )
        )
    return job_of(*pods)


@given(jobs())
def test_C5_the_sum_on_a_node_the_floors_and_the_qos_class_are_kept(before: JobSignal) -> None:
    after = carried_out(before, SHIFT.propose(signals(before)))
    for node in before.nodes:
        sums = [sum(p.limit or 0 for p in state.on(node)) for state in (before, after)]
        assert sums[0] == sums[1]
    for after_pod in after.pods:
        assert (after_pod.limit or 0) >= 50
        assert (after_pod.limit == after_pod.request) is (after_pod.qos is QoS.GUARANTEED)


@given(jobs(), st.randoms(use_true_random=False))
def test_C5_the_order_of_the_pods_does_not_matter(before: JobSignal, random: Any) -> None:
    shuffled = replace(before, pods=tuple(random.sample(before.pods, len(before.pods))))
    first, other = (
        {pod.uid: pod.limit for pod in carried_out(signal, SHIFT.propose(signals(signal))).pods}
        for signal in (before, shuffled)
    )
    assert first == other


@given(st.integers(60, 4000), st.integers(60, 4000), st.floats(0, 0.7))
def test_C5_cpu_goes_to_the_busy_pod_and_never_from_it(busy: int, idle: int, share: float) -> None:
    before = job_of(ps(idle, int(share * idle)), worker(busy, busy))
    after = carried_out(before, SHIFT.propose(signals(before)))
    assert (after.pods[1].limit or 0) >= busy


# --- limits ---------------------------------------------------------------------------------------


STOPPED: dict[str, tuple[dict[str, Any], bool]] = {
    "at its limit": ({"limit": 100, "use": 95}, True),
    "below its limit": ({"limit": 100, "use": 94}, False),
    "without a limit": ({"use": 1400}, False),
    "its use is not known": ({"limit": 100}, False),
}


@pytest.mark.parametrize(("fields", "want"), STOPPED.values(), ids=STOPPED)
def test_whether_a_limit_stops_a_pod(fields: dict[str, Any], *, want: bool) -> None:
    assert is_stopped(pod(**fields)) is want


LEAST: dict[str, tuple[dict[str, Any], int]] = {
    "a slice of the CFS period": ({"request": 20}, 50),
    "above the request, which would make it Guaranteed": ({"request": 500}, 501),
    "any limit of a Guaranteed pod": ({"request": 500, "qos": QoS.GUARANTEED}, 50),
}


@pytest.mark.parametrize(("fields", "want"), LEAST.values(), ids=LEAST)
def test_the_lowest_limit_of_a_pod(fields: dict[str, Any], want: int) -> None:
    assert least_limit(pod(**fields)) == want
