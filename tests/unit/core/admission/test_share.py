"""Which jobs that ask for parts of GPUs are refused, and what becomes of the others."""

from dataclasses import replace
from typing import Any

import jsonpatch
import pytest

from kfext import names
from kfext.core.admission.facts import Facts
from kfext.core.admission.job import mutate_job
from kfext.core.settings.table import OF_A_JOB
from kfext.model.bounds import MOST_PODS
from tests.setting_samples import MALFORMED
from tests.unit.objects import Raw, job, replica

FACTS = Facts(namespace_labels={names.MANAGED: "true"}, controller_alive=True)
SHARE = {names.GPU_SHARE: "0.5"}
HIGH = {**SHARE, names.GPU_PRIORITY: "high"}
PART: Raw = {"name": "side", "resources": {"limits": {"kfext.dev/gpu-1": "50"}}}
CARDS = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}


def limited(gpus: int, **container: Any) -> Raw:
    """A container with a limit of GPUs."""
    limits = {"limits": {names.NATIVE_GPU: gpus}}
    return {"name": "pytorch", "image": "trainer", "resources": limits, **container}


def amounts(**stated: Any) -> Raw:
    """A container that states limits and requests of GPUs by themselves."""
    resources = {kind: {names.NATIVE_GPU: number} for kind, number in stated.items()}
    return {"name": "pytorch", "resources": resources}


def asking(gpus: int = 1, replicas: int = 1, **pod: Any) -> Raw:
    """A replica type whose container asks for GPUs."""
    return replica(replicas, **{"containers": [limited(gpus)], **pod})


def asked(annotations: Raw, *, kind: str = "PyTorchJob", **more: Any) -> Raw:
    """A job with these annotations: of one worker with a GPU, unless `specs` are given."""
    return job(kind, annotations=annotations, **{"specs": {"Worker": asking()}, **more})


def workers(annotations: Raw, **pod: Any) -> Raw:
    return asked(annotations, specs={"Worker": asking(**pod)})


def managed_by_another() -> Raw:
    return asked(SHARE, run_policy={"managedBy": "kueue.x-k8s.io/multikueue"})


