import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.pod import Pod
from kfext.state.pod_backlog import MOST_OUTSTANDING, PodCreationBacklog, still_to_come
from tests.builders import JobBuilder, job, pod

OF = job().worker(3).build()


def test_more_is_planned_again_only_when_half_of_too_many_exist() -> None:
    backlog = PodCreationBacklog()
    assert not backlog.expect("a", MOST_OUTSTANDING - 1)
    assert (backlog.crowded, backlog.crowd) == (False, 0)
    assert not backlog.expect("b", 1)
    assert (backlog.crowded, backlog.crowd) == (True, MOST_OUTSTANDING // 2)
    assert not backlog.expect("a", MOST_OUTSTANDING // 2)
    assert backlog.crowded
    assert backlog.expect("b", 0)
    assert not backlog.crowded
    assert not backlog.expect("a", 0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, MOST_OUTSTANDING)), max_size=30))
def test_the_sum_is_that_of_the_jobs(expected: list[tuple[str, int]]) -> None:
    backlog, want = PodCreationBacklog(), dict[str, int]()
    for uid, missing in expected:
        backlog.expect(uid, missing)
        want[uid] = missing
    assert backlog.pods == sum(want.values())
    assert {uid: backlog.missing(uid) for uid in want} == want
    assert set(backlog.jobs()) == {uid for uid, missing in want.items() if missing}


COMING: dict[str, tuple[JobBuilder, tuple[Pod, ...], int]] = {
    "a job that was just started": (job().worker(3).resumed(), (), 3),
    "one of whose pods two exist": (
        job().worker(3).resumed(),
        (pod(OF, "worker", 0), pod(OF, "worker", 1)),
        1,
    ),
    "one that runs and has lost pods": (
        job().worker(3).resumed(),
        (pod(OF, "worker", 0, bound="a"),),
        0,
    ),
    "a job in the queue": (job().worker(3).held(), (), 0),
    "a job that ended": (job().worker(3).resumed().condition("Succeeded"), (), 0),
    "a job that is being deleted": (job().worker(3).resumed().deleting(), (), 0),
}


@pytest.mark.parametrize(("of", "pods", "want"), COMING.values(), ids=COMING)
def test_what_the_operator_has_yet_to_create(
    of: JobBuilder, pods: tuple[Pod, ...], want: int
) -> None:
    assert still_to_come(of.build(), pods) == want
