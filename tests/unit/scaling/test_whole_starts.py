"""An elastic job that could start with fewer workers, and waits because that would take longer."""

from dataclasses import replace

from tests.unit.sim.bed import GANG, LONG, scaled_bed, sizes

RIGID = replace(GANG, name="rigid", arrives=90.0, workers=5, steps=1500, deadline=None)
WAITING = replace(LONG, name="waiting", arrives=120.0, workers=2, bounds=(1, 2), steps=200)


def test_a_job_gives_back_what_it_grew_by_so_that_another_starts_with_all_workers() -> None:
    grows = replace(LONG, bounds=(4, 6))
    of = scaled_bed(grows, RIGID, WAITING, cpu=11_000).at(119)
    assert sizes(of) == [5]
    of.at(200)
    assert not of.job("rigid").job.finished
    assert sizes(of) == [5, 4]
    assert of.job("waiting").training.workers == 2


def test_no_job_goes_below_its_requested_size_for_that() -> None:
    of = scaled_bed(LONG, RIGID, WAITING, cpu=10_000).at(200)
    assert (sizes(of), of.job("waiting").training.began) == ([], None)
