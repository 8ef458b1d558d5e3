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
"""Seconds of a micro-step; a turn ends when a micro-step ends."""


Wants = Callable[[str, float], bool]


def always(_name: str, _now: float) -> bool:
    return True


def holders(shares: dict[str, float], wants: Wants = always, seed: int = 1) -> list[str | None]:
    """Return the holder of the turn in each micro-step; None means that all buckets are empty."""
    turns, rng = Turns(), random.Random(seed)
    for name, share in shares.items():
        turns.set(name, share=share, now=0.0)
    result: list[str | None] = []
    while len(result) * _STEP < _LONG:
        now = len(result) * _STEP
        wanting = [name for name in shares if wants(name, now)]
        holder = turns.next_holder(wanting, now=now)
        if holder is None:
            result.append(None)
            continue
        steps = round(TURN / _STEP) + rng.randint(0, 1)  # the last micro-step may be late
        result += [holder] * steps
        turns.charge(holder, held=steps * _STEP, used=steps * _STEP, now=now + steps * _STEP)
    return result


def in_windows(turns: list[str | None], name: str) -> Sequence[float]:
    """Return the seconds that a sharer held the turn, for each window."""
    size = round(WINDOW / _STEP)
    counts = np.cumsum([0, *(holder == name for holder in turns)])
    return [float(count) * _STEP for count in counts[size:] - counts[:-size]]


PERCENTS = st.lists(st.integers(1, 60), min_size=1, max_size=6).filter(lambda a: sum(a) <= 100)


@settings(max_examples=40, deadline=None)
@given(percents=PERCENTS, data=st.data())
def test_G5_a_busy_sharer_always_has_its_share(percents: list[int], data: st.DataObject) -> None:
    shares = {f"job-{i}": percent / 100 for i, percent in enumerate(percents)}
    # The first always has work; the others have some of the time.
    periods = {name: data.draw(st.floats(0.3, 15)) for name in shares}

    def wants(name: str, now: float) -> bool:
        return name == "job-0" or (now / periods[name]) % 1 < 0.5

    turns = holders(shares, wants)
    assert min(in_windows(turns, "job-0")) >= shares["job-0"] * WINDOW - QUOTA


@settings(max_examples=20, deadline=None)
@given(percents=PERCENTS)
def test_G5_if_all_sharers_always_have_work_each_has_its_share(percents: list[int]) -> None:
    shares = {f"job-{i}": percent / 100 for i, percent in enumerate(percents)}
    turns = holders(shares)
    for name, share in shares.items():
        assert min(in_windows(turns, name)) >= share * WINDOW - QUOTA


def test_unused_time_goes_to_sharers_with_work() -> None:
    turns = holders({"a": 0.2, "b": 0.2}, lambda name, now: name == "a" or now > 20)
    assert None not in turns
    assert in_windows(turns, "a")[0] == pytest.approx(WINDOW)
    assert in_windows(turns, "a")[-1] == pytest.approx(WINDOW / 2, abs=QUOTA)


def test_a_sharer_saves_no_time_while_it_has_no_work() -> None:
    turns = holders({"a": 0.5, "b": 0.5}, lambda name, now: name == "a" or now > 20)
    back = round(20 / _STEP)
    soon = turns[back : back + round(2 / _STEP)]
    assert soon.count("b") * _STEP == pytest.approx(1, abs=QUOTA)


def test_a_sharer_that_overran_a_turn_pays_for_it() -> None:
    turns = Turns()
    for name in ("a", "b"):
        turns.set(name, share=0.5, now=0.0)
    both = ["a", "b"]
    assert turns.next_holder(both, now=0.0) == "a"
    turns.charge("a", held=TURN, used=1.0, now=1.0)
    now, turn_holders = 1.0, []
    while now < 2:
        holder = turns.next_holder(both, now=now)
        assert holder is not None
        turn_holders.append(holder)
        now += TURN
        turns.charge(holder, held=TURN, used=TURN, now=now)
    assert turn_holders.count("b") * TURN >= 1 - QUOTA


