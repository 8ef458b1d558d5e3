"""Turns: of namespaces whose jobs wait, and of many jobs that are looked at a few at a time."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kfext.state.turns import InTurn, Turns

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


@given(st.integers(1, 9), st.integers(0, 40))
def test_everybody_has_one_turn_before_the_first_has_another(most: int, number: int) -> None:
    turns, among = InTurn(most), range(number)
    for _ in range(2):
        looked: list[int] = []
        while len(looked) < number:
            looked += turns.some(among)
        assert looked == list(among)


def test_a_sequence_that_has_become_shorter_begins_anew() -> None:
    turns = InTurn(3)
    turns.some("abcdef")
    assert turns.some("ab") == "ab"
