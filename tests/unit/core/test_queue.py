from itertools import permutations

from kfext.core.queue import in_order
from tests.builders import job

OLD = job(name="z", uid="1").worker(1).created(10).build()
FIRST = job(name="a", uid="2").worker(1).created(20).build()
SECOND = job(name="b", uid="3").worker(1).created(20).build()
SAME_NAME = job("TFJob", name="b", uid="4").worker(1).created(20).build()


def test_oldest_first_and_equal_ages_by_name_whatever_was_seen_first() -> None:
    want = [OLD, FIRST, SECOND, SAME_NAME]
    for seen in permutations(want):
        assert in_order(seen) == want
