"""Settings on the real API server: a malformed setting is refused with a message, and not stored.

Users may edit the settings of an accepted job, for example to opt in and out of the companion.
"""

from collections.abc import Callable, Iterator

import pytest

from e2e.harness.jobs import gated, suspended, workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.kube import Object
from e2e.harness.space import Space
from kfext import names

# key -> malformed values
MALFORMED = {
    "colocation": ["", "Preffered", "on", "true", "required off", "ünïcode"],
    "network": ["overlay", "hostNetwork", "0"],
    "elastic": ["4", "0-4", "4-2", "2-", "-8", "two-four", "2-4-8", "999999-9999999", "1e1-20"],
    "resize": ["on", "memory", "cpu,memory"],
    "migrate": ["always", "true", "checkpoint"],
    "metrics": [
        "on",
        "stdout:",
        "stdout:loss=([0-9.]+)",
        "stdout:loss=(?P<value>[0-9.+",
        "stdout:(?P<value>" + "x" * 600 + ")",
        "http://somewhere/metrics",
    ],
    "gpu-share": ["0", "1.5", "-0.5", "half", "50%", "1e-1", "NaN"],
    "gpu-memory": ["0", "-8Gi", "lots", "8GiB", "1e3m"],
    "gpu-priority": ["medium", "1"],
    "gpu-loss-budget": ["0", "1"],
    "gpu-min-share": ["1"],
}
GPU = {"nvidia.com/gpu": "1", "cpu": "1"}
VALUES = ("observe", "cpu")
"""Values of the setting resize; the job with a value has the value as its name."""


@pytest.fixture(scope="module")
def shared(installed: Kfext) -> Iterator[Space]:
    """One managed namespace for all refused objects; it must stay empty."""
    installed.ensure()
    space = Space(installed, "settings-shared")
    space.create()
    yield space
    space.clean()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param(key, value, id=f"{key} is {value[:20]!r}")
        for key, values in MALFORMED.items()
        for value in values
    ],
)
def test_a_malformed_annotation_of_a_job_is_refused_with_the_allowed_values(
    shared: Space, key: str, value: str
) -> None:
    name = f"kfext.dev/{key}"
    answer = shared.try_submit(workers("bad", 2, annotations={name: value}))
    assert answer.status == 422
    for words in (f"annotation {name} of the job", value[:20], "allowed:", "e.g."):
        assert words in answer.message
    assert shared.kube.find(shared.path("pytorchjobs", "bad")) is None
    assert shared.pods() == []


def test_a_job_that_cannot_share_gpus_is_refused_with_the_reason(shared: Space) -> None:
    annotations = {"kfext.dev/gpu-share": "0.5"}
    answer = shared.try_submit(workers("bad", 2, annotations=annotations))
    assert answer.status == 422
    assert "kfext.dev/gpu-share: the job has no GPUs" in answer.message
    assert shared.kube.find(shared.path("pytorchjobs", "bad")) is None


def test_all_malformed_settings_are_named_at_once(shared: Space) -> None:
    wrong = {"kfext.dev/colocation": "on", "kfext.dev/elastic": "8-2", "kfext.dev/resize": "on"}
    answer = shared.try_submit(workers("bad", 2, annotations=wrong))
    assert answer.status == 422
    assert all(key in answer.message for key in wrong)
    assert "off, observe, cpu" in answer.message


def test_a_setting_without_effect_is_accepted_with_a_warning(shared: Space) -> None:
    annotations = {"kfext.dev/gpu-priority": "high"}
    answer = shared.try_submit(workers("early", 1, annotations=annotations), query="?dryRun=All")
    assert answer.ok
    (warning,) = (text for text in answer.warnings if "has no effect" in text)
    assert warning.startswith("kfext.dev/gpu-priority ")


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("colocaton", "did you mean kfext.dev/colocation?"),
        ("nothing-like-it", "is unknown and ignored"),
    ],
)
def test_an_unknown_key_is_ignored_with_a_warning(shared: Space, key: str, hint: str) -> None:
    annotations = {f"kfext.dev/{key}": "required"}
    answer = shared.try_submit(workers("odd", 1, annotations=annotations), query="?dryRun=All")
    assert answer.ok
    assert suspended(answer.body)
    assert any(f"kfext.dev/{key}" in warning and hint in warning for warning in answer.warnings)


