from hypothesis import given
from hypothesis import strategies as st

from kfext.gpu.rules.tally import WINDOW, Recent, Tally


@given(counts=st.lists(st.floats(0, 2.0**64), max_size=50))
def test_whatever_a_page_says_no_more_than_the_time_that_passed_is_counted(
    counts: list[float],
) -> None:
    tally, total = Tally(5.0, now=10.0), 0.0
    for number, count in enumerate(counts, 1):
        grown = tally.grown(count, now=10.0 + number)
        assert grown >= 0
        total += grown
        assert total <= number + 1e-9


def test_work_that_has_begun_long_before_its_end_is_counted_in_full() -> None:
    tally = Tally(3.0, now=0.0)
    assert [tally.grown(3.0, now=float(now)) for now in range(1, 30)] == [0.0] * 29
    assert tally.grown(33.0, now=30.0) == 30.0


def test_the_share_is_of_the_last_window() -> None:
    recent = Recent()
    for number in range(300):
        recent.add(0.05 if number < 200 else 0.0, now=number * 0.1)
    assert recent.share == 0.0
    for number in range(300, 310):
        recent.add(0.1, now=number * 0.1)
    assert 0.99 <= recent.share * WINDOW <= 1.01
