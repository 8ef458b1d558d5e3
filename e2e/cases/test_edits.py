"""Settings of a job that a person edits after the job was accepted."""

from e2e.harness.jobs import gated, workers
from e2e.harness.kube import Object
from e2e.harness.space import Space

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}


def edit(space: Space, value: str) -> None:
    space.patch_job("gang", {"metadata": {"annotations": {"kfext.dev/colocation": value}}})


def spoilt(space: Space) -> list[Object]:
    found = space.view("gang").get("conditions", [])
    return [one for one in found if one["type"] == "SettingsInvalid"]


def test_a_malformed_edit_is_told_and_the_last_good_value_holds_until_it_is_mended(
    space: Space,
) -> None:
    space.nodes(2, cpu="32", memory="64Gi", gpu="2")
    space.submit(workers("gang", 4, each=GPU, annotations={"kfext.dev/colocation": "required"}))
    space.phase("gang", "Queued")
    edit(space, "prefered")
    (condition,) = space.until(lambda: spoilt(space), "the TrainingPlan says so")
    assert condition["status"] == "True"
    assert "annotation kfext.dev/colocation of the job" in condition["message"]
    assert "'prefered'" in condition["message"]
    # Another job goes its whole way: there was time to place this one on two nodes.
    space.submit(workers("other", 1, each=GPU))
    space.phase("other", "Placed")
    view = space.view("gang")
    assert view["phase"] == "Queued"
    assert "colocation is required" in view["message"]
    space.kube.delete(space.path("pytorchjobs", "other"))
    edit(space, "preferred")
    assert len(set(space.bound("gang", 4).values())) == 2
    space.phase("gang", "Placed")
    assert spoilt(space) == []


def test_colocation_switched_off_in_the_queue_lets_the_job_go(space: Space) -> None:
    space.nodes(2, cpu="32", memory="64Gi", gpu="2")
    space.submit(workers("gang", 4, each=GPU, annotations={"kfext.dev/colocation": "required"}))
    space.phase("gang", "Queued")
    edit(space, "off")
    space.phase("gang", "Released")
    space.bound("gang", 4)
    assert not any(gated(pod) for pod in space.pods("gang"))
    assert space.pins() == {}


def test_a_job_that_kfext_never_gated_is_not_shown_as_suspended_once_it_runs_again(
    space: Space,
) -> None:
    space.nodes(2, cpu="32", memory="64Gi", gpu="2")
    space.submit(workers("gang", 4, each=GPU, annotations={"kfext.dev/colocation": "off"}))
    space.bound("gang", 4)
    edit(space, "preferred")
    space.patch_job("gang", {"spec": {"runPolicy": {"suspend": True}}})
    space.phase("gang", "Suspended")
    space.patch_job("gang", {"spec": {"runPolicy": {"suspend": False}}})
    space.phase("gang", "Released")
