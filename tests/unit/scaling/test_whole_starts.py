"""An elastic job that could start with fewer workers, and waits because that would take longer."""

from dataclasses import replace

from tests.unit.sim.bed import GANG, LONG, scaled_bed, sizes


def test_jobs_give_workers_for_a_job_for_which_a_start_with_fewer_does_not_pay() -> None:
    rigid = replace(GANG, name="rigid", arrives=6.0, steps=250, deadline=None)
    waiting = replace(LONG, name="waiting", arrives=60.0, workers=2, bounds=(1, 2), steps=200)
    of = scaled_bed(LONG, rigid, waiting, cpu=7000).at(140)
    assert not of.job("rigid").job.finished
    assert sizes(of) == [3]
    assert of.job("waiting").training.workers == 2
