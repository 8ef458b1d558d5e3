"""A job that opts in is shown what the companion waits for, and nothing once it has opted out."""

from collections.abc import Callable

import pytest

from e2e.harness.jobs import workers
from e2e.harness.kube import Object
from e2e.harness.space import Space
from kfext import names


def resized(space: Space) -> Object | None:
    """Return the condition `Resized` of the job's TrainingPlan, None without it."""
    conditions = space.view("train").get("conditions", [])
    return next((one for one in conditions if one["type"] == names.RESIZED), None)


def set_resize(space: Space, value: str) -> None:
    space.patch_job("train", {"metadata": {"annotations": {names.RESIZE: value}}})


@pytest.mark.parametrize("value", ["observe", "cpu"])
def test_an_edit_of_a_running_job_opts_in_and_out(
    new_space: Callable[..., Space], value: str
) -> None:
    space = new_space()
    space.nodes(1, cpu="32", memory="64Gi")
    space.submit(workers("train", 2, each={"cpu": "1"}))
    space.phase("train", "Placed")
    assert resized(space) is None

    set_resize(space, value)
    shown = space.until(lambda: resized(space), "the TrainingPlan shows what is done")
    # Nobody measures what the pods of fake nodes use.
    assert (shown["status"], shown["reason"]) == ("False", names.REASON_TOO_EARLY)

    set_resize(space, "off")
    space.until(lambda: resized(space) is None, "nothing is shown any more")
