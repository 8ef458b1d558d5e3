"""An executor is made when the first job asks for its kind of change."""

from dataclasses import replace

from kfext import names
from tests.traces import PLAIN
from tests.unit.sim.bed import GANG, LONG, Bed, scaled_bed, sizes

RUNS = replace(PLAIN, steps=10_000)


def test_it_sleeps_among_jobs_without_settings() -> None:
    of = Bed(RUNS, policy=None, a=4000).at(60)
    assert of.job().job.started
    companion = of.planner.companion
    assert companion.executors == {}
    assert (companion.next_look(), companion.news(), companion.failures) == (float("inf"), [], [])


def test_it_wakes_for_a_job_that_opts_in_while_it_runs() -> None:
    of = Bed(RUNS, policy=None, a=4000).at(60)
    of.annotate(names.RESIZE, "cpu")
    of.after(20)
    assert of.planner.companion.executors.keys() == {names.RESIZED}


def test_a_new_controller_gives_back_workers_of_a_job_that_opted_out_meanwhile() -> None:
    of = scaled_bed(LONG, GANG)
    while not sizes(of):
        of.after(1)
    asked = of.job().spec.workers
    of.restart()
    of.annotate(names.ELASTIC, "off")
    of.after(300)
    assert sizes(of)[-1] == asked
