"""A job that opts in is shown what the companion waits for, and nothing once it has opted out."""

from e2e.harness.jobs import workers
from e2e.harness.kube import Object
from e2e.harness.space import Space
from kfext import names

VALUES = ("observe", "cpu")
"""Of the setting, and the names of the jobs that are given them."""


def resized(space: Space, name: str) -> Object | None:
    """Return the condition `Resized` of a job's TrainingPlan, None without it."""
    conditions = space.view(name).get("conditions", [])
    return next((one for one in conditions if one["type"] == names.RESIZED), None)


def set_resize(space: Space, name: str, value: str) -> None:
    space.patch_job(name, {"metadata": {"annotations": {names.RESIZE: value}}})


def test_an_edit_of_a_running_job_opts_in_and_out(space: Space) -> None:
    space.nodes(1, cpu="32", memory="64Gi")
    for name in VALUES:
        space.submit(workers(name, 2, each={"cpu": "1"}))
    for name in VALUES:
        space.phase(name, "Placed")
        assert resized(space, name) is None

    for name in VALUES:
        set_resize(space, name, name)
    for name in VALUES:
        shown = space.until(lambda: resized(space, name), f"it is shown what is done to {name}")  # noqa: B023
        # Nobody measures what the pods of fake nodes use.
        assert (shown["status"], shown["reason"]) == ("False", names.REASON_TOO_EARLY)

    for name in VALUES:
        set_resize(space, name, "off")
    for name in VALUES:
        space.until(lambda: resized(space, name) is None, f"nothing is shown of {name} any more")  # noqa: B023
