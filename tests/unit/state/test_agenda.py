from hypothesis import given
from hypothesis import strategies as st

from kfext.core.queue.order import turn
from kfext.model.job_state import JobState
from kfext.state.agenda import Agenda
from kfext.state.tracked_job import TrackedJob
from tests.builders import job


def tracked(name: str, created: float) -> TrackedJob:
    built = job(name=name, uid=name).created(created)
    return TrackedJob(built.raw, built.build(), None, JobState())


def add(agenda: Agenda, *jobs: TrackedJob) -> None:
    for one in jobs:
        agenda.add(one, turn(one.job, {}))


def taken(agenda: Agenda, *, most: int) -> list[str]:
    """The next jobs of a round, at most so many."""
    found = (agenda.pop() for _ in range(most))
    return [one.job.name for one in found if one is not None]


@given(ages=st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 3)), again=st.booleans())
def test_jobs_come_once_and_in_order(ages: dict[str, int], again: bool) -> None:
    agenda, want = Agenda(), []
    for name, created in ages.items():
        one = tracked(name, created)
        want.append((turn(one.job, {}), name))
        add(agenda, *[one] * (1 + again))
    assert len(agenda) == len(ages)
    assert taken(agenda, most=9) == [name for _, name in sorted(want)]
    assert agenda.is_over
    assert len(agenda) == 0


def test_a_job_that_changes_after_its_turn_waits_for_the_next_round() -> None:
    agenda = Agenda()
    first, second = tracked("first", 1), tracked("second", 2)
    add(agenda, second, first)
    assert agenda.pop() is first
    add(agenda, first)
    assert len(agenda) == 2
    assert taken(agenda, most=9) == ["second"]
    assert agenda.is_over
    agenda.begin_round()
    assert taken(agenda, most=9) == ["first"]


def test_a_job_that_comes_ahead_of_the_others_joins_the_round() -> None:
    agenda = Agenda()
    add(agenda, tracked("second", 2), tracked("third", 3))
    assert taken(agenda, most=1) == ["second"]
    add(agenda, tracked("first", 1))
    assert taken(agenda, most=9) == ["first", "third"]


@given(changes=st.lists(st.sampled_from("abcdefg"), max_size=60))
def test_whatever_changes_in_between_the_last_has_its_turn_in_its_round(changes: str) -> None:
    agenda = Agenda()
    jobs = {name: tracked(name, ord(name)) for name in "abcdefg"}
    add(agenda, *jobs.values(), tracked("last", 999))
    found: list[str] = []
    for name in [*changes, *"abcdefgh"]:
        found += taken(agenda, most=1)
        if name in jobs:
            add(agenda, jobs[name])
    assert found.index("last") == len(jobs)
