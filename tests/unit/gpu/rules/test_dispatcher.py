"""Turns in virtual time, for sharers that work, that do nothing, and that lie in their pages."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from kfext.gpu.rules.dispatcher import UNUSED, Activity, Dispatcher
from kfext.gpu.rules.tally import WINDOW, Tally
from kfext.gpu.rules.turns import QUOTA, TURN

_TICK = 0.0005
_LOOK = 0.05
_LONG = 3 * WINDOW


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
    dispatcher, tallies = Dispatcher(), {}
    for name, sharer in sharers.items():
        dispatcher.turns.set(name, share=sharer.share, now=0.0)
        tallies[name] = Tally(sharer.counter, now=0.0)
    begun, now, looks, looked = dict.fromkeys(sharers, 0), 0.0, 0.0, 0.0
    for tick in range(round(_LONG / _TICK)):
        now = tick * _TICK
        if now >= looks:
            seen = {}
            for name, sharer in sharers.items():
                moved, begun[name] = sharer.begun != begun[name], sharer.begun
                used = tallies[name].grown(sharer.counter, now=now)
                seen[name] = Activity(wants=sharer.asks or moved, begun=moved, used=used)
            looks, looked = now + min(_LOOK, dispatcher.look(seen, now=now)), now
        for name, sharer in sharers.items():
            sharer.go_on(now, may=dispatcher.may_work(name, now=looked))


def test_G5_each_has_its_share() -> None:
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
def test_G5_whatever_another_does_or_says_a_sharer_gets_its_share(kind: str) -> None:
    sharers = {"other": OTHERS[kind], "a": Sharer(0.3), "b": Sharer(0.2)}
    run(sharers)
    for name in ("a", "b"):
        assert sharers[name].least() >= sharers[name].share * WINDOW - QUOTA


def test_a_sharer_that_does_nothing_in_its_turns_leaves_most_of_them_to_others() -> None:
    sharers = {"other": Sharer(0.5, works=False), "a": Sharer(0.5)}
    run(sharers)
    assert sharers["a"].least() >= TURN / (TURN + UNUSED) * WINDOW - QUOTA


def test_who_overruns_its_turns_gets_no_more_than_its_share() -> None:
    sharers = {"coarse": Sharer(0.5, step=0.4), "a": Sharer(0.5)}
    run(sharers)
    assert sharers["coarse"].most() <= 0.5 * WINDOW + 0.4 + QUOTA
    assert sum(sharers["coarse"].had) >= 0.5 * _LONG - 0.4 - QUOTA  # and no less


@pytest.mark.parametrize("counts", [0.0, 1.0, 10.0**9])
def test_who_comes_late_has_its_share_at_once_whatever_another_page_says(counts: float) -> None:
    late = Sharer(0.3, comes=WINDOW)
    run({"other": Sharer(0.2, counts=counts), "a": Sharer(0.5), "late": late})
    del late.had[: round(WINDOW / _TICK)]
    assert late.least() >= 0.3 * WINDOW - QUOTA


def test_who_is_alone_works_all_the_time_and_owes_nothing_for_it() -> None:
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


def test_nobody_waits_for_a_turn_while_none_is_wanted() -> None:
    dispatcher = Dispatcher()
    dispatcher.turns.set("a", share=0.5, now=0.0)
    dispatcher.look({"a": Activity(False, False, 0.0)}, now=1.0)
    assert dispatcher.may_work("a", now=1.0)
    assert dispatcher.holder is None
    dispatcher.look({"a": Activity(True, False, 0.0)}, now=1.1)
    assert dispatcher.holder == "a"
    dispatcher.turns.set("b", share=0.5, now=1.1)
    assert not dispatcher.may_work("b", now=1.1)
