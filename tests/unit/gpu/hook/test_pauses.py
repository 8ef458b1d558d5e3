import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.gpu.hook.pauses import KEPT, PIECE, PRICE, fits, repeat

MS = 0.001
REGULAR = [15.0] * KEPT
ONE_LONG = [*REGULAR[1:], 90.0]

CASES: dict[str, tuple[float, float, list[float], bool]] = {
    "it ends before all pauses did": (13.9, 0.0, REGULAR, True),
    "it would end after them": (14.4, 0.0, REGULAR, False),
    "it would end after them, with the work on the card": (13.9, 0.5, REGULAR, False),
    "it may overlap by a tenth of its length": (14.28, 0.0, REGULAR, True),
    "all pauses but one have ended by its end": (14.4, 0.0, ONE_LONG, False),
    "all pauses but one have ended": (16.0, 0.0, ONE_LONG, True),
    "no pause is known": (100.0, 0.0, [], True),
    "the pause is hardly longer than all others": (3.2, 0.0, [1.0] * KEPT, False),
    "it is five times as long as the micro-step": (3.3, 0.0, [1.0] * KEPT, True),
}


@pytest.mark.parametrize(("elapsed", "queued", "pauses", "want"), CASES.values(), ids=CASES)
def test_whether_a_micro_step_fits(
    elapsed: float, queued: float, pauses: list[float], want: bool
) -> None:
    known = [pause * MS for pause in pauses]
    assert fits(elapsed * MS, PIECE, queued=queued * MS, pauses=known, price=PRICE) is want


ALIKE: dict[str, tuple[list[float], bool]] = {
    "all are the same": (REGULAR, True),
    "an evaluation is among them": (ONE_LONG, True),
    "a quarter is far from the others": ([15.0] * 24 + [90.0] * 8, False),
    "they are spread by 5 %": ([15.0 * (0.95 + 0.1 * n / 31) for n in range(32)], True),
    "they are spread by 20 %": ([15.0 * (0.8 + 0.4 * n / 31) for n in range(32)], False),
    "few are known": ([15.0] * 7, False),
    "none is known": ([], False),
}


@pytest.mark.parametrize(("pauses", "want"), ALIKE.values(), ids=ALIKE)
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
def test_a_micro_step_that_fits_would_fit_if_shorter_or_with_a_larger_budget(
    elapsed: float,
    queued: float,
    pauses: list[float],
    lengths: tuple[float, float],
    prices: tuple[float, float],
) -> None:
    (short, long), (low, high) = sorted(lengths), sorted(prices)
    if fits(elapsed, long, queued=queued, pauses=pauses, price=low):
        assert fits(elapsed, long, queued=queued, pauses=pauses, price=high)
        assert fits(elapsed, short, queued=queued, pauses=pauses, price=low + 1e-9)
