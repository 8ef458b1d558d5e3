import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.gpu.hook.pauses import KEPT, PIECE, PRICE, fits, repeat

MS = 0.001
REGULAR = [15.0] * KEPT
ONE_LONG = [*REGULAR[1:], 90.0]

CASES: dict[str, tuple[float, float, list[float], bool]] = {
    "it would end before the end of all past pauses": (13.9, 0.0, REGULAR, True),
    "it would end after them": (14.4, 0.0, REGULAR, False),
    "it would end after them, because of the work before it": (13.9, 0.5, REGULAR, False),
    "it would overlap by a tenth of its length": (14.28, 0.0, REGULAR, True),
    "all past pauses but one are shorter than its end": (14.4, 0.0, ONE_LONG, False),
    "all past pauses but one are shorter than the present pause": (16.0, 0.0, ONE_LONG, True),
    "no past pause is known": (100.0, 0.0, [], True),
    "the longest pause so far is shorter than 5 micro-steps": (3.2, 0.0, [1.0] * KEPT, False),
    "the longest pause so far is longer than 5 micro-steps": (3.3, 0.0, [1.0] * KEPT, True),
}
"""The present pause and the queued work, in ms; the past pauses, in ms; whether it fits."""


@pytest.mark.parametrize(("elapsed", "queued", "pauses", "want"), CASES.values(), ids=CASES)
def test_whether_it_fits(elapsed: float, queued: float, pauses: list[float], want: bool) -> None:
    known = [pause * MS for pause in pauses]
    assert fits(elapsed * MS, PIECE, queued=queued * MS, pauses=known, price=PRICE) is want


REPEATING: dict[str, tuple[list[float], bool]] = {
    "all are equal": (REGULAR, True),
    "all but one are equal": (ONE_LONG, True),
    "a quarter is much longer": ([15.0] * 24 + [90.0] * 8, False),
    "they vary by 5 % around the mean": ([15.0 * (0.95 + 0.1 * n / 31) for n in range(32)], True),
    "they vary by 20 % around the mean": ([15.0 * (0.8 + 0.4 * n / 31) for n in range(32)], False),
    "only 7 are known": ([15.0] * 7, False),
    "none is known": ([], False),
}


@pytest.mark.parametrize(("pauses", "want"), REPEATING.values(), ids=REPEATING)
def test_whether_pauses_repeat(pauses: list[float], want: bool) -> None:
    assert repeat(pauses) is want


TIME = st.floats(0, 60)


@given(
    elapsed=TIME,
    queued=TIME,
    pauses=st.lists(TIME, max_size=KEPT),
    lengths=st.tuples(TIME, TIME),
    prices=st.tuples(st.floats(0.001, 1), st.floats(0.001, 1)),
)
def test_a_micro_step_that_fits_also_fits_if_it_is_shorter_or_the_price_is_higher(
    elapsed: float,
    queued: float,
    pauses: list[float],
    lengths: tuple[float, float],
    prices: tuple[float, float],
) -> None:
    (short, long), (lower, higher) = sorted(lengths), sorted(prices)
    if fits(elapsed, long, queued=queued, pauses=pauses, price=lower):
        assert fits(elapsed, long, queued=queued, pauses=pauses, price=higher)
        assert fits(elapsed, short, queued=queued, pauses=pauses, price=lower + 1e-9)
