"""What a snapshot says of jobs and pods."""

import pytest

from tests.unit.core.companion.jobs import job, pod, signals


@pytest.mark.parametrize(
    ("uses", "want"),
    [
        pytest.param([100, 200], 300, id="the sum of its pods"),
        pytest.param([100, None], None, id="unknown if that of one pod is"),
        pytest.param([0], 0, id="nothing is known to be nothing"),
    ],
)
def test_the_use_of_a_job(uses: list[int | None], want: int | None) -> None:
    assert job("j", *(pod(f"p{at}", use=use) for at, use in enumerate(uses))).use == want


@pytest.mark.parametrize(
    ("user_limit", "want"),
    [
        pytest.param(300, 300, id="what the user wrote"),
        pytest.param(None, 1400, id="the whole node where the user wrote nothing"),
    ],
)
def test_the_limit_that_restricts_a_pod_no_more(user_limit: int | None, want: int) -> None:
    assert signals(job()).open_limit(pod(limit=100, user_limit=user_limit)) == want


def test_the_pods_of_a_job_on_a_node_come_in_one_order() -> None:
    one = job("j", pod("b"), pod("c", node="n2"), pod("a"))
    assert [found.uid for found in one.on("n1")] == ["a", "b"]
    assert one.nodes == ["n1", "n2"]


def test_a_job_that_has_gone_is_not_found() -> None:
    seen = signals(job("a"), job("b"))
    assert seen.job("b") is seen.jobs[1]
    assert seen.job("c") is None
