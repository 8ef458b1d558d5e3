"""What policies see of the jobs that opted in, and what a job has lost for others."""

import pytest

from kfext.core.companion.signals import Budget
from tests.unit.core.companion.jobs import job, pod, signals

INTERVALS: dict[str, tuple[dict[str, int | None], float]] = {
    "a cap below the equal share that stops it": ({"use": 350, "equal": 467, "cap": 350}, 3.51),
    "a cap that does not stop it": ({"use": 100, "equal": 467, "cap": 350}, 0.0),
    "no cap": ({"use": 350, "equal": 467, "cap": None}, 0.0),
    "a cap above the equal share": ({"use": 700, "equal": 467, "cap": 700}, 0.0),
}


@pytest.mark.parametrize(("of", "want"), INTERVALS.values(), ids=INTERVALS)
def test_what_a_job_loses_in_an_interval(of: dict[str, int | None], want: float) -> None:
    after = Budget(used=1.0, lost=2.0).after(seconds=30, **of)  # type: ignore[arg-type]
    assert after.lost == pytest.approx(2.0 + want)
    assert after.used == pytest.approx(1.0 + 30 * (of["use"] or 0) / 1000)


@pytest.mark.parametrize(
    ("lost", "want"),
    [
        pytest.param(10.0, False, id="exactly its budget"),
        pytest.param(10.1, True, id="more than its budget"),
        pytest.param(0.0, False, id="nothing"),
    ],
)
def test_a_budget_is_spent_when_more_is_lost_than_a_share_of_what_was_used(
    lost: float, *, want: bool
) -> None:
    assert Budget(used=100.0, lost=lost).spent(0.1) is want
    assert not Budget().spent(0.1)


def test_what_goes_to_a_job_that_ends_first_is_lent_and_not_lost() -> None:
    lender = Budget().after(use=250, equal=500, cap=250, seconds=30, lends=True)
    assert (lender.used, lender.lost, lender.lent, lender.borrowed) == (7.5, 0.0, 7.5, 0.0)
    served = Budget().after(use=750, equal=500, cap=None, seconds=30, lends=True)
    assert (served.lost, served.lent, served.borrowed) == (0.0, 0.0, 7.5)


@pytest.mark.parametrize(("lent", "want"), [(14.9, True), (15.0, False)])
def test_a_job_lends_no_more_than_a_share_of_all_that_it_takes(lent: float, want: bool) -> None:
    assert Budget(used=100.0, lent=lent).may_lend(0.1, left=50.0) is want


@pytest.mark.parametrize(
    ("uses", "want"),
    [
        pytest.param([100, 200], 300, id="the sum of its pods"),
        pytest.param([100, None], None, id="unknown if one pod's is"),
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
    signal = job("j", pod("b"), pod("c", node="n2"), pod("a"))
    assert [found.uid for found in signal.on("n1")] == ["a", "b"]
    assert signal.nodes == ["n1", "n2"]


def test_a_job_that_has_gone_is_not_found() -> None:
    seen = signals(job("a"), job("b"))
    assert seen.job("b") is seen.jobs[1]
    assert seen.job("c") is None