def test_time_that_a_turn_has_paid_for_is_not_charged_again_when_it_is_reported() -> None:
    turns = Turns()
    for name in ("a", "b"):
        turns.set(name, share=0.5, now=0.0)
    both, now = ["a", "b"], 6 * TURN
    assert turns.next_holder(both, now=0.0) == "a"
    turns.charge("a", held=TURN, used=0.0, now=TURN)
    turns.charge("a", held=0.0, used=6 * TURN, now=now)  # a long micro-step, begun in the turn
    b_turns = 0
    while turns.next_holder(both, now=now) == "b":
        b_turns, now = b_turns + 1, now + TURN
        turns.charge("b", held=TURN, used=TURN, now=now)
    assert b_turns == 6


def test_a_sharer_that_reports_too_much_use_has_no_turn_until_its_bucket_refills() -> None:
    turns = Turns()
    turns.set("a", share=0.5, now=0.0)
    assert turns.next_holder(["a"], now=0.0) == "a"
    turns.charge("a", held=1.0, used=2.0, now=1.0)
    assert turns.next_holder(["a"], now=1.0) is None
    wait = turns.seconds_to_refill(["a"], now=1.0)
    assert turns.next_holder(["a"], now=1.0 + wait - 0.01) is None
    assert turns.next_holder(["a"], now=1.0 + wait + 0.01) == "a"


_TICK, _INTERVAL = 0.0005, 0.05
"""Seconds between two simulated moments, and the most between two updates of the dispatcher."""


@dataclass(slots=True)
class Sharer:
    """A simulated sharer. `step`: the seconds of a micro-step. `works`: whether it begins any.

    `counts`: the seconds that its page reports for each second of its work. `delay`: the seconds
    until it notices its turn. `work_from`: the time at which it first has work. `worked`: the
    seconds of work in each tick.
    """

    share: float
    step: float = 0.005
    works: bool = True
    counts: float = 1.0
    delay: float = 0.0
    work_from: float = 0.0
    counter: float = 0.0
    begun: int = 0
    worked: list[float] = field(default_factory=list)
    _left: float = 0.0
    _may_since: float | None = None
    _has_work: bool = False

    def tick(self, now: float, *, may: bool) -> None:
        """Work, or wait at the gate; `may`: whether it may begin a micro-step."""
        self._has_work = now >= self.work_from
        self._may_since = (self._may_since or now) if may else None
        awake = self._may_since is not None and now - self._may_since >= self.delay
        if self.waits and self.works and awake:
            self._left, self.begun = self.step, self.begun + 1
        self.worked.append(_TICK if self._left > 0 else 0.0)
        if self._left > 0:
            self._left -= _TICK
            if self._left <= 0:
                self.counter += self.step * self.counts

    @property
    def waits(self) -> bool:
        return self._left <= 0 and self._has_work

    def least(self) -> float:
        """Return the seconds that it worked in the worst of all windows."""
        return min(self._windows())

    def most(self) -> float:
        return max(self._windows())

    def _windows(self) -> list[float]:
        size, sums = round(WINDOW / _TICK), [0.0]
        for seconds in self.worked:
            sums.append(sums[-1] + seconds)
        return [end - begin for begin, end in zip(sums, sums[size:], strict=False)]


def run(sharers: Mapping[str, Sharer]) -> None:
    """Share the card for three windows."""
    dispatcher, growths = Dispatcher(), {}
    for name, sharer in sharers.items():
        dispatcher.turns.set(name, share=sharer.share, now=0.0)
        growths[name] = BoundedGrowth(sharer.counter, now=0.0)
    begun, now, next_update, updated = dict.fromkeys(sharers, 0), 0.0, 0.0, 0.0
    for tick in range(round(_LONG / _TICK)):
        now = tick * _TICK
        if now >= next_update:
            activities = {}
            for name, sharer in sharers.items():
                passed, begun[name] = sharer.begun != begun[name], sharer.begun
                used = growths[name].update(sharer.counter, now=now)
                activities[name] = Activity(sharer.waits or passed, begun=passed, used=used)
            next_update = now + min(_INTERVAL, dispatcher.update(activities, now=now))
            updated = now
        for name, sharer in sharers.items():
            sharer.tick(now, may=dispatcher.may_work(name, now=updated))


