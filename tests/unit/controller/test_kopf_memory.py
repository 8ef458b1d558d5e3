"""What kopf brings is taken in, and nothing large of it stays with kopf."""

from typing import Any, cast

from kfext.controller.training_plan_writer import TrainingPlanWriter
from kfext.controller.watches import operator_settings, registry
from kfext.kube.client import Client
from kfext.state.planner import Planner
from tests.builders import Raw, job


async def _login(**_: Any) -> None:
    """Log in nowhere."""


async def take(planner: Planner, event: Raw) -> None:
    writer = TrainingPlanWriter(client=cast(Client, None))
    handlers: Any = registry(planner=planner, plan_writer=writer, login=_login)
    on_job = handlers._watching._handlers[0].fn
    await on_job(event=event)


async def test_a_job_is_taken_in_and_its_spec_goes_from_the_event() -> None:
    planner = Planner()
    event: Raw = {"type": None, "object": job().worker(3, cpu="1").held().raw}
    await take(planner, event)
    assert planner.cluster.jobs["uid-1"].job.pods == 3
    assert "spec" not in event["object"]


async def test_a_deleted_job_is_forgotten() -> None:
    planner = Planner()
    await take(planner, {"type": "ADDED", "object": job().worker(3).raw})
    await take(planner, {"type": "DELETED", "object": job().worker(3).raw})
    assert planner.cluster.jobs == {}


def test_a_page_of_the_largest_jobs_fits_into_the_memory_of_the_controller() -> None:
    assert (operator_settings().watching.chunk_size or 0) * 40 <= 200, "of 512 MiB"
