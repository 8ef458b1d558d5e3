"""The signals of opted-in jobs for policies."""

from typing import Any

import pytest

from tests.unit.state.running.jobs import job, pod


@pytest.mark.parametrize(
    ("uses", "want"),
    [
        pytest.param([100, 200], 300, id="the sum of its pods"),
        pytest.param([100, None], None, id="unknown if one pod's use is unknown"),
        pytest.param([0], 0, id="no pods use nothing"),
    ],
)
def test_the_use_of_a_job(uses: list[int | None], want: int | None) -> None:
    assert job("j", *(pod(f"p{at}", use=use) for at, use in enumerate(uses))).use == want


@pytest.mark.parametrize(
    ("fields", "resized", "extra"),
    [
        pytest.param({"request": 100}, False, 0, id="as its user wrote it"),
        pytest.param({"request": 370, "user_request": 100}, True, 270, id="raised"),
        pytest.param({"request": 10, "user_request": 100}, True, -90, id="lowered"),
        pytest.param(
            {"request": 10, "allocated": 100, "user_request": 100}, True, 0,
            id="lowered, and not allocated yet",
        ),
        pytest.param(
            {"request": 100, "allocated": 370, "user_request": 100}, False, 270,
            id="restored, and not allocated yet",
        ),
        pytest.param({"limit": 350, "user_limit": 1000}, True, 0, id="with another limit"),
    ],
)  # fmt: skip
def test_the_counted_difference_from_the_users_cpu(
    fields: dict[str, Any], extra: int, *, resized: bool
) -> None:
    result = pod(**fields)
    assert (result.resized, result.extra) == (resized, extra)


def test_the_pods_of_a_job_on_a_node_come_in_one_order() -> None:
    signal = job("j", pod("b"), pod("c", node="n2"), pod("a"))
    assert [result.uid for result in signal.on("n1")] == ["a", "b"]
    assert signal.nodes == ["n1", "n2"]
