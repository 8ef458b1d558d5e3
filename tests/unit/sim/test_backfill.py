"""Jobs that start around a reservation, by the ends that the progress of other jobs shows."""

from dataclasses import replace

from tests.unit.sim.bed import GANG, Bed


def test_no_job_backfills_beyond_the_end_that_is_expected_by_now() -> None:
    awaited = replace(GANG, name="awaited", arrives=1.0, workers=3, steps=3000)
    holder = replace(GANG, name="holder", workers=4, arrives=10.0)
    late = replace(GANG, name="late", workers=1, arrives=500.0, steps=5000)
    of = Bed(awaited, holder, late, a=4000).at(15)
    of.job("awaited").training.get(0.05)  # slow while it fills its cache
    of.at(330)
    of.job("awaited").training.get(1.0)
    of.at(510)
    of.write("late", "spec", "runPolicy", "activeDeadlineSeconds", value=6000)
    of.at(1370)
    assert of.job("late").training.began is None
    assert of.job("holder").training.began is not None
