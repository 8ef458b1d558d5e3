"""With how many workers an elastic job starts."""

from collections.abc import Mapping
from typing import Any

import pytest

from kfext.core.elastic import fewest_workers, workers_of
from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.situation import Allowance, Around, Situation
from kfext.core.lifecycle.steps import Start, Wait
from kfext.core.patches import job as job_patch
from kfext.core.settings.values import Range
from kfext.model.job import TrainingJob, parse_job
from kfext.model.quota import parse_quota
from kfext.model.state import JobState, decode_state
from kfext.names import STATE
from tests.builders import JobBuilder, job, ledger, node
from tests.unit.core.patches.test_job import applied


def torch(workers: int, *, fewest: int | None = None) -> JobBuilder:
    """A PyTorchJob that torchrun runs with any number of workers."""
    made = job().worker(workers, cpu="1").held()
    made.raw["spec"]["elasticPolicy"] = {"minReplicas": fewest} if fewest else {}
    return made


def dynamic(workers: int) -> JobBuilder:
    made = job("TFJob").ps(1, cpu="1").group("Chief", 1, cpu="1").worker(workers, cpu="1").held()
    made.raw["spec"]["enableDynamicWorker"] = True
    return made


FEWEST: Mapping[str, tuple[JobBuilder, Range | None, int]] = {
    "the minimum of the setting": (torch(8), Range(3, 8), 3),
    "at least what the job itself needs": (torch(8, fewest=5), Range(3, 8), 5),
    "a chief counts as one of the training pods, a PS does not": (dynamic(6), Range(3, 8), 2),
    "one worker at least": (dynamic(6), Range(1, 8), 1),
    "never more than it asked for": (torch(2), Range(4, 8), 2),
    "all without the setting": (torch(8), None, 8),
    "all of a job that cannot run with fewer": (job().worker(8).held(), Range(3, 8), 8),
    "all of a job with a Master, which fixes the ranks": (torch(8).master(), Range(3, 9), 8),
}


@pytest.mark.parametrize(("of", "allowed", "want"), FEWEST.values(), ids=FEWEST.keys())
def test_the_fewest_workers(of: JobBuilder, allowed: Range | None, want: int) -> None:
    assert fewest_workers(of.build(), allowed) == want


def situation(of: TrainingJob, allowed: Range | None, **more: Any) -> Situation:
    return Situation(of, (), None, JobState(), 1000.0, elastic=allowed, **more)


STARTS: Mapping[str, tuple[int, Range | None, int]] = {
    "all workers if they fit": (8, Range(2, 8), 8),
    "the most that fits": (5, Range(2, 8), 5),
    "its minimum": (2, Range(2, 8), 2),
    "not at all below its minimum": (1, Range(2, 8), 0),
    "not at all without the setting": (5, None, 0),
}


@pytest.mark.parametrize(("cpus", "allowed", "want"), STARTS.values(), ids=STARTS.keys())
def test_an_elastic_job_starts_with(cpus: int, allowed: Range | None, want: int) -> None:
    step = next_step(situation(torch(8).build(), allowed), ledger(node("a", cpu=str(cpus))))
    if want:
        assert isinstance(step, Start)
        assert len(step.plan.assignment) == want
        assert ("fewer than asked for" in step.verdict.message) is (want < 8)
    else:
        assert isinstance(step, Wait)


def start(made: JobBuilder, *, cpus: int) -> dict[str, Any]:
    step = next_step(situation(made.build(), Range(2, 8)), ledger(node("a", cpu=str(cpus))))
    assert isinstance(step, Start)
    return applied(job_patch.start_patch(made.raw, made.build(), step.plan), made.raw)


def test_a_job_that_starts_short_is_made_so_small_and_remembered_as_short() -> None:
    raw = start(torch(8), cpus=5)
    started = parse_job(raw)
    assert started is not None
    assert (started.suspend, workers_of(started)) == (False, 5)
    assert decode_state(raw["metadata"]["annotations"][STATE]).asked == 8


def test_a_job_that_starts_whole_is_not_short() -> None:
    raw = start(torch(8), cpus=8)
    assert STATE not in raw["metadata"]["annotations"]


def test_a_short_job_that_is_stopped_asks_for_all_of_its_workers_again() -> None:
    raw = start(torch(8), cpus=5)
    started = parse_job(raw)
    assert started is not None
    state = decode_state(raw["metadata"]["annotations"][STATE])
    stopped = applied(job_patch.stop_patch(raw, started, state), raw)
    found = parse_job(stopped)
    assert found is not None
    assert (found.suspend, workers_of(found)) == (True, 8)
    assert decode_state(stopped["metadata"]["annotations"][STATE]).asked == 0


def test_a_quota_that_does_not_hold_all_workers_makes_an_elastic_job_start_short() -> None:
    quota = parse_quota(
        {
            "metadata": {"namespace": "team", "name": "q"},
            "status": {"hard": {"pods": "5"}, "used": {"pods": "1"}},
        }
    )
    around = Around(allowance=Allowance(quotas=(quota,)))
    room = ledger(node("a", cpu="8"))
    step = next_step(situation(torch(8).build(), Range(2, 8), around=around), room)
    assert isinstance(step, Start)
    assert len(step.plan.assignment) == 4
    rigid = next_step(situation(torch(8).build(), None, around=around), room)
    assert isinstance(rigid, Wait)


def test_a_person_who_resizes_a_short_job_is_not_overruled_when_it_stops() -> None:
    raw = start(torch(8), cpus=5)
    raw["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 3
    edited = parse_job(raw)
    assert edited is not None
    state = decode_state(raw["metadata"]["annotations"][STATE])
    stopped = applied(job_patch.stop_patch(raw, edited, state), raw)
    assert stopped["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 3
