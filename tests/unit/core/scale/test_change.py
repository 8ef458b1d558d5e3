"""How the size of a job can be changed."""

import pytest

from kfext.core.scale.change import Cause, Change, can_scale, interrupts, starts_anew
from kfext.model.job import TrainingJob
from tests.builders import job
from tests.unit.core.scale.jobs import dynamic, fixed, led, mirrored, torchrun

SCALED: dict[str, TrainingJob] = {
    "torchrun's agents": torchrun(),
    "a TFJob with dynamic workers": dynamic(),
    "a TFJob without": mirrored(),
}
NOT_SCALED: dict[str, tuple[TrainingJob, str]] = {
    "a PyTorchJob without elasticPolicy": (fixed(), "set an elasticPolicy"),
    "one with a Master": (led(), "Master"),
    "one that allows a single number of workers": (
        job().worker(4).elastic(minReplicas=4).build(),
        "maxReplicas",
    ),
}


@pytest.mark.parametrize("of", SCALED.values(), ids=SCALED)
def test_D6_jobs_that_can_be_scaled(of: TrainingJob) -> None:
    assert can_scale(of) == ""


@pytest.mark.parametrize(("of", "why"), NOT_SCALED.values(), ids=NOT_SCALED)
def test_D6_jobs_that_are_not_elastic_cannot(of: TrainingJob, why: str) -> None:
    assert why in can_scale(of)


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
