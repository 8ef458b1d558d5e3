from hypothesis import given
from hypothesis import strategies as st

from kfext.state.scaling.in_turn import InTurn


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
