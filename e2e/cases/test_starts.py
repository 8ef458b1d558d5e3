"""The expected start that the TrainingPlan of a waiting job shows."""

from typing import Any

from e2e.harness.jobs import workers
from e2e.harness.kube import Object
from e2e.harness.space import Space
from kfext.model.timestamps import timestamp
from kfext.state.forecast.forecaster import EVERY

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}


def expected(space: Space, job: str, field: str) -> Object:
    """Wait until the expected start of a queued job has a field; return the expected start."""

    def shown() -> Any:
        start = space.view(job).get("expectedStart") or {}
        return start if field in start else None

    start: Object = space.patiently(shown, seconds=3 * EVERY)  # a forecast may just have ended
    return start


def run_job(space: Space, **policy: object) -> None:
    """Place a job that fills the only node. `policy`: fields of its runPolicy."""
    job = workers("runs", 4, each=GPU)
    job["spec"].setdefault("runPolicy", {}).update(policy)
    space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.submit(job)
    space.phase("runs", "Placed")


def test_a_waiting_job_shows_when_it_should_start_until_it_starts(space: Space) -> None:
    run_job(space, activeDeadlineSeconds=1200)
    space.submit(workers("waits", 4, each=GPU))
    shown = expected(space, "waits", "time")
    earliest, time, latest = (timestamp(shown[key]) for key in ("earliest", "time", "latest"))
    assert earliest <= time <= latest
    assert shown["summary"].endswith(" UTC")
    assert "PyTorchJob" in shown["after"]
    space.kube.delete(space.path("pytorchjobs", "runs"))
    space.phase("waits", "Placed")
    space.until(lambda: "expectedStart" not in space.view("waits"), "its start is no longer shown")


def test_a_start_that_depends_on_a_job_of_unknown_duration_is_unknown(space: Space) -> None:
    run_job(space)
    space.submit(workers("waits", 4, each=GPU))
    shown = expected(space, "waits", "unknown")
    assert shown["unknown"] == f"the duration of PyTorchJob {space.name}/runs is unknown"
    assert "time" not in shown
