"""FlowCon's limits, as computed by hand, and what is left of a node."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.companion.caps import Competitor, caps, floor_of, with_what_is_left
from kfext.core.progress.reported import GrowthState

NEW, WATCHING, COMPLETING = GrowthState.NEW, GrowthState.WATCHING, GrowthState.COMPLETING
SIZE = 1200

HAND_COMPUTED: dict[str, tuple[list[tuple[GrowthState, float | None]], list[int | None]]] = {
    "one that grows has the whole node": ([(NEW, 0.2)], [1200]),
    "growing ones have their shares": ([(NEW, 0.3), (NEW, 0.2)], [720, 480]),
    "one that grows slowly has the floor": ([(NEW, 0.9), (NEW, 0.1)], [1080, 400]),
    "watching ones stay as they are": ([(NEW, 0.3), (WATCHING, 0.1)], [900, None]),
    "completing ones have their share": ([(NEW, 0.2), (COMPLETING, 0.2)], [600, 600]),
    "but no less than 1/(n+1)": (
        [(NEW, 0.2), (COMPLETING, 0.0), (COMPLETING, 0)],
        [1200, 300, 300],
    ),
    "if all are completing none is restricted": (
        [(COMPLETING, 0.1), (COMPLETING, 0.0)],
        [1200, 1200],
    ),
    "without any growth all stay as they are": ([(NEW, 0.0), (COMPLETING, 0.0)], [None, None]),
    "one whose growth is not known stays as it is": (
        [(NEW, None), (NEW, 0.2), (COMPLETING, 0.0)],
        [None, 1200, 300],
    ),
}


@pytest.mark.parametrize(("of", "want"), HAND_COMPUTED.values(), ids=HAND_COMPUTED)
def test_F3_the_limits_as_computed_by_hand(
    of: list[tuple[GrowthState, float | None]], want: list[int | None]
) -> None:
    assert caps(SIZE, [Competitor(state, growth, least=50) for state, growth in of]) == want


def test_F3_the_floor_is_the_request_or_one_part_of_one_more_than_there_are() -> None:
    assert floor_of(1200, jobs=3, least=50) == 300
    assert floor_of(1200, jobs=3, least=500) == 500
    busy = Competitor(COMPLETING, 0.0, least=700)
    assert caps(1200, [busy, Competitor(NEW, 0.2, least=50)]) == [700, 1200]


COMPETITORS = st.lists(
    st.builds(
        Competitor,
        st.sampled_from(GrowthState),
        st.one_of(st.none(), st.just(0.0), st.floats(0.001, 20)),
        st.integers(50, 3000),
    ),
    min_size=1,
    max_size=10,
)


@given(st.integers(0, 64000), COMPETITORS)
def test_F3_no_limit_is_below_the_floor_nor_above_node_and_request(
    size: int, of: list[Competitor]
) -> None:
    for one, cap in zip(of, caps(size, of), strict=True):
        if cap is not None and any(other.state is not COMPLETING for other in of):
            floor = floor_of(size, len(of), one.least)
            assert floor <= cap <= max(size, one.least)


@given(st.integers(0, 64000), COMPETITORS)
def test_F3_more_growth_never_gets_less(size: int, of: list[Competitor]) -> None:
    of = [Competitor(one.state, one.growth, least=50) for one in of]
    known = [
        (one.growth, cap)
        for one, cap in zip(of, caps(size, of), strict=True)
        if one.growth is not None and cap is not None
    ]
    for growth, cap in known:
        assert all(cap >= other_cap for other, other_cap in known if other <= growth)


LEFT: dict[str, tuple[list[int], list[int], list[int]]] = {
    "nothing is left": ([900, 300], [1200, 1200], [900, 300]),
    "what one leaves goes to the other": ([900, 300], [500, 1200], [900, 600]),
    "it goes by the caps": ([600, 400, 200], [300, 1200, 1200], [600, 533, 267]),
    "no more than is wanted": ([600, 300, 300], [100, 350, 1200], [600, 350, 650]),
    "if all have enough none is restricted": ([900, 300], [500, 400], [900, 1200]),
    "one that wants no more keeps its cap": ([900, 300], [500, 100], [900, 300]),
}


@pytest.mark.parametrize(("limits", "wants", "want"), LEFT.values(), ids=LEFT)
def test_what_jobs_leave_goes_to_those_that_want_more(
    limits: list[int], wants: list[int], want: list[int]
) -> None:
    assert with_what_is_left(SIZE, limits, wants, room=1100) == want


@given(
    st.lists(st.tuples(st.integers(50, 1200), st.integers(0, 1200)), min_size=1, max_size=8),
    st.integers(0, 1200),
)
def test_no_job_gets_less_and_none_idles_beside_one_that_wants_more(
    of: list[tuple[int, int]], room: int
) -> None:
    limits, wants = [limit for limit, _ in of], [want for _, want in of]
    raised = with_what_is_left(SIZE, limits, wants, room=room)
    assert all(after >= before for after, before in zip(raised, limits, strict=True))
    used = sum(min(cap, want) for cap, want in zip(raised, wants, strict=True))
    assert used >= min(room, sum(wants))
