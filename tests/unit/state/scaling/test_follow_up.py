"""What becomes of a change of size once it is written."""

from dataclasses import dataclass
from typing import cast

import pytest

from kfext.core.companion.scale import Cause, Change, Phase, Sizes
from kfext.core.lifecycle.steps import RestartWorkers
from kfext.core.progress.reported import Progress, Reported
from kfext.model.job_state import JobState
from kfext.model.moment import Moment
from kfext.model.policy import PolicyChoice
from kfext.state.progress import JobsProgress
from kfext.state.scaling.follow_up import FollowUp
from kfext.state.scaling.scaled_job import ScaledJob, scaled
from kfext.state.tracked_job import TrackedJob
from tests.builders import job, pods

ELASTIC = job().worker(6).elastic()


@dataclass
class FakeProgress:
    """What is known of the log of one job: when it stepped and was read, and how it is silent."""

    stepped: float
    read: float
    silence: float

    def reported(self, _: str) -> Reported:
        return Reported(progress=Progress(step=10, at=self.stepped))

    def last_read(self, _: str) -> float:
        return self.read

    def pause(self, _: str) -> float:
        return self.silence


def changed(*, before: int, asked: int, phase: Phase) -> ScaledJob:
    tracked = TrackedJob(ELASTIC.raw, ELASTIC.build(), None, JobState())
    one = scaled(tracked, PolicyChoice(), Sizes(before, 1, 8, asked))
    one.begin(Change(Cause.GROWTH, 6, "there is room"), phase, at=100.0)
    one.sizes = Sizes(6, 1, 8, asked)
    return one


@pytest.mark.parametrize(
    ("before", "asked", "want"),
    [
        pytest.param(2, 4, 4, id="to what was asked for, if it had less"),
        pytest.param(4, 4, 4, id="to what it had, which was asked for"),
        pytest.param(5, 4, 5, id="to what it had, if that was more"),
        pytest.param(2, 6, 2, id="to what it had, if it asked for as many"),
    ],
)
def test_growth_that_does_not_pay_is_taken_back(before: int, asked: int, want: int) -> None:
    one = changed(before=before, asked=asked, phase=Phase.TRIAL)
    one.speeds = {before: 1.0, 6: 1.01}
    follow_up = FollowUp(cast(JobsProgress, FakeProgress(0.0, 0.0, 0.0)))
    change = follow_up.judge(one, Moment(wall=200.0, monotonic=200.0))
    assert change is not None
    assert (change.cause, change.workers) == (Cause.TAKE_BACK, want)


@pytest.mark.parametrize(
    ("silence", "replaced"),
    [
        pytest.param(5.0, True, id="that was never silent for so long"),
        pytest.param(0.0, False, id="of which it is not known how seldom it prints"),
    ],
)
def test_the_workers_are_replaced_of_a_job_without_a_step(
    silence: float, *, replaced: bool
) -> None:
    one = changed(before=4, asked=4, phase=Phase.STEPPING)
    running = tuple(pods(ELASTIC.build(), bound="a", phase="Running"))
    follow_up = FollowUp(cast(JobsProgress, FakeProgress(90.0, 230.0, silence)))
    found = follow_up.step(one, running, Moment(wall=240.0, monotonic=240.0))
    assert isinstance(found, RestartWorkers) is replaced
    assert one.change is not None
