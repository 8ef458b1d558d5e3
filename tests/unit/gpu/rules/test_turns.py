import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfext.gpu.rules.tally import WINDOW
from kfext.gpu.rules.turns import QUOTA, TURN, Turns

_LONG = 3 * WINDOW
_STEP = 0.005
"""Seconds of a micro-step: a turn ends with one."""


Wants = Callable[[str, float], bool]


def always(_name: str, _now: float) -> bool:
    return True


def card(shares: dict[str, float], wants: Wants = always, seed: int = 1) -> list[str | None]:
    """Return who had the card in each micro-step of a time."""
    turns, chance = Turns(), random.Random(seed)
    for name, share in shares.items():
        turns.set(name, share=share, now=0.0)
    had: list[str | None] = []
    while len(had) * _STEP < _LONG:
        now = len(had) * _STEP
        wanting = [name for name in shares if wants(name, now)]
        chosen = turns.next(wanting, now=now)
        if chosen is None:
            had.append(None)
            continue
        steps = round(TURN / _STEP) + chance.randint(0, 1)  # the last micro-step may be late
        had += [chosen] * steps
        turns.ran(chosen, held=steps * _STEP, used=steps * _STEP, now=now + steps * _STEP)
    return had


def in_windows(had: list[str | None], name: str) -> Sequence[float]:
    """Return the seconds that a sharer had in each window of the time."""
    size = round(WINDOW / _STEP)
    counts = np.cumsum([0, *(turn == name for turn in had)])
    return [float(count) * _STEP for count in counts[size:] - counts[:-size]]


SHARES = st.lists(st.integers(1, 60), min_size=1, max_size=6).filter(lambda a: sum(a) <= 100)


@settings(max_examples=40, deadline=None)
@given(parts=SHARES, data=st.data())
def test_G5_in_any_window_each_has_its_share(parts: list[int], data: st.DataObject) -> None:
    shares = {f"job-{i}": part / 100 for i, part in enumerate(parts)}
    # The first always has work; the others have some of the time.
    periods = {name: data.draw(st.floats(0.3, 15)) for name in shares}

    def wants(name: str, now: float) -> bool:
        return name == "job-0" or (now / periods[name]) % 1 < 0.5

    had = card(shares, wants)
    assert min(in_windows(had, "job-0")) >= shares["job-0"] * WINDOW - QUOTA


@settings(max_examples=20, deadline=None)
@given(parts=SHARES)
def test_G5_all_of_them_at_once(parts: list[int]) -> None:
    shares = {f"job-{i}": part / 100 for i, part in enumerate(parts)}
    had = card(shares)
    for name, share in shares.items():
        assert min(in_windows(had, name)) >= share * WINDOW - QUOTA


def test_what_others_leave_goes_to_those_that_have_work() -> None:
    had = card({"a": 0.2, "b": 0.2}, lambda name, now: name == "a" or now > 20)
    assert None not in had
    assert in_windows(had, "a")[0] == pytest.approx(WINDOW)
    assert in_windows(had, "a")[-1] == pytest.approx(WINDOW / 2, abs=QUOTA)


def test_a_sharer_that_was_away_has_saved_nothing_up() -> None:
    had = card({"a": 0.5, "b": 0.5}, lambda name, now: name == "a" or now > 20)
    back = round(20 / _STEP)
    soon = had[back : back + round(2 / _STEP)]
    assert soon.count("b") * _STEP == pytest.approx(1, abs=QUOTA)


def test_who_overran_a_turn_pays_for_it() -> None:
    turns = Turns()
    for name in ("a", "b"):
        turns.set(name, share=0.5, now=0.0)
    both = ["a", "b"]
    assert turns.next(both, now=0.0) == "a"
    turns.ran("a", held=TURN, used=1.0, now=1.0)
    now, got = 1.0, []
    while now < 2:
        chosen = turns.next(both, now=now)
        assert chosen is not None
        got.append(chosen)
        now += TURN
        turns.ran(chosen, held=TURN, used=TURN, now=now)
    assert got.count("b") * TURN >= 1 - QUOTA


def test_what_was_paid_for_in_a_turn_is_not_charged_again_when_it_becomes_known() -> None:
    turns = Turns()
    for name in ("a", "b"):
        turns.set(name, share=0.5, now=0.0)
    both, now = ["a", "b"], 6 * TURN
    assert turns.next(both, now=0.0) == "a"
    turns.ran("a", held=TURN, used=0.0, now=TURN)
    turns.ran("a", held=0.0, used=6 * TURN, now=now)  # a long micro-step, begun in the turn
    got = 0
    while turns.next(both, now=now) == "b":
        got, now = got + 1, now + TURN
        turns.ran("b", held=TURN, used=TURN, now=now)
    assert got == 6


def test_how_long_a_sharer_rests_that_has_used_more_than_has_passed() -> None:
    turns = Turns()
    turns.set("a", share=0.5, now=0.0)
    assert turns.next(["a"], now=0.0) == "a"
    turns.ran("a", held=1.0, used=2.0, now=1.0)
    assert turns.next(["a"], now=1.0) is None
    wait = turns.wakes(["a"], now=1.0)
    assert turns.next(["a"], now=1.0 + wait - 0.01) is None
    assert turns.next(["a"], now=1.0 + wait + 0.01) == "a"
