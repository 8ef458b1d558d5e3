"""What a job may lose for others."""

import pytest

from kfext.core.companion.budget import Budget

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
