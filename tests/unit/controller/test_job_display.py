"""What a TrainingPlan shows of a job that was edited."""

from typing import Any

from kfext import names
from kfext.controller.job_display import JobDisplay
from kfext.controller.training_plan import TrainingPlanStatus
from kfext.model.job import TrainingJob
from tests.unit.sharing.stages import placed
from tests.unit.sharing.test_path import World


class FakePlanWriter:
    """Keeps what is to be shown last."""

    def __init__(self) -> None:
        self.status = TrainingPlanStatus()

    def show(self, job: TrainingJob, status: TrainingPlanStatus) -> None:
        self.status = status


def shown(world: World) -> TrainingPlanStatus:
    """What the TrainingPlan of the only job shows now."""
    writer: Any = FakePlanWriter()
    events: Any = None
    (tracked,) = world.planner.cluster.jobs.values()
    JobDisplay(world.planner, writer, events).show(tracked, tracked.phase, tracked.verdict)
    status: TrainingPlanStatus = writer.status
    return status


def edit(world: World, share: str) -> None:
    world.raw["metadata"]["annotations"][names.GPU_SHARE] = share
    world.show()
    while world.step() is not None:
        pass


def test_an_edited_share_is_shown_until_the_job_has_it() -> None:
    world = placed()
    assert shown(world).edited == ""
    edit(world, "0.9")
    assert shown(world).edited.startswith("kfext.dev/gpu-share of worker is 0.5 and was edited to")
    assert shown(world).reason == names.REASON_PLACED
    edit(world, "0.5")
    assert shown(world).edited == ""
