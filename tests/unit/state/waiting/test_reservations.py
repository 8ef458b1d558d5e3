"""Jobs backfill if their expected end is before another job's reserved start."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kfext import names
from kfext.sim.jobs import JobSpec
from tests.unit.sim.bed import GANG, Bed

RUNS = replace(GANG, name="runs", arrives=100.0, steps=3000)
"""It uses two of the four cores until about second 1,620, as its log shows."""
HEAD = replace(GANG, name="head", arrives=110.0, workers=4)
"""It waits for all four cores, which are reserved for it from second 410 on."""
ENDED = replace(GANG, name="short-1", arrives=1.0, workers=1, steps=30, trains="short")
AGAIN = replace(ENDED, name="short-2", arrives=500.0)
SILENT = replace(RUNS, shows_end=False)


def bed(*jobs: JobSpec) -> Bed:
    return Bed(*jobs, policy=None, late_writes=False, a=4000)


def waits(bed: Bed, spec: JobSpec) -> str:
    """Return the reason why a job waits; it is empty once the job has started."""
    tracked = bed.planner.cluster.jobs[spec.uid]
    return "" if tracked.job.started or tracked.verdict is None else tracked.verdict.reason


CANDIDATES: Mapping[str, tuple[JobSpec, JobSpec, str]] = {
    "a job like jobs that ended before it": (RUNS, AGAIN, ""),
    "the same job beside a running job with an unknown end": (SILENT, AGAIN, ""),
    "no job of unknown length": (RUNS, replace(AGAIN, trains=""), names.REASON_RESERVED),
    "no job that would end later": (RUNS, replace(AGAIN, arrives=1560.0), names.REASON_RESERVED),
}


@pytest.mark.parametrize(("runs", "young", "why"), CANDIDATES.values(), ids=CANDIDATES)
def test_jobs_that_may_use_reserved_capacity(runs: JobSpec, young: JobSpec, why: str) -> None:
    cluster = bed(ENDED, runs, HEAD, young).at(young.arrives + 40)
    reservation = cluster.planner.queue.reservations.current
    assert reservation is not None
    assert reservation.job == HEAD.uid
    assert waits(cluster, young) == why


def test_a_job_that_may_backfill_starts_once_the_expected_wait_gets_longer() -> None:
    late = replace(RUNS, steps=500, shows_end=False)
    young = replace(AGAIN, arrives=420.0)
    cluster = bed(
        ENDED, replace(late, trains="late", arrives=20.0, name="late-1"), late, HEAD, young
    )
    assert waits(cluster.at(430), young) == ""


def test_no_job_backfills_while_a_job_that_backfilled_is_late() -> None:
    backfill = replace(AGAIN, steps=4000, shows_end=False)
    third = replace(AGAIN, name="short-3", arrives=900.0)
    cluster = bed(ENDED, RUNS, HEAD, backfill, third).at(940)
    assert (waits(cluster, backfill), waits(cluster, third)) == ("", names.REASON_RESERVED)