REFUSED: dict[str, tuple[Raw, str]] = {
    "Kueue starts it": (asked(SHARE, labels={names.KUEUE_QUEUE: "q"}), names.KUEUE_QUEUE),
    "its number of replicas may change": (asked({**HIGH, names.ELASTIC: "1-2"}), names.ELASTIC),
    "it states that it has no GPU": (workers(SHARE, gpus=0), "the job has no GPUs"),
    "only types that keep whole GPUs": (
        asked(HIGH, specs={"Master": asking(2), "Worker": asking(3)}),
        "asks for nvidia.com/gpu: 2",
    ),
    "no type has a GPU": (asked(SHARE, specs={"Worker": replica(1)}), "the job has no GPUs"),
    "the only type with a GPU has no replicas": (
        asked(SHARE, specs={"Master": replica(1), "Worker": asking(replicas=0)}),
        "the job has no GPUs",
    ),
    "a replica has two GPUs": (workers(SHARE, gpus=2), "asks for nvidia.com/gpu: 2"),
    "two containers have a GPU each": (
        workers(SHARE, containers=[limited(1), limited(1, name="side")]),
        "asks for nvidia.com/gpu in 2 containers; allowed: ",
    ),
    "a replica has half of a GPU": (
        workers(SHARE, containers=[amounts(limits="500m")]),
        "asks for nvidia.com/gpu: 500m in limits and none in requests; allowed: ",
    ),
    "its request is not its limit": (
        workers(SHARE, containers=[amounts(limits=2, requests=1)]),
        "asks for nvidia.com/gpu: 2 in limits and 1 in requests; allowed: ",
    ),
    "it has no limit": (
        workers(SHARE, containers=[amounts(requests=1)]),
        "asks for nvidia.com/gpu: none in limits and 1 in requests; allowed: ",
    ),
    "the pod itself has the GPU": (
        workers(SHARE, containers=[{"name": "pytorch"}], resources=amounts(limits=1)["resources"]),
        "asks for nvidia.com/gpu at the level of the pod; allowed: ",
    ),
    "it asks for a part by its name": (
        workers(SHARE, containers=[limited(1), PART]),
        "asks for kfext.dev/gpu-1 itself",
    ),
    "an init container has the GPU": (
        workers(SHARE, initContainers=[limited(1, name="first")]),
        "init container",
    ),
    "it claims devices by DRA": (
        workers(SHARE, resourceClaims=[{"name": "card", "resourceClaimName": "card"}]),
        "has resourceClaims",
    ),
    "it says itself which GPUs it sees": (
        workers(SHARE, containers=[limited(1, env=[CARDS])]),
        "NVIDIA_VISIBLE_DEVICES",
    ),
    "its template names the node": (workers(SHARE, nodeName="n"), "names its node (nodeName: 'n')"),
    "a low job of several ranks": (workers(SHARE, replicas=2), "a job of 2 pods cannot"),
    "a low job whose other rank has no GPU": (
        asked(SHARE, specs={"Master": replica(1), "Worker": asking()}),
        "a job of 2 pods cannot",
    ),
    "a low TFJob": (asked(SHARE, kind="TFJob"), "a TFJob cannot"),
    "another system runs it": (managed_by_another(), "runPolicy.managedBy"),
    "another scheduler places it": (workers(HIGH, schedulerName="volcano"), "scheduler volcano"),
    "it has more pods than kfext places": (workers(HIGH, replicas=MOST_PODS + 1), "10001 pods"),
    "its template is beyond a bound": (workers(HIGH, tolerations=[{}] * 65), "65 tolerations"),
}


@pytest.mark.parametrize(("raw", "why"), REFUSED.values(), ids=REFUSED)
def test_a_job_that_cannot_share_gpus_is_refused(raw: Raw, why: str) -> None:
    mutation = mutate_job(raw, FACTS)
    assert mutation.refusal.startswith(f"{names.GPU_SHARE}: ")
    assert why in mutation.refusal
    assert mutation.ops == ()
    assert [one.reason for one in mutation.verdicts] == [names.REASON_SHARE_REFUSED]


def test_a_job_that_names_its_node_is_told_what_is_allowed_instead() -> None:
    refusal = mutate_job(workers(SHARE, nodeName="n"), FACTS).refusal
    for part in ("Worker template", "nodeName: 'n'", "allowed: ", "e.g. nodeSelector"):
        assert part in refusal


OFF = replace(FACTS, namespace_annotations={names.COLOCATION: "off"})
ALONE = replace(FACTS, controller_alive=False)
ALLOWED: dict[str, tuple[Raw, Facts]] = {
    "a low job of one rank": (asked(SHARE), FACTS),
    "a high job of several ranks": (workers(HIGH, replicas=3), FACTS),
    "a high TFJob": (asked(HIGH, kind="TFJob"), FACTS),
    "a parameter server without GPUs beside it": (
        asked(HIGH, kind="TFJob", specs={"PS": replica(1), "Worker": asking(replicas=2)}),
        FACTS,
    ),
    "one that states that it has none": (
        asked(HIGH, kind="TFJob", specs={"PS": asking(0), "Worker": asking(replicas=2)}),
        FACTS,
    ),
    "another type has whole GPUs": (
        asked(HIGH, specs={"Master": asking(2), "Worker": asking()}),
        FACTS,
    ),
    "one GPU that is written in another way": (
        workers(SHARE, containers=[amounts(limits="1000m", requests=1.0)]),
        FACTS,
    ),
    "an init container that asks for none": (
        workers(SHARE, initContainers=[limited(0, name="first")]),
        FACTS,
    ),
    "a container without a GPU says which it sees": (
        workers(SHARE, containers=[limited(1), {"name": "side", "env": [CARDS]}]),
        FACTS,
    ),
    "a type that has no GPU names its node": (
        asked(HIGH, kind="TFJob", specs={"PS": replica(1, nodeName="n"), "Worker": asking()}),
        FACTS,
    ),
    "elasticity is off": (asked({**SHARE, names.ELASTIC: "off"}), FACTS),
    "the controller is away": (asked(SHARE), ALONE),
    "the namespace switches placement off": (asked(SHARE), OFF),
}


