from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kfext.state.turns import Turns

names = st.lists(st.sampled_from("abcd"), max_size=40)


@given(names)
def test_each_job_comes_once_in_the_order_of_its_namespace(namespaces: list[str]) -> None:
    turns = Turns()
    for number, namespace in enumerate(namespaces):
        turns.add(namespace, f"{namespace}{number}")
    served = []
    while turns:
        served.append(turns.next())
    assert sorted(served) == sorted(f"{name}{number}" for number, name in enumerate(namespaces))
    for name in set(namespaces):
        numbers = [int(uid[1:]) for uid in served if uid[0] == name]
        assert numbers == sorted(numbers)


@given(names)
def test_no_namespace_is_served_twice_while_another_waits(namespaces: list[str]) -> None:
    turns = Turns()
    for namespace in namespaces:
        turns.add(namespace, namespace)
    waiting, since = Counter(namespaces), Counter[str]()
    while turns:
        served = turns.next()
        waiting[served] -= 1
        since[served] = 0
        for other in waiting:
            if other != served and waiting[other]:
                since[other] += 1
                assert since[other] < len(waiting)
