import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfext.gpu.rules.measures import WINDOW, BoundedGrowth
from kfext.gpu.rules.turns import QUOTA, TURN, UNUSED, Activity, Dispatcher, Turns

_LONG = 3 * WINDOW
_STEP = 0.005
"""Seconds of a micro-step: a turn ends with one."""


Wants = Callable[[str, float], bool]


def always(_name: str, _now: float) -> bool:
    return True


def card(shares: dict[str, float], wants: Wants = always, seed: int = 1) -> list[str | None]:
    """Return the owner of the card in each micro-step."""
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
def test_G5_all_sharers_always_want_work(parts: list[int]) -> None:
    shares = {f"job-{i}": part / 100 for i, part in enumerate(parts)}
    had = card(shares)
    for name, share in shares.items():
        assert min(in_windows(had, name)) >= share * WINDOW - QUOTA


def test_unused_time_goes_to_sharers_with_work() -> None:
    had = card({"a": 0.2, "b": 0.2}, lambda name, now: name == "a" or now > 20)
    assert None not in had
    assert in_windows(had, "a")[0] == pytest.approx(WINDOW)
    assert in_windows(had, "a")[-1] == pytest.approx(WINDOW / 2, abs=QUOTA)


def test_a_sharer_that_was_away_has_saved_no_time() -> None:
    had = card({"a": 0.5, "b": 0.5}, lambda name, now: name == "a" or now > 20)
    back = round(20 / _STEP)
    soon = had[back : back + round(2 / _STEP)]
    assert soon.count("b") * _STEP == pytest.approx(1, abs=QUOTA)


def test_a_sharer_that_overran_a_turn_pays_for_it() -> None:
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


def test_time_that_a_turn_has_paid_is_not_charged_again_when_it_is_reported() -> None:
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


def test_the_rest_of_a_sharer_that_used_more_time_than_passed() -> None:
    turns = Turns()
    turns.set("a", share=0.5, now=0.0)
    assert turns.next(["a"], now=0.0) == "a"
    turns.ran("a", held=1.0, used=2.0, now=1.0)
    assert turns.next(["a"], now=1.0) is None
    wait = turns.wakes(["a"], now=1.0)
    assert turns.next(["a"], now=1.0 + wait - 0.01) is None
    assert turns.next(["a"], now=1.0 + wait + 0.01) == "a"


_TICK = 0.0005
_LOOK = 0.05


@dataclass(slots=True)
class Sharer:
    """`step`: seconds of its micro-steps; `works`: it begins some if it may.

    `counts`: what its page adds to its work for each second of it; `wakes`: seconds after which it
    sees its turn; `comes`: when it has work first.
    """

    share: float
    step: float = 0.005
    works: bool = True
    counts: float = 1.0
    wakes: float = 0.0
    comes: float = 0.0
    counter: float = 0.0
    begun: int = 0
    had: list[float] = field(default_factory=list)
    _left: float = 0.0
    _may_since: float | None = None
    _here: bool = False

    def go_on(self, now: float, *, may: bool) -> None:
        """Work, or wait at the gate."""
        self._here = now >= self.comes
        self._may_since = (self._may_since or now) if may else None
        awake = self._may_since is not None and now - self._may_since >= self.wakes
        if self.asks and self.works and awake:
            self._left, self.begun = self.step, self.begun + 1
        self.had.append(_TICK if self._left > 0 else 0.0)
        if self._left > 0:
            self._left -= _TICK
            if self._left <= 0:
                self.counter += self.step * self.counts

    @property
    def asks(self) -> bool:
        return self._left <= 0 and self._here

    def least(self) -> float:
        """Return the seconds that it had in the worst of all windows."""
        return min(self._windows())

    def most(self) -> float:
        return max(self._windows())

    def _windows(self) -> list[float]:
        size, sums = round(WINDOW / _TICK), [0.0]
        for name in self.had:
            sums.append(sums[-1] + name)
        return [end - begin for begin, end in zip(sums, sums[size:], strict=False)]


