"""Errors of ours about one job, which touch no other."""

import asyncio

import pytest

from kfext.state.cluster import Cluster
from kfext.state.failures import Failures
from kfext.state.tracked_job import TrackedJob
from tests.builders import job


def tracked() -> TrackedJob:
    cluster = Cluster()
    cluster.observe_job(job().worker(1).raw)
    (found,) = cluster.jobs.values()
    return found


def test_they_are_kept_with_the_job_until_they_are_taken() -> None:
    failures, one, error = Failures(), tracked(), ValueError("a bug")
    with failures.about(one):
        raise error
    with failures.about(one):
        pass
    assert failures.take() == [(one, error)]
    assert failures.take() == []


def test_a_process_that_is_to_end_ends() -> None:
    failures = Failures()
    for ends in (KeyboardInterrupt, asyncio.CancelledError):
        with pytest.raises(ends), failures.about(tracked()):
            raise ends
    assert failures.take() == []
