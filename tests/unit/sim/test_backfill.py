"""Jobs that start around a reservation, by the expected ends of other jobs."""

from dataclasses import replace

from tests.unit.sim.bed import GANG, Bed, refuse


def test_no_job_backfills_beyond_the_presently_expected_end() -> None:
    awaited = replace(GANG, name="awaited", arrives=1.0, workers=3, steps=3000)
    holder = replace(GANG, name="holder", workers=4, arrives=10.0)
    late = replace(GANG, name="late", workers=1, arrives=500.0, steps=5000)
    of = Bed(awaited, holder, late, a=4000).at(15)
    of.job("awaited").training.set_share(0.05)  # slow while it fills its cache
    of.at(330)
    of.job("awaited").training.set_share(1.0)
    of.at(510)
    of.write("late", "spec", "runPolicy", "activeDeadlineSeconds", value=6000)
    of.at(1370)
    assert of.job("late").training.began is None
    assert of.job("holder").training.began is not None


def test_a_start_that_fails_once_does_not_cost_a_job_its_capacity() -> None:
    awaited = replace(GANG, name="awaited", arrives=1.0, workers=4, steps=2000)
    holder = replace(GANG, name="holder", workers=4, arrives=10.0)
    late = replace(GANG, name="late", workers=1, arrives=320.0, steps=5000)
    of = Bed(awaited, holder, late, a=4000).at(330)
    refuse(of, lambda uid, change: uid == "uid-holder" and "suspend" in str(change))
    while of.job("holder").training.began is None:
        of.after(1)
        assert of.clock.now < 1500
    assert any(write.refused for write in of.driver.written)
    assert of.job("late").training.began is None


def test_jobs_may_backfill_in_the_tick_that_makes_the_reservation() -> None:
    awaited = replace(GANG, name="awaited", arrives=1.0, workers=3, steps=3000)
    holder = replace(GANG, name="holder", workers=4, arrives=10.0)
    of = Bed(awaited, holder, a=4000).at(300)
    assert of.planner.queue.reservations.current is None
    of.clock.now = 320.0
    of.planner.cluster.mark("uid-holder")
    of.planner.tick(of.driver.moment)
    kept = of.planner.queue.reservations.current
    assert kept is not None
    assert kept.backfill_until > of.clock.wall