def test_G5_each_sharer_has_its_share_of_the_simulated_card() -> None:
    sharers = {"a": Sharer(0.5), "b": Sharer(0.3), "c": Sharer(0.1)}
    run(sharers)
    for sharer in sharers.values():
        assert sharer.least() >= sharer.share * WINDOW - QUOTA


OTHERS = {
    "waits at its gate without end": Sharer(0.5, works=False),
    "never reports its work": Sharer(0.5, counts=0.0),
    "reports negative work": Sharer(0.5, counts=-1000.0),
    "reports far more than it works": Sharer(0.5, counts=10.0**9),
    "has long micro-steps": Sharer(0.5, step=0.4),
    "is slow to begin": Sharer(0.5, delay=UNUSED / 2),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_G5_a_sharer_has_its_share_whatever_the_other_does_or_reports(kind: str) -> None:
    sharers = {"other": OTHERS[kind], "a": Sharer(0.3), "b": Sharer(0.2)}
    run(sharers)
    for name in ("a", "b"):
        assert sharers[name].least() >= sharers[name].share * WINDOW - QUOTA


def test_a_sharer_that_does_nothing_in_its_turns_leaves_most_of_the_time_to_others() -> None:
    sharers = {"other": Sharer(0.5, works=False), "a": Sharer(0.5)}
    run(sharers)
    assert sharers["a"].least() >= TURN / (TURN + UNUSED) * WINDOW - QUOTA


def test_a_sharer_that_overruns_its_turns_gets_no_more_than_its_share() -> None:
    sharers = {"coarse": Sharer(0.5, step=0.4), "a": Sharer(0.5)}
    run(sharers)
    assert sharers["coarse"].most() <= 0.5 * WINDOW + 0.4 + QUOTA
    assert sum(sharers["coarse"].worked) >= 0.5 * _LONG - 0.4 - QUOTA  # and no less


@pytest.mark.parametrize("counts", [0.0, 1.0, 10.0**9])
def test_a_late_sharer_has_its_share_at_once_whatever_another_reports(counts: float) -> None:
    late = Sharer(0.3, work_from=WINDOW)
    run({"other": Sharer(0.2, counts=counts), "a": Sharer(0.5), "late": late})
    del late.worked[: round(WINDOW / _TICK)]
    assert late.least() >= 0.3 * WINDOW - QUOTA


def test_a_sharer_that_is_alone_works_all_the_time_and_owes_nothing_for_it() -> None:
    dispatcher = Dispatcher()
    for name in ("a", "b"):
        dispatcher.turns.set(name, share=0.5, now=0.0)
    works = Activity(wants=True, begun=True, used=_INTERVAL)
    waits = Activity(wants=True, begun=False, used=0.0)
    idle = Activity(wants=False, begun=False, used=0.0)
    updates = 0
    while updates < 200:
        updates += 1
        dispatcher.update({"a": works, "b": idle}, now=updates * _INTERVAL)
        assert dispatcher.holder == "a"
    turn_holders = []
    while updates < 240:
        updates += 1
        activities = {name: works if name == dispatcher.holder else waits for name in "ab"}
        dispatcher.update(activities, now=updates * _INTERVAL)
        turn_holders.append(dispatcher.holder)
    assert turn_holders.count("a") == pytest.approx(20, abs=QUOTA / _INTERVAL)


def test_a_sharer_may_work_at_once_while_no_sharer_wants_a_turn() -> None:
    dispatcher = Dispatcher()
    dispatcher.turns.set("a", share=0.5, now=0.0)
    dispatcher.update({"a": Activity(False, False, 0.0)}, now=1.0)
    assert dispatcher.may_work("a", now=1.0)
    assert dispatcher.holder is None
    dispatcher.update({"a": Activity(True, False, 0.0)}, now=1.1)
    assert dispatcher.holder == "a"
    dispatcher.turns.set("b", share=0.5, now=1.1)
    assert not dispatcher.may_work("b", now=1.1)
