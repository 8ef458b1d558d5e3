"""The pods that the operator still has to create, and how long gangs have waited for pods."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.pod import Pod, ReplicaKey
from kfext.state.mirror.pod_backlog import (
    MAX_OUTSTANDING,
    PodCreationBacklog,
    still_to_come,
    to_be_bound,
)
from tests.builders import JobBuilder, job, pod, pods

JOB = job().worker(3).build()


def test_planning_resumes_only_when_half_of_the_backlog_is_created() -> None:
    backlog = PodCreationBacklog()
    assert not backlog.expect("a", MAX_OUTSTANDING - 1)
    assert (backlog.crowded, backlog.crowd) == (False, 0)
    assert not backlog.expect("b", 1)
    assert (backlog.crowded, backlog.crowd) == (True, MAX_OUTSTANDING // 2)
    assert not backlog.expect("a", MAX_OUTSTANDING // 2)
    assert backlog.crowded
    assert backlog.expect("b", 0)
    assert not backlog.crowded
    assert not backlog.expect("a", 0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, MAX_OUTSTANDING)), max_size=30))
def test_the_backlog_is_the_sum_over_the_jobs(expected: list[tuple[str, int]]) -> None:
    backlog, want = PodCreationBacklog(), dict[str, int]()
    for uid, missing in expected:
        backlog.expect(uid, missing)
        want[uid] = missing
    assert backlog.pods == sum(want.values())
    assert {uid: backlog.missing(uid) for uid in want} == want
    assert set(backlog.jobs()) == {uid for uid, missing in want.items() if missing}


def worker(index: int) -> ReplicaKey:
    return ReplicaKey("worker", index)


def started(*uids: str) -> PodCreationBacklog:
    """Return a backlog of gangs of three pods, unsuspended in this order, all at time 0."""
    backlog = PodCreationBacklog()
    for uid in uids:
        backlog.expect(uid, 3, attempt=1)
    backlog.settle(0.0)
    return backlog


def quiet(backlog: PodCreationBacklog, now: float, *uids: str) -> list[float]:
    """Return how many seconds each gang has waited without a new pod."""
    backlog.settle(now)
    return [backlog.quiet(uid, now) for uid in uids]


def test_a_gang_waits_for_its_own_pods_and_for_the_pods_of_earlier_gangs() -> None:
    backlog = started("first", "second", "third")
    backlog.record_created("second", worker(0))
    assert quiet(backlog, 10.0, "first", "second", "third") == [10.0, 0.0, 0.0]


def test_the_last_pod_of_an_earlier_gang_counts_too() -> None:
    backlog = started("first", "second")
    backlog.record_created("first", worker(2))
    backlog.expect("first", None)
    assert quiet(backlog, 50.0, "second") == [0.0]
    assert quiet(backlog, 60.0, "first", "second") == [0.0, 10.0]


@pytest.mark.parametrize("settled", [True, False])
def test_no_gang_waits_for_a_lost_pod_of_an_earlier_whole_gang(settled: bool) -> None:
    backlog = started("whole", "waits")
    backlog.expect("whole", None)
    if settled:
        backlog.settle(1.0)
    backlog.expect("whole", 1, attempt=1)
    assert backlog.missing("whole") == 1
    backlog.settle(2.0)
    backlog.record_created("whole", worker(0))
    assert quiet(backlog, 40.0, "waits") == [40.0]


def test_a_pod_that_is_created_and_deleted_forever_does_not_make_the_wait_endless() -> None:
    backlog = started("one", "next")
    for number in range(100):
        backlog.record_created("one", worker(number % 2))
        backlog.settle(float(number))
    assert quiet(backlog, 100.0, "one", "next") == [99.0, 99.0]


def test_a_new_plan_restarts_the_wait_for_the_creation_of_pods() -> None:
    backlog = started("one")
    backlog.record_created("one", worker(0))
    backlog.settle(5.0)
    backlog.expect("one", 3, attempt=2)
    assert quiet(backlog, 10.0, "one") == [0.0]
    backlog.record_created("one", worker(0))
    assert quiet(backlog, 20.0, "one") == [0.0]


def test_pods_not_created_in_time_keep_no_gang_waiting() -> None:
    backlog = PodCreationBacklog()
    backlog.expect("late", MAX_OUTSTANDING, attempt=1)
    assert backlog.crowded
    assert backlog.give_up("late")
    assert (backlog.crowded, backlog.pods, list(backlog.jobs())) == (False, 0, [])
    assert not backlog.give_up("late")
    assert not backlog.expect("late", MAX_OUTSTANDING - 1, attempt=1)
    assert backlog.pods == 0
    backlog.expect("late", MAX_OUTSTANDING, attempt=2)
    assert backlog.crowded


def test_a_new_controller_takes_over_the_state_of_the_gangs() -> None:
    backlog = started("first", "second", "third")
    backlog.record_created("second", worker(1))
    backlog.settle(4.0)
    backlog.give_up("first")
    records = list(backlog.record(10.0))
    again = started("third", "second", "first", "new")
    again.restore(records, crowded=True, now=100.0)
    assert list(again.record(100.0))[:3] == records
    assert (again.pods, again.crowded) == (9, True)
    again.record_created("second", worker(1))
    assert quiet(again, 100.0, "second", "third", "new") == [6.0, 6.0, 100.0]


COMING: dict[str, tuple[JobBuilder, tuple[Pod, ...], int | None]] = {
    "a job that was just started": (job().worker(3).resumed(), (), 3),
    "a job with two of its pods": (
        job().worker(3).resumed(),
        (pod(JOB, "worker", 0), pod(JOB, "worker", 1)),
        1,
    ),
    "a job that runs and has lost pods": (
        job().worker(3).resumed(),
        (pod(JOB, "worker", 0, bound="a"),),
        0,
    ),
    "a job with a pod that still ends": (
        job().worker(3).resumed(),
        (*pods(JOB)[:2], pod(JOB, "worker", 2, deleting=True)),
        0,
    ),
    "a job with all its pods": (job().worker(3).resumed(), tuple(pods(JOB)), None),
    "a job in the queue": (job().worker(3).held(), (), None),
    "a job that ended": (job().worker(3).resumed().condition("Succeeded"), (), None),
    "a job that is being deleted": (job().worker(3).resumed().deleting(), (), None),
    "a job that was released": (job().worker(3).resumed().released(), (), None),
}
UNPLANNED: dict[str, tuple[tuple[Pod, ...], int | None]] = {
    "none of its pods is gated": ((pod(JOB, "worker", 0),), None),
    "its first pod is gated": ((pod(JOB, "worker", 0, gated=True),), 0),
}


@pytest.mark.parametrize(("pods", "want"), UNPLANNED.values(), ids=UNPLANNED)
def test_the_pods_of_a_job_that_another_system_started_keep_no_gang_waiting(
    pods: tuple[Pod, ...], want: int | None
) -> None:
    assert still_to_come(job().worker(3).resumed().build(), pods, planned=False) == want


@pytest.mark.parametrize(("builder", "pods", "want"), COMING.values(), ids=COMING)
def test_the_pods_that_the_operator_has_yet_to_create(
    builder: JobBuilder, pods: tuple[Pod, ...], want: int | None
) -> None:
    assert still_to_come(builder.build(), pods) == want


PLAIN_JOBS: dict[str, tuple[JobBuilder, list[Pod], int]] = {
    "none exists: all are yet to be created": (job().worker(3).resumed(), [], 3),
    "one is bound, one is new, one is yet to be created": (
        job().worker(3).resumed(),
        [pod(JOB, "worker", 0, bound="a"), pod(JOB, "worker", 1)],
        2,
    ),
    "kube-scheduler has refused one, and one waits behind another gate": (
        job().worker(3).resumed(),
        [
            pod(JOB, "worker", 0, bound="a"),
            pod(JOB, "worker", 1, unschedulable="0/1 nodes are available"),
            pod(JOB, "worker", 2, gates=["other/gate"]),
        ],
        0,
    ),
    "it is suspended": (job().worker(3).suspended(), [], 0),
    "it has ended": (job().worker(3).resumed().condition("Succeeded"), [], 0),
    "it has more replicas than kfext counts": (job().worker(100_000).resumed(), [], 0),
}


@pytest.mark.parametrize(("builder", "pods", "want"), PLAIN_JOBS.values(), ids=PLAIN_JOBS)
def test_the_pods_of_a_job_that_plain_kubernetes_is_about_to_bind(
    builder: JobBuilder, pods: list[Pod], want: int
) -> None:
    assert to_be_bound(builder.build(), pods) == want
