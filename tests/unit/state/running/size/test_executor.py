"""Which chosen changes of size begin."""

import pytest

from kfext.model.moment import Moment
from kfext.state.running.executor import SCAN_SECONDS
from kfext.state.running.proposal import Cause, Chosen, Rescue, Workers
from kfext.state.running.size.executor import SizeExecutor
from kfext.state.running.size.record import record_of as size_record
from kfext.state.running.size.scale import workers_proposal
from tests.builders import executor_of
from tests.unit.sim.bed import GANG, LONG, scaled_bed


@pytest.mark.parametrize(
    ("donors", "begins"),
    [
        pytest.param(["uid-train"], True, id="all donors are chosen"),
        pytest.param(["uid-train", "uid-other"], False, id="only one of two donors is chosen"),
    ],
)
def test_donors_scale_down_together_or_not_at_all(donors: list[str], *, begins: bool) -> None:
    bed = scaled_bed(LONG, GANG)
    bed.at(60)
    sizes = executor_of(bed.planner, SizeExecutor)
    rescue = Rescue("uid-gang", workers=1, sizes=dict.fromkeys(donors, 2))
    proposal = workers_proposal("uid-train", Workers(Cause.RESCUE, 2, rescue), "a job waits")
    wall, monotonic = bed.driver.moment.wall, bed.driver.moment.monotonic
    later = Moment(wall=wall + SCAN_SECONDS, monotonic=monotonic + SCAN_SECONDS)
    sizes.begin_turn(later)
    sizes.begin(Chosen((proposal,)), later)
    assert (size_record(sizes.jobs["uid-train"]).operation is not None) is begins
