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


@given(ages=st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 3)), again=st.booleans())
def test_jobs_come_once_and_in_order(ages: dict[str, int], again: bool) -> None:
    agenda, want = Agenda(), []
    for name, created in ages.items():
        one = tracked(name, created)
        want.append((turn(one.job, {}), name))
        for _ in range(1 + again):
            agenda.add(one, turn(one.job, {}))
    assert len(agenda) == len(ages)
    assert set(agenda) == ages.keys()
    found = [taken.job.name for _ in ages if (taken := agenda.pop())]
    assert found == [name for _, name in sorted(want)]
    assert agenda.pop() is None


def test_a_job_that_was_taken_can_be_put_on_it_again_ahead_of_the_others() -> None:
    agenda = Agenda()
    first, second = tracked("first", 1), tracked("second", 2)
    for one in (second, first):
        agenda.add(one, turn(one.job, {}))
    assert agenda.pop() is first
    agenda.add(first, turn(first.job, {}))
    assert agenda.pop() is first
    assert agenda.pop() is second
