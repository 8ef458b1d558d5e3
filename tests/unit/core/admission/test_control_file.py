"""The control file, through which kfext requests checkpoints from a job."""

from typing import Any

import jsonpatch
import pytest
from hypothesis import given

from kfext import names
from kfext.core.admission.control_file import control_file
from kfext.core.admission.new_job import mutate_job
from kfext.core.admission.new_pod import mutate_pod
from kfext.core.admission.review import ReviewContext, ReviewResult
from kfext.model.bounds import MAX_VALUES
from kfext.model.kinds.registered import KINDS
from kfext.model.namespace import Namespace
from kfext.model.policy import TrainingPolicy
from tests.builders import WITH_TEMPLATES
from tests.unit.objects import Raw, job, json_values, pod

ELASTIC = {names.ELASTIC: "2-8"}
MOUNT = {"name": "kfext-control", "mountPath": "/etc/kfext", "readOnly": True}
FIELD = {"fieldPath": "metadata.annotations['kfext.dev/checkpoint-request']"}
ITEM = {"path": "control", "fieldRef": FIELD}
VOLUME = {"name": "kfext-control", "downwardAPI": {"items": [ITEM]}}
DATA, AT_DATA = {"name": "data"}, {"name": "data", "mountPath": "/data"}
TRAINING: dict[str, Raw] = {
    kind: {"containers": [{"name": KINDS[kind].container}]} for kind in KINDS
}
RELEASED = {**ELASTIC, names.RELEASED: "NoRoom"}


def spec(*, volumes: Any = None, **container: Any) -> Raw:
    pod_spec: Raw = {"containers": [{"name": "side"}, {"name": "pytorch", **container}]}
    return pod_spec if volumes is None else {**pod_spec, "volumes": volumes}


def with_mount(path: str) -> Raw:
    return spec(volumeMounts=[{"name": "mine", "mountPath": path}])


def with_file(annotations: Any, pod_spec: Raw) -> Raw:
    changed, operations = control_file(KINDS["PyTorchJob"], {"annotations": annotations}, pod_spec)
    patched: Raw = jsonpatch.apply_patch({"spec": pod_spec}, operations)["spec"]
    assert patched == changed
    return patched


@pytest.mark.parametrize(
    ("pod_spec", "volumes", "mounts"),
    [
        pytest.param(spec(), [VOLUME], [MOUNT], id="no volumes"),
        pytest.param({**spec(volumeMounts=None), "volumes": None}, [VOLUME], [MOUNT], id="null"),
        pytest.param(spec(volumes=[], volumeMounts=[]), [VOLUME], [MOUNT], id="empty lists"),
        pytest.param(
            spec(volumes=[DATA], volumeMounts=[AT_DATA]),
            [DATA, VOLUME],
            [AT_DATA, MOUNT],
            id="existing entries stay and come first",
        ),
    ],
)
def test_the_training_container_of_an_elastic_job_has_the_file(
    pod_spec: Raw, volumes: list[Raw], mounts: list[Raw]
) -> None:
    patched = with_file(ELASTIC, pod_spec)
    assert patched["volumes"] == volumes
    assert patched["containers"][1]["volumeMounts"] == mounts
    assert patched["containers"][0] == {"name": "side"}


OPTED_IN: dict[str, tuple[Any, bool]] = {
    "elastic": (ELASTIC, True),
    "may be moved": ({names.MIGRATE: "checkpointed"}, True),
    "may be stopped": ({names.PREEMPT: "checkpoint"}, True),
    "never stopped": ({names.PREEMPT: "off"}, False),
    "both": ({**ELASTIC, names.MIGRATE: "never"}, True),
    "never moved": ({names.MIGRATE: "never"}, False),
    "only resized": ({names.RESIZE: "cpu"}, False),
    "a malformed range": ({names.ELASTIC: "8-2"}, False),
    "an empty range": ({names.ELASTIC: ""}, False),
    "a range that is too long to be one": ({names.ELASTIC: " " * 5000 + "2-8"}, False),
    "a range that is not a string": ({names.ELASTIC: 3}, False),
    "no annotations": (None, False),
    "annotations that are a string": ("x", False),
}


@pytest.mark.parametrize(("annotations", "want"), OPTED_IN.values(), ids=OPTED_IN)
def test_only_pods_of_jobs_that_may_save_get_the_file(annotations: Any, want: bool) -> None:
    assert (with_file(annotations, spec()) != spec()) is want


