"""How many members of a gang each node holds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.ledger.columns import LARGEST
from kfext.core.placement.gang import gang
from kfext.core.placement.pool import pool
from tests.unit.core.placement.answers import GPU, members_in

HTTP = (("TCP", 80),)
nodes = st.lists(
    st.tuples(st.integers(-2, 9), st.integers(-2, 9), st.booleans(), st.booleans()), max_size=5
)
sizes = st.fixed_dictionaries({"cpu": st.integers(0, 3), GPU: st.integers(0, 3)})
groups = st.lists(
    st.tuples(sizes, st.sampled_from([(), (), HTTP]), st.integers(1, 4)), min_size=1, max_size=2
)


@given(nodes=nodes, groups=groups)
def test_each_node_holds_as_many_members_of_a_batch_as_it_says(
    nodes: list[tuple[int, int, bool, bool]],
    groups: list[tuple[dict[str, int], tuple[tuple[str, int], ...], int]],
) -> None:
    asked = gang(members_in(groups))
    free = np.array([[cpus, gpus] for cpus, gpus, *_ in nodes], dtype=np.int64).reshape(-1, 2).T
    usable = [np.array([one[2 + number] for one in nodes], dtype=np.bool_) for number in (0, 1)]
    found = pool(asked, free=free, masks=usable[: len(asked.batches)])

    def most(row: int, number: int) -> int:
        batch = asked.batches[number]
        largest = 1 if batch.constraints.exclusive else batch.count
        fitting = [
            count
            for count in range(1, largest + 1)
            if all(
                free[line, row] >= count * wanted
                for line, wanted in enumerate(batch.requests)
                if wanted
            )
        ]
        return max(fitting, default=0) if usable[number][row] else 0

    batches = range(len(asked.batches))
    want = [[most(row, number) for row in range(len(nodes))] for number in batches]
    for number in batches:
        assert found.holds[number].tolist() == [want[number][row] for row in found.rows]
    # No row is left out that holds a member of any batch, nor says that it holds fewer.
    capacity = dict(zip(found.rows.tolist(), found.capacity.tolist(), strict=True))
    for row in range(len(nodes)):
        assert capacity.get(row, 0) >= max(want[number][row] for number in batches)
        if len(batches) == 1:
            assert capacity.get(row, 0) == want[0][row]


def test_a_part_of_a_pool_says_of_its_rows_what_the_whole_said() -> None:
    asked = gang(members_in([({"cpu": 1}, (), 4), ({"cpu": 2}, HTTP, 2)]))
    free = np.array([[3, 0, 4, 8]])
    usable = [np.array([True, True, True, False]), np.array([True, True, False, True])]
    whole = pool(asked, free=free, masks=usable)
    part = whole.only(np.array([2, 0]))
    assert whole.rows.tolist() == [0, 2, 3]
    assert part.rows.tolist() == [3, 0]
    assert part.free.tolist() == [[8, 3]]
    assert [mask.tolist() for mask in part.masks] == [[False, True], [True, True]]
    assert [held.tolist() for held in part.holds] == [[0, 3], [1, 1]]
    assert part.capacity.tolist() == [5, 3]  # of two with the port, one


def test_a_pool_does_not_hold_a_gang_that_is_too_many_or_of_which_one_batch_is() -> None:
    asked = gang(members_in([({"cpu": 1}, (), 3), ({"cpu": 1}, HTTP, 2)]))
    two = [np.array([True, True])] * 2
    assert pool(asked, free=np.array([[9, 9]]), masks=two).may_hold(asked)
    assert not pool(asked, free=np.array([[2, 2]]), masks=two).may_hold(asked)
    assert not pool(asked, free=np.array([[9, 0]]), masks=two).may_hold(asked)


def test_amounts_near_64_bits_do_not_overflow() -> None:
    asked = gang(members_in([({"memory": 2**60}, (), 3000)]))
    free = np.array([[LARGEST, LARGEST - 1]])
    found = pool(asked, free=free, masks=[np.array([True, True])])
    assert (found.rows.tolist(), found.capacity.tolist()) == ([0], [1])