@pytest.mark.parametrize(("raw", "facts"), ALLOWED.values(), ids=ALLOWED)
def test_other_jobs_are_held_until_they_have_their_parts(raw: Raw, facts: Facts) -> None:
    mutation = mutate_job(raw, facts)
    assert not mutation.refusal
    after = jsonpatch.apply_patch(raw, list(mutation.ops))
    assert after["spec"]["runPolicy"] == {"suspend": True}
    assert after["metadata"]["annotations"][names.HELD] == "true"
    again = mutate_job(after, facts)
    assert (again.ops, again.refusal) == ((), "")


def test_a_released_job_may_state_anything_and_its_pods_get_whole_gpus() -> None:
    raw = workers({**SHARE, names.RELEASED: "ByUser"}, gpus=2)
    mutation = mutate_job(raw, FACTS)
    assert not mutation.refusal
    after = jsonpatch.apply_patch(raw, list(mutation.ops))
    metadata = after["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]
    assert metadata["annotations"] == {names.RELEASED: "ByUser"}
    assert "runPolicy" not in after["spec"]


def test_a_namespace_that_is_not_managed_is_not_touched() -> None:
    mutation = mutate_job(workers(SHARE, gpus=2), Facts(controller_alive=True))
    assert (mutation.ops, mutation.refusal) == ((), "")


BAD: dict[str, dict[str, str]] = {
    **{key: {key: written} for key, written in MALFORMED.items() if key in OF_A_JOB},
    "of one type, as it was once": {f"{names.GPU_SHARE}.worker": "0.5"},
    "a share in finer steps": {names.GPU_SHARE: "0.505"},
    "more than one GPU": {names.GPU_SHARE: "2"},
    "a limit, as there was once": {"kfext.dev/gpu-limit": "0.4"},
    "isolation, as there was once": {"kfext.dev/gpu-isolation": "none"},
    "a job that is not to be placed": {names.GPU_SHARE: "0.5", names.COLOCATION: "off"},
}


@pytest.mark.parametrize("written", BAD.values(), ids=BAD)
def test_G1_a_malformed_setting_is_refused_with_what_is_allowed(written: dict[str, str]) -> None:
    mutation = mutate_job(asked({**SHARE, **written}), FACTS)
    *_, (key, value) = written.items()
    for part in (key, f"'{value}'", "allowed: "):
        assert part in mutation.refusal
    assert mutation.ops == ()
    assert [one.reason for one in mutation.verdicts] == [names.REASON_SETTINGS_INVALID]


COPIED = {
    names.GPU_SHARE: "0.9",
    f"{names.GPU_PRIORITY}.worker": "high",
    f"{names.GPU_SHARE}.evaluator": "0.5",
    names.GPU_MEMORY: "1Gi",
    names.GPU_SLOTS: "90@0",
    names.GPU_TERMS: "{}",
}


@pytest.mark.parametrize("stated", [{}, SHARE], ids=["nothing", "another share"])
def test_templates_say_what_the_job_says_and_nothing_of_a_part_it_has_not(stated: Raw) -> None:
    raw = workers(stated, metadata={"annotations": COPIED})
    after = jsonpatch.apply_patch(raw, list(mutate_job(raw, FACTS).ops))
    found = after["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]["annotations"]
    assert {key: one for key, one in found.items() if "gpu" in key} == stated