def run(sharers: Mapping[str, Sharer]) -> None:
    """Share the card for some windows."""
    dispatcher, growths = Dispatcher(), {}
    for name, sharer in sharers.items():
        dispatcher.turns.set(name, share=sharer.share, now=0.0)
        growths[name] = BoundedGrowth(sharer.counter, now=0.0)
    begun, now, looks, looked = dict.fromkeys(sharers, 0), 0.0, 0.0, 0.0
    for tick in range(round(_LONG / _TICK)):
        now = tick * _TICK
        if now >= looks:
            seen = {}
            for name, sharer in sharers.items():
                moved, begun[name] = sharer.begun != begun[name], sharer.begun
                used = growths[name].grown(sharer.counter, now=now)
                seen[name] = Activity(wants=sharer.asks or moved, begun=moved, used=used)
            looks, looked = now + min(_LOOK, dispatcher.look(seen, now=now)), now
        for name, sharer in sharers.items():
            sharer.go_on(now, may=dispatcher.may_work(name, now=looked))


def test_G5_each_of_them_has_its_share() -> None:
    sharers = {"a": Sharer(0.5), "b": Sharer(0.3), "c": Sharer(0.1)}
    run(sharers)
    for sharer in sharers.values():
        assert sharer.least() >= sharer.share * WINDOW - QUOTA


OTHERS = {
    "waits at its gate without end": Sharer(0.5, works=False),
    "never counts its work": Sharer(0.5, counts=0.0),
    "counts its work backwards": Sharer(0.5, counts=-1000.0),
    "counts far more than it works": Sharer(0.5, counts=10.0**9),
    "is in one long micro-step after the other": Sharer(0.5, step=0.4),
    "is slow to begin": Sharer(0.5, wakes=UNUSED / 2),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_G5_a_sharer_gets_its_share_whatever_another_does_or_reports(kind: str) -> None:
    sharers = {"other": OTHERS[kind], "a": Sharer(0.3), "b": Sharer(0.2)}
    run(sharers)
    for name in ("a", "b"):
        assert sharers[name].least() >= sharers[name].share * WINDOW - QUOTA


def test_a_sharer_that_does_nothing_in_its_turns_leaves_most_of_them_to_others() -> None:
    sharers = {"other": Sharer(0.5, works=False), "a": Sharer(0.5)}
    run(sharers)
    assert sharers["a"].least() >= TURN / (TURN + UNUSED) * WINDOW - QUOTA


def test_a_sharer_that_overruns_its_turns_gets_no_more_than_its_share() -> None:
    sharers = {"coarse": Sharer(0.5, step=0.4), "a": Sharer(0.5)}
    run(sharers)
    assert sharers["coarse"].most() <= 0.5 * WINDOW + 0.4 + QUOTA
    assert sum(sharers["coarse"].had) >= 0.5 * _LONG - 0.4 - QUOTA  # and no less


@pytest.mark.parametrize("counts", [0.0, 1.0, 10.0**9])
def test_a_late_sharer_has_its_share_at_once_whatever_another_page_states(counts: float) -> None:
    late = Sharer(0.3, comes=WINDOW)
    run({"other": Sharer(0.2, counts=counts), "a": Sharer(0.5), "late": late})
    del late.had[: round(WINDOW / _TICK)]
    assert late.least() >= 0.3 * WINDOW - QUOTA


def test_a_sharer_that_is_alone_works_all_the_time_and_owes_nothing_for_it() -> None:
    dispatcher = Dispatcher()
    for name in ("a", "b"):
        dispatcher.turns.set(name, share=0.5, now=0.0)
    works = Activity(wants=True, begun=True, used=_LOOK)
    rests = Activity(wants=False, begun=False, used=0.0)
    looks = 0
    while looks < 200:
        looks += 1
        dispatcher.look({"a": works, "b": rests}, now=looks * _LOOK)
        assert dispatcher.holder == "a"
    had = []
    while looks < 240:
        looks += 1
        holder = dispatcher.holder
        seen = {name: works if name == holder else Activity(True, False, 0.0) for name in "ab"}
        dispatcher.look(seen, now=looks * _LOOK)
        had.append(dispatcher.holder)
    assert had.count("a") == pytest.approx(20, abs=QUOTA / _LOOK)


def test_no_sharer_waits_for_a_turn_while_no_other_wants_one() -> None:
    dispatcher = Dispatcher()
    dispatcher.turns.set("a", share=0.5, now=0.0)
    dispatcher.look({"a": Activity(False, False, 0.0)}, now=1.0)
    assert dispatcher.may_work("a", now=1.0)
    assert dispatcher.holder is None
    dispatcher.look({"a": Activity(True, False, 0.0)}, now=1.1)
    assert dispatcher.holder == "a"
    dispatcher.turns.set("b", share=0.5, now=1.1)
    assert not dispatcher.may_work("b", now=1.1)
