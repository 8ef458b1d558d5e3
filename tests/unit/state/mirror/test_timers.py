"""The next jobs: in queue order, by time, namespace by namespace, and a few at a time."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kfext.core.queue.order import queue_key
from kfext.model.job_state import JobState
from kfext.state.mirror.timers import FairQueue, RoundQueue, RoundRobin, Timers
from kfext.state.mirror.tracked_job import TrackedJob
from tests.builders import job


def tracked(name: str, created: float) -> TrackedJob:
    builder = job(name=name, uid=name).created(created)
    return TrackedJob(builder.raw, builder.build(), None, JobState())


def add(rounds: RoundQueue, *jobs: TrackedJob) -> None:
    for waiting in jobs:
        rounds.add(waiting, queue_key(waiting.job, 0, 0.0))


def pop_names(rounds: RoundQueue, *, most: int) -> list[str]:
    """Pop at most `most` jobs of a round, and return their names."""
    result = (rounds.pop() for _ in range(most))
    return [waiting.job.name for waiting in result if waiting is not None]


@given(ages=st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 3)), again=st.booleans())
def test_jobs_come_once_and_in_order(ages: dict[str, int], again: bool) -> None:
    rounds, want = RoundQueue(), []
    for name, created in ages.items():
        waiting = tracked(name, created)
        want.append((queue_key(waiting.job, 0, 0.0), name))
        add(rounds, *[waiting] * (1 + again))
    assert len(rounds) == len(ages)
    assert pop_names(rounds, most=9) == [name for _, name in sorted(want)]
    assert rounds.is_over
    assert len(rounds) == 0


def test_a_job_that_changes_after_its_turn_waits_for_the_next_round() -> None:
    rounds = RoundQueue()
    first, second = tracked("first", 1), tracked("second", 2)
    add(rounds, second, first)
    assert rounds.pop() is first
    add(rounds, first)
    assert len(rounds) == 2
    assert pop_names(rounds, most=9) == ["second"]
    assert rounds.is_over
    rounds.begin_round()
    assert pop_names(rounds, most=9) == ["first"]


def test_a_job_that_comes_ahead_of_the_others_joins_the_round() -> None:
    rounds = RoundQueue()
    add(rounds, tracked("second", 2), tracked("third", 3))
    assert pop_names(rounds, most=1) == ["second"]
    add(rounds, tracked("first", 1))
    assert pop_names(rounds, most=9) == ["first", "third"]


@given(changes=st.lists(st.sampled_from("abcdefg"), max_size=60))
def test_the_last_job_has_its_turn_in_its_round_whatever_changes(changes: str) -> None:
    rounds = RoundQueue()
    jobs = {name: tracked(name, ord(name)) for name in "abcdefg"}
    add(rounds, *jobs.values(), tracked("last", 999))
    results: list[str] = []
    for name in [*changes, *"abcdefgh"]:
        results += pop_names(rounds, most=1)
        if name in jobs:
            add(rounds, jobs[name])
    assert results.index("last") == len(jobs)


acts = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 50)), max_size=300)


@given(acts=acts, now=st.integers(0, 50))
def test_each_job_has_one_alarm_at_the_last_set_time(
    acts: list[tuple[str, int | None]], now: int
) -> None:
    alarms, want = Timers(), dict[str, int]()
    for uid, at in acts:
        if at is None:
            alarms.forget(uid)
            want.pop(uid, None)
        else:
            alarms.set(uid, at)
            want[uid] = at
    assert {uid for uid in "abc" if uid in alarms} == want.keys()
    assert alarms.next() == min(want.values(), default=float("inf"))
    rung = alarms.due(now)
    assert sorted(rung) == sorted(uid for uid, at in want.items() if at <= now)
    assert [want[uid] for uid in rung] == sorted(want[uid] for uid in rung)
    assert alarms.due(now) == []
    assert not any(uid in alarms for uid in rung)
    assert alarms.next() == min((at for at in want.values() if at > now), default=float("inf"))


def test_alarms_that_are_set_again_and_again_do_not_pile_up() -> None:
    alarms = Timers()
    for at in range(10_000):
        alarms.set("a", at)
    assert len(alarms._heap) < 100
    assert alarms.due(9_998) == []
    assert alarms.due(9_999) == ["a"]


names = st.lists(st.sampled_from("abcd"), max_size=40)


@given(names)
def test_each_job_comes_once_in_the_order_of_its_namespace(namespaces: list[str]) -> None:
    turns = FairQueue()
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
    turns = FairQueue()
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
def test_each_job_has_a_turn_before_any_job_has_a_second_turn(most: int, number: int) -> None:
    turns, jobs = RoundRobin(most), range(number)
    for _ in range(2):
        visited: list[int] = []
        while len(visited) < number:
            visited += turns.some(jobs)
        assert visited == list(jobs)


def test_a_shortened_sequence_is_visited_from_its_start() -> None:
    turns = RoundRobin(3)
    turns.some("abcdef")
    assert turns.some("ab") == "ab"
