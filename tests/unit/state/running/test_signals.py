"""The signals of jobs: CPU use, boosts, and the order of pods."""

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
def test_the_cpu_use_of_a_job(uses: list[int | None], want: int | None) -> None:
    pods = (pod(f"p{index}", use=use) for index, use in enumerate(uses))
    assert job("j", *pods).use == want


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
def test_the_boost_of_a_pod_and_whether_it_is_resized(
    fields: dict[str, Any], extra: int, *, resized: bool
) -> None:
    signal = pod(**fields)
    assert (signal.resized, signal.extra) == (resized, extra)


def test_the_pods_of_a_job_on_a_node_are_ordered_by_uid() -> None:
    signal = job("j", pod("b"), pod("c", node="n2"), pod("a"))
    assert [here.uid for here in signal.on("n1")] == ["a", "b"]
    assert signal.nodes == ["n1", "n2"]