def test_a_malformed_annotation_of_the_namespace_is_ignored_with_a_warning_on_every_job(
    new_space: Callable[..., Space],
) -> None:
    space = new_space(annotations={"kfext.dev/colocation": "never", "kfext.dev/network": "host"})
    for name in ("one", "two"):
        answer = space.try_submit(workers(name, 2))
        assert answer.ok
        assert any("ignored: annotation kfext.dev/colocation" in text for text in answer.warnings)
        assert suspended(answer.body)
    space.bound("one", 2)
    space.bound("two", 2)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (key, next(v for v in values if v.strip()))
        for key, values in MALFORMED.items()
        if not key.startswith("gpu-")  # a policy does not have these settings
    ],
)
def test_a_malformed_setting_of_a_policy_is_refused_by_the_schema(
    shared: Space, key: str, value: str
) -> None:
    body = {
        "apiVersion": "kfext.dev/v1alpha1",
        "kind": "TrainingPolicy",
        "metadata": {"name": "malformed"},
        "spec": {"settings": {key: value}},
    }
    answer = shared.kube.ask("POST", "/apis/kfext.dev/v1alpha1/trainingpolicies", body)
    assert answer.status == 422
    assert f"spec.settings.{key}" in answer.message


def test_a_queued_job_still_starts_after_a_malformed_edit_of_a_setting(space: Space) -> None:
    space.nodes(1, cpu="32", memory="64Gi", gpu="2")
    space.submit(workers("edited", 4, each={"nvidia.com/gpu": "1"}))
    space.phase("edited", "Queued")
    space.patch_job("edited", {"metadata": {"annotations": {"kfext.dev/colocation": "nonsense"}}})
    space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.bound("edited", 4)
    space.phase("edited", "Placed")


def edit(space: Space, value: str) -> None:
    space.patch_job("gang", {"metadata": {"annotations": {"kfext.dev/colocation": value}}})


def malformed_conditions(space: Space) -> list[Object]:
    conditions = space.view("gang").get("conditions", [])
    return [condition for condition in conditions if condition["type"] == "SettingsInvalid"]


def test_a_malformed_edit_is_reported_and_the_last_valid_value_applies_until_it_is_corrected(
    space: Space,
) -> None:
    space.nodes(2, cpu="32", memory="64Gi", gpu="2")
    space.submit(workers("gang", 4, each=GPU, annotations={"kfext.dev/colocation": "required"}))
    space.phase("gang", "Queued")
    edit(space, "prefered")
    (condition,) = space.until(lambda: malformed_conditions(space), "the TrainingPlan shows it")
    assert condition["status"] == "True"
    assert "annotation kfext.dev/colocation of the job" in condition["message"]
    assert "'prefered'" in condition["message"]
    # kfext had time to place the gang on two nodes, since it places another job.
    space.submit(workers("other", 1, each=GPU))
    space.phase("other", "Placed")
    view = space.view("gang")
    assert view["phase"] == "Queued"
    assert "colocation is required" in view["message"]
    space.kube.delete(space.path("pytorchjobs", "other"))
    edit(space, "preferred")
    assert len(set(space.bound("gang", 4).values())) == 2
    space.phase("gang", "Placed")
    assert malformed_conditions(space) == []


def test_switching_colocation_off_releases_a_queued_job(space: Space) -> None:
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


def resized(space: Space, name: str) -> Object | None:
    """Return the condition Resized of a job's TrainingPlan, or None."""
    conditions = space.view(name).get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == names.RESIZED), None)


def set_resize(space: Space, name: str, value: str) -> None:
    space.patch_job(name, {"metadata": {"annotations": {names.RESIZE: value}}})


def test_an_edit_of_a_running_job_opts_in_and_out_of_resize(space: Space) -> None:
    space.nodes(1, cpu="32", memory="64Gi")
    for name in VALUES:
        space.submit(workers(name, 2, each={"cpu": "1"}))
    for name in VALUES:
        space.phase(name, "Placed")
        assert resized(space, name) is None

    for name in VALUES:
        set_resize(space, name, name)
    for name in VALUES:
        shown = space.until(lambda: resized(space, name), f"{name} shows a condition")  # noqa: B023
        # Nothing measures the usage of pods on fake nodes.
        assert (shown["status"], shown["reason"]) == ("False", names.REASON_TOO_EARLY)

    for name in VALUES:
        set_resize(space, name, "off")
    for name in VALUES:
        space.until(lambda: resized(space, name) is None, f"{name} shows nothing")  # noqa: B023
