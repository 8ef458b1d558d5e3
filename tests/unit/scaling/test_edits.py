"""Numbers of workers that a person sets, before or after kfext has changed them."""

from dataclasses import replace

import pytest

from kfext import names
from kfext.core.lifecycle.steps import SaveState, Suspend
from kfext.sim.jobs import Pace
from kfext.sim.nodes import NodeSize
from tests.builders import node
from tests.unit.scaling.test_faults import followed, until_changed
from tests.unit.sim.bed import ANEW, GANG, LONG, WITHOUT, Bed, scaled_bed, sizes

ENDLESS = replace(LONG, steps=20000)
DISABLED = "set its number of workers to 3, now its requested size"


def scaled_down(*, gang_steps: int) -> Bed:
    """Return a job that has just been scaled down from four workers to two for a gang."""
    return until_changed(scaled_bed(ENDLESS, replace(GANG, steps=gang_steps)))


def edit_without_a_controller(bed: Bed, workers: int) -> Bed:
    """Set the number of workers by hand between two controllers."""
    bed.scale(workers)
    bed.restart()
    return bed.at(bed.clock.now + 20)


@pytest.mark.parametrize("seconds", [1.0, 400.0], ids=["before its pods end", "later"])
def test_an_edit_of_a_size_counts_although_no_controller_ran(seconds: float) -> None:
    bed = scaled_down(gang_steps=2000)
    edit_without_a_controller(bed.at(bed.clock.now + seconds), 3)
    assert DISABLED in followed(bed).tracked.state.scale.disabled


def test_a_job_edited_while_no_controller_ran_is_not_scaled_again() -> None:
    bed = scaled_down(gang_steps=100)
    edit_without_a_controller(bed.at(bed.clock.now + 30), 3)
    bed.at(bed.clock.now + 600)
    assert bed.job("gang").job.finished
    assert (sizes(bed), bed.job().workers) == ([2], 3)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_size_that_a_person_sets_on_a_suspended_job_is_requested(*, restarts: bool) -> None:
    bed = scaled_down(gang_steps=100).at(150)
    bed.suspend()
    bed.at(bed.clock.now + 20)
    bed.scale(3)
    if restarts:
        bed.restart()
    bed.at(bed.clock.now + 20)
    bed.suspend(suspend=False)
    bed.at(bed.clock.now + 60)
    bed.scale(2)
    bed.at(bed.clock.now + 600)
    assert (bed.job("gang").job.finished, bed.job().workers) == (True, 2)
    assert DISABLED in followed(bed).tracked.state.scale.disabled


GROWING = replace(LONG, workers=2, bounds=(1, 6), pace=Pace(0.1, 0.5, 0.05), steps=20000)
"""A job that is no faster with more workers, so kfext would undo its growth after the trial."""


@pytest.mark.parametrize(
    "seconds", [1.0, 60.0, 300.0], ids=["after 1 s", "after 60 s", "after 300 s"]
)
@pytest.mark.parametrize("observed", [True, False], ids=["observed before", "only observed by it"])
def test_growth_that_a_person_has_edited_is_not_undone_by_the_next_controller(
    seconds: float, *, observed: bool
) -> None:
    bed = until_changed(scaled_bed(GROWING, cpu=8000))
    bed.at(bed.clock.now + seconds)
    before = sizes(bed)
    bed.scale(5)
    if observed:
        bed.at(bed.clock.now + 20)
    bed.restart()
    bed.at(bed.clock.now + 900)
    assert (sizes(bed), bed.job().workers) == (before, 5)


REQUIRED = replace(LONG, bounds=(1, 8), steps=20000)
SCALERS = {"a person, once": 1, "an autoscaler, ten times": 10}


@pytest.mark.parametrize("times", SCALERS.values(), ids=SCALERS)
@pytest.mark.parametrize("elastic", ["off", "1-8"])
def test_a_required_job_that_is_scaled_up_continues_to_train_until_there_is_capacity(
    elastic: str, times: int
) -> None:
    bed = Bed(REQUIRED, policy=None, a=4000).at(6)
    bed.annotate(names.COLOCATION, "required")
    bed.annotate(names.ELASTIC, elastic)
    bed.at(60)
    for _ in range(times):
        bed.scale(8)
        bed.at(bed.clock.now + 600 / times)
    assert not any(isinstance(write.step, Suspend) for write in bed.driver.written)
    assert [live.pod.node_name for live in bed.job().pods.values()].count("a") == 4
    bed.planner.cluster.observe_node(node("a", cpu="4"), node("a", cpu="6"))
    bed.kubelets.nodes["a"] = NodeSize(6000)
    bed.at(bed.clock.now + 60)
    assert [live.pod.phase for live in bed.job().pods.values()].count("Running") == 6


def test_an_edit_of_a_job_that_kfext_has_not_changed_disables_nothing() -> None:
    bed = scaled_bed(ENDLESS).at(60)
    edit_without_a_controller(bed, 3)
    assert followed(bed).tracked.state.scale.disabled == ""


def started_short() -> Bed:
    """Return a job that is to start with two of its four workers, beside another job."""
    other, job = replace(GANG, arrives=1.0, steps=8000), replace(ANEW, arrives=60.0, workers=4)
    return scaled_bed(other, replace(job, bounds=(1, 4)), cpu=5000)


def test_an_edit_is_not_recorded_if_the_policy_is_off() -> None:
    bed = started_short().at(115)
    assert bed.job().workers == 2
    bed.planner.settings.observe_policy(WITHOUT)
    bed.at(bed.clock.now + 10)
    bed.driver.written.clear()
    bed.scale(3)
    bed.at(bed.clock.now + 20)
    assert [write.step for write in bed.driver.written if isinstance(write.step, SaveState)] == []


def test_an_edit_while_a_job_has_opted_out_disables_nothing_later() -> None:
    bed = started_short().at(115)
    assert bed.job().workers == 2
    bed.annotate(names.ELASTIC, "off")
    bed.at(bed.clock.now + 10)
    bed.scale(3)
    bed.at(bed.clock.now + 20)
    bed.annotate(names.ELASTIC, "1-4")
    bed.at(bed.clock.now + 10)
    edit_without_a_controller(bed, 2)
    assert followed(bed).tracked.state.scale.disabled == ""
