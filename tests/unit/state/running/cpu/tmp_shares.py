"""How a sum is divided among parts with bounds."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.state.running.cpu.contest import Part, share_out

SHARES: dict[str, tuple[int, list[tuple[float, int, int]], list[int]]] = {
    "by weight": (1000, [(1, 0, 1000), (3, 0, 1000)], [250, 750]),
    "alike without weights": (900, [(0, 0, 900), (0, 0, 900), (0, 0, 900)], [300, 300, 300]),
    "no less than the least": (1000, [(0, 100, 1000), (1, 0, 1000)], [100, 900]),
    "no more than the most": (1000, [(9, 0, 500), (1, 0, 1000)], [500, 500]),
    "both bounds at once": (1000, [(9, 0, 500), (1, 0, 900), (0, 200, 900)], [500, 300, 200]),
    "too little for the least": (100, [(1, 100, 500), (1, 200, 500)], [100, 200]),
    "too much for the most": (5000, [(1, 0, 500), (1, 0, 600)], [500, 600]),
    "what no weight asks for goes to the rest": (900, [(1, 0, 300), (0, 0, 900)], [300, 600]),
    "the rest of a division goes to the first": (100, [(1, 0, 99)] * 3, [34, 33, 33]),
    "no part": (100, [], []),
}


@pytest.mark.parametrize(("total", "parts", "want"), SHARES.values(), ids=SHARES)
def test_shares(total: int, parts: list[tuple[float, int, int]], want: list[int]) -> None:
    assert share_out(total, [Part(*part) for part in parts]) == want


@st.composite
def part(draw: st.DrawFn) -> Part:
    least = draw(st.integers(0, 2000))
    weight = draw(st.one_of(st.just(0.0), st.floats(0.001, 1e6)))
    return Part(weight, least, least + draw(st.integers(0, 4000)))


@given(st.integers(0, 20000), st.lists(part(), min_size=1, max_size=12))
def test_the_sum_is_the_total_within_all_bounds(total: int, parts: list[Part]) -> None:
    given_out = share_out(total, parts)
    for got, part in zip(given_out, parts, strict=True):
        assert part.least <= got <= part.most
    low, high = sum(part.least for part in parts), sum(part.most for part in parts)
    assert sum(given_out) == min(max(total, low), high)


@given(st.integers(0, 20000), st.lists(part(), min_size=2, max_size=8))
def test_the_larger_weight_gets_no_less_where_bounds_allow(total: int, parts: list[Part]) -> None:
    parts = [Part(part.weight, 0, 10000) for part in parts]
    given_out = share_out(total, parts)
    pairs = zip(parts, given_out, strict=True)
    ordered = [got for _, got in sorted(pairs, key=lambda pair: (pair[0].weight, pair[1]))]
    assert all(low <= high + 1 for low, high in pairwise(ordered))
