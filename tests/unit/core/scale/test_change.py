"""What a change of the size of a job does to the job."""

import pytest

from kfext.core.scale.change import Cause, Change, interrupts, starts_anew
from kfext.model.job import TrainingJob
from tests.unit.core.scale.jobs import dynamic, mirrored, torchrun

IN_PLACE: dict[str, tuple[TrainingJob, bool, bool]] = {
    "torchrun's agents restart all workers in place": (torchrun(), True, False),
    "unless an error of one fails the job": (torchrun(restart="Never"), True, True),
    "or the exit code of one may": (torchrun(restart="ExitCode"), True, True),
    "dynamic workers come and go": (dynamic(), False, False),
    "unless the default policy fails the job": (dynamic(restart=""), True, True),
    "or the exit code may": (dynamic(restart="ExitCode"), True, True),
    "workers that know all others start anew": (mirrored(), True, True),
}


@pytest.mark.parametrize(("of", "loses", "anew"), IN_PLACE.values(), ids=IN_PLACE)
def test_what_a_change_does(of: TrainingJob, *, loses: bool, anew: bool) -> None:
    assert starts_anew(of) is anew
    assert interrupts(of) is loses


@pytest.mark.parametrize(("now", "want"), [(5, True), (4, False), (3, False)])
def test_a_change_to_fewer_is_a_shrink(now: int, *, want: bool) -> None:
    assert Change(Cause.GUARD, 4, "it makes room").is_shrink(now) is want
