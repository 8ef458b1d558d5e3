"""Jobs that start around a reservation, by the expected ends of other jobs."""

from dataclasses import replace

from tests.unit.sim.bed import GANG, Bed, refuse


def test_no_job_backfills_beyond_the_presently_expected_end() -> None:
    awaited = replace(GANG, name="awaited", arrives=1.0, workers=3, steps=3000)
    holder = replace(GANG, name="holder", workers=4, arrives=10.0)
    late = replace(GANG, name="late", workers=1, arrives=500.0, steps=5000)
    bed = Bed(awaited, holder, late, a=4000).at(15)
    bed.job("awaited").training.set_share(0.05)  # slow while it fills its cache
    bed.at(330)
    bed.job("awaited").training.set_share(1.0)
    bed.at(510)
    bed.write("late", "spec", "runPolicy", "activeDeadlineSeconds", value=6000)
    bed.at(1370)
    assert bed.job("late").training.began is None
    assert bed.job("holder").training.began is not None


def test_a_start_that_fails_once_does_not_cost_a_job_its_capacity() -> None:
    awaited = replace(GANG, name="awaited", arrives=1.0, workers=4, steps=2000)
    holder = replace(GANG, name="holder", workers=4, arrives=10.0)
    late = replace(GANG, name="late", workers=1, arrives=320.0, steps=5000)
    bed = Bed(awaited, holder, late, a=4000).at(330)
    refuse(bed, lambda uid, change: uid == "uid-holder" and "suspend" in str(change))
    while bed.job("holder").training.began is None:
        bed.after(1)
        assert bed.clock.now < 1500
    assert any(write.refused for write in bed.driver.written)
    assert bed.job("late").training.began is None


def test_jobs_may_backfill_in_the_tick_that_makes_the_reservation() -> None:
    awaited = replace(GANG, name="awaited", arrives=1.0, workers=3, steps=3000)
    holder = replace(GANG, name="holder", workers=4, arrives=10.0)
    bed = Bed(awaited, holder, a=4000).at(300)
    assert bed.planner.queue.reservations.current is None
    bed.clock.now = 320.0
    bed.planner.cluster.mark("uid-holder")
    bed.planner.tick(bed.driver.moment)
    reservation = bed.planner.queue.reservations.current
    assert reservation is not None
    assert reservation.backfill_until > bed.clock.wall
