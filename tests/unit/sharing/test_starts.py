"""Expected starts of jobs on shared GPUs, and their nodes after a failed start."""

import pytest

from kfext.core.lifecycle.steps import Replan
from kfext.core.progress.reported import Progress, Reported
from kfext.state.forecast.forecaster import Forecaster
from tests.builders import JobBuilder, job, moment
from tests.gpu_builders import plain_node, sharing, slot
from tests.unit.sharing.stages import placed, remove, show_newer_version
from tests.unit.sharing.test_queue import arrives, starts

WAITS: dict[str, tuple[JobBuilder, float | None, str]] = {
    # the waiting job -> the seconds until it should start, or why its start is unknown
    "for both GPUs of the node": (job().worker(1, gpus=2), 600.0, ""),
    "for an edited priority": (sharing("0.9", replicas=2), None, "it does not wait for capacity"),
}


@pytest.mark.parametrize(("builder", "seconds", "unknown"), WAITS.values(), ids=WAITS)
def test_a_job_should_start_when_a_shared_gpu_is_freed(
    builder: JobBuilder, seconds: float | None, unknown: str
) -> None:
    world = placed()
    shown = Reported(Progress(step=1, remaining=600.0, at=world.now))
    world.planner.progress.adopt({"uid-1": shown})
    arrives(world, "head", builder)
    assert starts(world) == set()
    forecaster = Forecaster(world.planner)
    list(forecaster.forecast(world.moment))
    result = forecaster.expected("head")
    assert result is not None
    assert (result.time and result.time - world.now, result.unknown) == (seconds, unknown)


def test_a_job_that_shares_a_gpu_leaves_a_node_that_failed_its_start() -> None:
    world = placed()
    world.planner.cluster.observe_node(None, plain_node("m", cards=2))
    world.planner.cluster.observe_card(None, slot("m"))
    world.pods["pod-0"]["metadata"]["creationTimestamp"] = moment(world.now)
    world.pods["pod-0"]["status"] = {"phase": "Failed"}
    show_newer_version(world)
    assert world.step() is None
    remove(world)
    world.create()
    step = world.step()
    assert isinstance(step, Replan)
    assert set(step.plan.nodes) == {"m"}