LEFT_ALONE: dict[str, Raw] = {
    "no training container": {"containers": [{"name": "main"}]},
    "containers are a string": {"containers": "x"},
    "a container is null": {"containers": [None]},
    "nothing": {},
    "mounts are a string": spec(volumeMounts="x"),
    "volumes are a string": spec(volumes="x"),
    "its own mount at this path": with_mount("/etc/kfext"),
    "its own mount at this path, in another spelling": with_mount("//etc//kfext/"),
    "its own mount of the file": with_mount("/etc/kfext/control"),
    "a mount above it, perhaps read-only": with_mount("/etc"),
    "a mount of the root": with_mount("/"),
    "a mount of the root, in another spelling": with_mount("/data/.."),
    "a volume of the same name": spec(volumes=[{"name": "kfext-control", "emptyDir": {}}]),
    "as many values as a pod may have": spec(volumes=[DATA] * (MAX_VALUES - 1)),
    "kfext's own output": with_file(ELASTIC, spec()),
}


@pytest.mark.parametrize("pod_spec", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_a_pod_that_cannot_get_the_file_is_not_changed(pod_spec: Raw) -> None:
    assert control_file(KINDS["PyTorchJob"], {"annotations": ELASTIC}, pod_spec) == (pod_spec, [])


def test_a_mount_at_a_similar_path_does_not_keep_the_file_out() -> None:
    assert with_file(ELASTIC, with_mount("/etc/kfext-data"))["volumes"] == [VOLUME]


@given(volumes=json_values, mounts=json_values, name=json_values)
def test_any_pod_gets_a_valid_patch_and_a_second_review_none(
    volumes: Any, mounts: Any, name: Any
) -> None:
    given_spec = {
        "volumes": volumes,
        "containers": [{"name": name}, {"name": "pytorch", "volumeMounts": mounts}],
    }
    patched = with_file(ELASTIC, given_spec)
    assert control_file(KINDS["PyTorchJob"], {"annotations": ELASTIC}, patched) == (patched, [])


@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.parametrize("annotations", [ELASTIC, RELEASED], ids=["held", "released"])
def test_the_pod_webhook_adds_the_file_whether_or_not_the_pod_is_gated(
    annotations: Raw, alive: bool
) -> None:
    raw = pod(annotations=annotations)
    patched = jsonpatch.apply_patch(raw, list(mutate_pod(raw, controller_alive=alive).ops))
    assert patched["spec"]["volumes"] == [VOLUME]
    assert patched["spec"]["containers"] == [{"name": "pytorch", "volumeMounts": [MOUNT]}]
    assert mutate_pod(patched, controller_alive=alive).ops == ()


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(
            pod(annotations=ELASTIC, spec={"tolerations": [{}] * 65}), id="beyond a bound"
        ),
        pytest.param(pod(annotations=ELASTIC, ownerReferences=[]), id="a pod of no training job"),
    ],
)
def test_a_pod_beyond_a_bound_or_of_no_job_is_not_changed(raw: Raw) -> None:
    assert mutate_pod(raw, controller_alive=True).ops == ReviewResult().ops


def namespace_with(setting: str, value: str) -> Namespace:
    return Namespace("team", {names.MANAGED: "true"}, {setting: value})


POLICY = TrainingPolicy("team", settings={names.ELASTIC: "1-4"})
SOURCES: dict[str, tuple[Raw, Raw, bool]] = {
    "set by a policy": ({}, {"policies": (POLICY,)}, True),
    "set by the namespace": ({}, {"namespace": namespace_with(names.ELASTIC, "1-4")}, True),
    "set by the namespace, to be moved": (
        {},
        {"namespace": namespace_with(names.MIGRATE, "checkpointed")},
        True,
    ),
    "set by the job, against the policy": ({names.ELASTIC: "off"}, {"policies": (POLICY,)}, False),
    "set nowhere": ({}, {}, False),
}


@pytest.mark.parametrize("kind", WITH_TEMPLATES)
@pytest.mark.parametrize(("annotations", "more", "want"), SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("copied", [False, True], ids=["new", "with copied settings"])
def test_a_setting_adds_the_file_wherever_it_is_written(
    kind: str, annotations: Raw, more: Raw, *, want: bool, copied: bool
) -> None:
    raw = job(kind, annotations=annotations)
    template = next(iter(raw["spec"][KINDS[kind].replica_specs].values()))["template"]
    if copied:
        template["metadata"] = {"annotations": ELASTIC}
    managed = Namespace("team", {names.MANAGED: "true"})
    context = ReviewContext(**{"namespace": managed, "controller_alive": True, **more})
    admitted = jsonpatch.apply_patch(raw, list(mutate_job(raw, context).ops))
    template = next(iter(admitted["spec"][KINDS[kind].replica_specs].values()))["template"]
    patched, operations = control_file(KINDS[kind], template["metadata"], TRAINING[kind])
    assert bool(operations) is want
    assert (patched != TRAINING[kind]) is want
    assert mutate_job(admitted, context).ops == ()
