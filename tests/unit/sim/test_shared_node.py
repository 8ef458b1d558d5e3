"""Jobs that share a node of one CPU: resize shortens the mean job, and no job pays for it."""

import pytest

from kfext.sim.arms import ARMS, GANG
from kfext.sim.compare import compare
from kfext.sim.worlds import WORLDS

ONLY_RESIZE = {"resize": ARMS["only-resize"]}


@pytest.mark.parametrize(("world", "sooner"), [("node-3", 0.10), ("node-10", 0.27)])
def test_the_mean_job_ends_sooner_and_none_later(world: str, sooner: float) -> None:
    """Fair sojourn promises that no job ends later if its length is known from its start.

    Lengths are known some seconds late, and the favourite changes with the looks of the companion.
    """
    (found,) = compare(WORLDS[world], ONLY_RESIZE, range(5), against=GANG)
    assert found.unended == 0
    assert found.against < -sooner
    assert found.worst < 1.02
