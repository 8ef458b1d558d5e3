"""Jobs backfill if their expected end is before another job's reserved start."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kfext import names
from kfext.sim.jobs import JobSpec
from tests.unit.sim.bed import GANG, Bed

RUNS = replace(GANG, name="runs", arrives=100.0, steps=3000)
"""It has two of four cores until about second 1,620, as its log shows."""
HEAD = replace(GANG, name="head", arrives=110.0, workers=4)
"""It waits for all four cores, and has them reserved from second 410 on."""
ENDED = replace(GANG, name="short-1", arrives=1.0, workers=1, steps=30, trains="short")
AGAIN = replace(ENDED, name="short-2", arrives=500.0)
SILENT = replace(RUNS, shows_end=False)


def bed(*jobs: JobSpec) -> Bed:
    return Bed(*jobs, policy=None, late_writes=False, a=4000)


def waits(bed: Bed, spec: JobSpec) -> str:
    """Why a job waits; empty: it has started."""
    tracked = bed.planner.cluster.jobs[spec.uid]
    return "" if tracked.job.started or tracked.verdict is None else tracked.verdict.reason


CANDIDATES: Mapping[str, tuple[JobSpec, JobSpec, str]] = {
    "a job like jobs that ended before it": (RUNS, AGAIN, ""),
    "the same where the end is unknown: it is expected to take as long again": (SILENT, AGAIN, ""),
    "no job of unknown length": (RUNS, replace(AGAIN, trains=""), names.REASON_RESERVED),
    "no job that would end later": (RUNS, replace(AGAIN, arrives=1560.0), names.REASON_RESERVED),
}


@pytest.mark.parametrize(("runs", "comes", "why"), CANDIDATES.values(), ids=CANDIDATES)
def test_jobs_that_may_use_reserved_capacity(runs: JobSpec, comes: JobSpec, why: str) -> None:
    cluster = bed(ENDED, runs, HEAD, comes).at(comes.arrives + 40)
    kept = cluster.planner.queue.reservations.current
    assert kept is not None
    assert kept.job == HEAD.uid
    assert waits(cluster, comes) == why


def test_a_wait_that_lasts_longer_is_offered_again() -> None:
    late = replace(RUNS, steps=500, shows_end=False)
    comes = replace(AGAIN, arrives=420.0)
    of = bed(ENDED, replace(late, trains="late", arrives=20.0, name="late-1"), late, HEAD, comes)
    assert waits(of.at(430), comes) == ""


def test_while_a_job_that_started_meanwhile_is_late_no_other_job_may() -> None:
    liar = replace(AGAIN, steps=4000, shows_end=False)
    third = replace(AGAIN, name="short-3", arrives=900.0)
    cluster = bed(ENDED, RUNS, HEAD, liar, third).at(940)
    assert (waits(cluster, liar), waits(cluster, third)) == ("", names.REASON_RESERVED)
