"""Jobs and pods that share GPUs: refusals, the part that replaces a whole GPU, and the hook."""

import subprocess
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from e2e.harness.katib import with_collector
from kfext import names
from kfext.core.admission.gpu import Sharer, with_gpu_share, with_hook
from kfext.core.admission.new_job import mutate_job
from kfext.core.admission.new_pod import mutate_pod
from kfext.core.admission.review import ReviewContext
from kfext.core.settings.table import OF_A_JOB
from kfext.model.bounds import MAX_PODS
from kfext.model.kinds.registered import KINDS
from kfext.model.namespace import Namespace
from tests.setting_samples import MALFORMED, WELL_FORMED
from tests.unit.objects import Raw, job, json_values, pod, replica

# --- jobs -----------------------------------------------------------------------------------------

CONTEXT = ReviewContext(namespace=Namespace("", {names.MANAGED: "true"}), controller_alive=True)
SHARE = {names.GPU_SHARE: "0.5"}
HIGH = {**SHARE, names.GPU_PRIORITY: "high"}
PART: Raw = {"name": "side", "resources": {"limits": {"kfext.dev/gpu-1": "50"}}}
CARDS = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}


def with_gpus(gpus: int, **container: Any) -> Raw:
    """A container with a limit of GPUs."""
    limits = {"limits": {names.NATIVE_GPU: gpus}}
    return {"name": "pytorch", "image": "trainer", "resources": limits, **container}


def amounts(**stated: Any) -> Raw:
    """A container with separate limits and requests of GPUs."""
    resources = {kind: {names.NATIVE_GPU: number} for kind, number in stated.items()}
    return {"name": "pytorch", "resources": resources}


def gpu_type(gpus: int = 1, replicas: int = 1, **pod: Any) -> Raw:
    """A replica type with a container that requests GPUs."""
    return replica(replicas, **{"containers": [with_gpus(gpus)], **pod})


def gpu_job(annotations: Raw, *, kind: str = "PyTorchJob", **more: Any) -> Raw:
    """A job with these annotations; without `specs`, of one worker with a GPU."""
    return job(kind, annotations=annotations, **{"specs": {"Worker": gpu_type()}, **more})


def workers(annotations: Raw, **pod: Any) -> Raw:
    return gpu_job(annotations, specs={"Worker": gpu_type(**pod)})


def managed_elsewhere() -> Raw:
    return gpu_job(SHARE, run_policy={"managedBy": "kueue.x-k8s.io/multikueue"})


REFUSED_JOBS: dict[str, tuple[Raw, str]] = {
    "Kueue starts it": (gpu_job(SHARE, labels={names.KUEUE_QUEUE: "q"}), "Kueue starts this job"),
    "its number of replicas may change": (gpu_job({**HIGH, names.ELASTIC: "1-2"}), names.ELASTIC),
    "it states that it has no GPU": (workers(SHARE, gpus=0), "the job has no GPUs"),
    "only types that keep whole GPUs": (
        gpu_job(HIGH, specs={"Master": gpu_type(2), "Worker": gpu_type(3)}),
        "asks for nvidia.com/gpu: 2",
    ),
    "no type has a GPU": (gpu_job(SHARE, specs={"Worker": replica(1)}), "the job has no GPUs"),
    "the only type with a GPU has no replicas": (
        gpu_job(SHARE, specs={"Master": replica(1), "Worker": gpu_type(replicas=0)}),
        "the job has no GPUs",
    ),
    "a replica has two GPUs": (workers(SHARE, gpus=2), "asks for nvidia.com/gpu: 2"),
    "two containers have a GPU each": (
        workers(SHARE, containers=[with_gpus(1), with_gpus(1, name="side")]),
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
    "it requests a part by its name": (
        workers(SHARE, containers=[with_gpus(1), PART]),
        "asks for kfext.dev/gpu-1 itself",
    ),
    "an init container has the GPU": (
        workers(SHARE, initContainers=[with_gpus(1, name="first")]),
        "init container",
    ),
    "it claims devices by DRA": (
        workers(SHARE, resourceClaims=[{"name": "card", "resourceClaimName": "card"}]),
        "has resourceClaims",
    ),
    "it sets its visible GPUs itself": (
        workers(SHARE, containers=[with_gpus(1, env=[CARDS])]),
        "NVIDIA_VISIBLE_DEVICES",
    ),
    "its template names the node": (workers(SHARE, nodeName="n"), "names its node (nodeName: 'n')"),
    "a low job of several ranks": (workers(SHARE, replicas=2), "a job of 2 pods cannot"),
    "a low job with another rank without a GPU": (
        gpu_job(SHARE, specs={"Master": replica(1), "Worker": gpu_type()}),
        "a job of 2 pods cannot",
    ),
    "a low TFJob": (gpu_job(SHARE, kind="TFJob"), "a TFJob cannot"),
    "another system runs it": (managed_elsewhere(), "runPolicy.managedBy"),
    "another scheduler places it": (workers(HIGH, schedulerName="volcano"), "scheduler volcano"),
    "it has more pods than kfext places": (workers(HIGH, replicas=MAX_PODS + 1), "10001 pods"),
    "its template is beyond a bound": (workers(HIGH, tolerations=[{}] * 65), "65 tolerations"),
}


@pytest.mark.parametrize(("raw", "why"), REFUSED_JOBS.values(), ids=REFUSED_JOBS)
def test_a_job_that_cannot_share_gpus_is_refused(raw: Raw, why: str) -> None:
    mutation = mutate_job(raw, CONTEXT)
    assert mutation.refusal.startswith(f"{names.GPU_SHARE}: ")
    assert why in mutation.refusal
    assert mutation.ops == ()
    assert [verdict.reason for verdict in mutation.verdicts] == [names.REASON_SHARE_REFUSED]


def test_the_refusal_of_a_job_that_names_its_node_names_the_alternative() -> None:
    refusal = mutate_job(workers(SHARE, nodeName="n"), CONTEXT).refusal
    for part in ("Worker template", "nodeName: 'n'", "allowed: ", "e.g. nodeSelector"):
        assert part in refusal


OFF = replace(CONTEXT, namespace=Namespace("", CONTEXT.namespace.labels, {names.COLOCATION: "off"}))
NO_CONTROLLER = replace(CONTEXT, controller_alive=False)
ALLOWED: dict[str, tuple[Raw, ReviewContext]] = {
    "a low job of one rank": (gpu_job(SHARE), CONTEXT),
    "a high job of several ranks": (workers(HIGH, replicas=3), CONTEXT),
    "a high TFJob": (gpu_job(HIGH, kind="TFJob"), CONTEXT),
    "a parameter server without GPUs beside it": (
        gpu_job(HIGH, kind="TFJob", specs={"PS": replica(1), "Worker": gpu_type(replicas=2)}),
        CONTEXT,
    ),
    "a job that states that it has none": (
        gpu_job(HIGH, kind="TFJob", specs={"PS": gpu_type(0), "Worker": gpu_type(replicas=2)}),
        CONTEXT,
    ),
    "another type has whole GPUs": (
        gpu_job(HIGH, specs={"Master": gpu_type(2), "Worker": gpu_type()}),
        CONTEXT,
    ),
    "one GPU, written differently": (
        workers(SHARE, containers=[amounts(limits="1000m", requests=1.0)]),
        CONTEXT,
    ),
    "an init container that requests none": (
        workers(SHARE, initContainers=[with_gpus(0, name="first")]),
        CONTEXT,
    ),
    "a container without a GPU sets its visible GPUs": (
        workers(SHARE, containers=[with_gpus(1), {"name": "side", "env": [CARDS]}]),
        CONTEXT,
    ),
    "a type that has no GPU names its node": (
        gpu_job(HIGH, kind="TFJob", specs={"PS": replica(1, nodeName="n"), "Worker": gpu_type()}),
        CONTEXT,
    ),
    "elasticity is off": (gpu_job({**SHARE, names.ELASTIC: "off"}), CONTEXT),
    "the controller is away": (gpu_job(SHARE), NO_CONTROLLER),
    "the namespace switches placement off": (gpu_job(SHARE), OFF),
}


@pytest.mark.parametrize(("raw", "context"), ALLOWED.values(), ids=ALLOWED)
def test_a_job_that_can_share_gpus_is_held(raw: Raw, context: ReviewContext) -> None:
    mutation = mutate_job(raw, context)
    assert not mutation.refusal
    after = jsonpatch.apply_patch(raw, list(mutation.ops))
    assert after["spec"]["runPolicy"] == {"suspend": True}
    assert after["metadata"]["annotations"][names.HELD] == "true"
    again = mutate_job(after, context)
    assert (again.ops, again.refusal) == ((), "")


def test_a_released_job_may_state_anything_and_its_pods_have_whole_gpus() -> None:
    raw = workers({**SHARE, names.RELEASED: "ByUser"}, gpus=2)
    mutation = mutate_job(raw, CONTEXT)
    assert not mutation.refusal
    after = jsonpatch.apply_patch(raw, list(mutation.ops))
    metadata = after["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]
    assert metadata["annotations"] == {names.RELEASED: "ByUser"}
    assert "runPolicy" not in after["spec"]


def test_a_namespace_that_is_not_managed_is_not_touched() -> None:
    mutation = mutate_job(workers(SHARE, gpus=2), ReviewContext(controller_alive=True))
    assert (mutation.ops, mutation.refusal) == ((), "")


BAD: dict[str, dict[str, str]] = {
    **{key: {key: written} for key, written in MALFORMED.items() if key in OF_A_JOB},
    "a share in finer steps": {names.GPU_SHARE: "0.505"},
    "more than one GPU": {names.GPU_SHARE: "2"},
    "a job that is not to be placed": {names.GPU_SHARE: "0.5", names.COLOCATION: "off"},
}


@pytest.mark.parametrize("written", BAD.values(), ids=BAD)
def test_G1_a_malformed_setting_is_refused_with_what_is_allowed(written: dict[str, str]) -> None:
    mutation = mutate_job(gpu_job({**SHARE, **written}), CONTEXT)
    *_, (key, value) = written.items()
    for part in (key, f"'{value}'", "allowed: "):
        assert part in mutation.refusal
    assert mutation.ops == ()
    assert [verdict.reason for verdict in mutation.verdicts] == [names.REASON_SETTINGS_INVALID]


COPIED = {
    names.GPU_SHARE: "0.9",
    f"{names.GPU_PRIORITY}.worker": "high",
    f"{names.GPU_SHARE}.evaluator": "0.5",
    names.GPU_MEMORY: "1Gi",
    names.GPU_SLOTS: "90@0",
    names.GPU_TERMS: "{}",
}


@pytest.mark.parametrize("stated", [{}, SHARE], ids=["no share", "a different share"])
def test_templates_get_the_gpu_settings_of_the_job_and_lose_copied_settings(stated: Raw) -> None:
    raw = workers(stated, metadata={"annotations": COPIED})
    after = jsonpatch.apply_patch(raw, list(mutate_job(raw, CONTEXT).ops))
    result = after["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]["annotations"]
    assert {key: value for key, value in result.items() if "gpu" in key} == stated


# --- the part of a pod ----------------------------------------------------------------------------

GPU = names.NATIVE_GPU
TOLERATION = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
GATE = [{"name": names.GATE}]


def limited(number: str = "1", **more: Any) -> Raw:
    amounts = {GPU: number, "cpu": "2"}
    return {"name": "pytorch", "resources": {"limits": amounts, "requests": amounts}, **more}


KIND = KINDS["PyTorchJob"]


def sharer(
    annotations: Raw | None = None, *, type_: str = "worker", index: str = "0", **spec: Any
) -> Raw:
    """A pod of a job that shares GPUs, as its operator creates it."""
    stated = {names.GPU_SHARE: "0.5", names.GPU_SLOTS: "50@0,50@3", **(annotations or {})}
    labels = {
        names.JOB_NAME: "train",
        names.REPLICA_TYPE: type_,
        names.REPLICA_INDEX: index,
    }
    return pod(annotations=stated, labels=labels, spec={"containers": [limited()], **spec})


def part_in(raw: Raw) -> Sharer:
    """The pod with its part; its operations make its spec, and a second review adds none."""
    before = deepcopy(raw)
    part = with_gpu_share(KIND, raw["metadata"], raw["spec"])
    assert raw == before
    after = jsonpatch.apply_patch({"spec": raw["spec"]}, list(part.operations))["spec"]
    assert after == part.spec
    if not part.refusal:
        again = with_gpu_share(KIND, raw["metadata"], after)
        assert (again.spec, again.operations, again.refusal) == (after, (), "")
    return part


def limits_in(raw: Raw) -> list[Raw]:
    part = part_in(raw)
    assert not part.refusal
    return [container.get("resources", {}).get("limits") for container in part.spec["containers"]]


def test_the_part_replaces_the_gpu_in_the_same_container() -> None:
    spec = part_in(sharer(containers=[{"name": "side"}, limited()])).spec
    amounts = {"kfext.dev/gpu-0": "50", "cpu": "2"}
    side, trainer = spec["containers"]
    assert side == {"name": "side"}
    assert trainer["resources"] == {"limits": amounts, "requests": amounts}
    assert spec["tolerations"] == [TOLERATION]


def test_a_trial_that_katib_has_changed_gets_its_part_beside_the_collector() -> None:
    changed = with_collector({"containers": [limited(command=["python3", "train.py"], image="i")]})
    spec = part_in(sharer(**changed)).spec
    trainer, collector = spec["containers"]
    assert trainer["resources"]["limits"] == {"kfext.dev/gpu-0": "50", "cpu": "2"}
    assert trainer["command"][-2:] == ["sh", "-c"]  # the hook's shell becomes Katib's
    assert trainer["args"] == changed["containers"][0]["args"]
    assert collector == changed["containers"][1]


def test_no_new_limit_or_request_is_stated() -> None:
    only = {"name": "pytorch", "resources": {"limits": {GPU: "1"}}}
    result = part_in(sharer(containers=[only])).spec["containers"][0]["resources"]
    assert result == {"limits": {"kfext.dev/gpu-0": "50"}}


def test_each_replica_gets_the_part_that_was_planned_for_it() -> None:
    assert limits_in(sharer(index="1")) == [{"kfext.dev/gpu-3": "50", "cpu": "2"}]


TOLERATED: dict[str, tuple[Any, list[Raw]]] = {
    "no toleration": (None, [TOLERATION]),
    "a different toleration": ([{"operator": "Exists"}], [{"operator": "Exists"}, TOLERATION]),
    "the same toleration": ([TOLERATION, {"key": "x"}], [TOLERATION, {"key": "x"}]),
}


@pytest.mark.parametrize(("stated", "want"), TOLERATED.values(), ids=TOLERATED)
def test_the_taint_of_gpu_nodes_is_tolerated_once(stated: Any, want: list[Raw]) -> None:
    raw = sharer(**({} if stated is None else {"tolerations": stated}))
    assert part_in(raw).spec["tolerations"] == want


UNTOUCHED: dict[str, Raw] = {
    "it has no GPU": sharer(containers=[{"name": "pytorch"}]),
    "it states that it has none": sharer(containers=[limited("0")]),
    "it has a part already": sharer(
        containers=[{"name": "x", "resources": {"limits": {"kfext.dev/gpu-0": "50"}}}]
    ),
    "its job was released": sharer({names.RELEASED: "ByUser"}),
    "its job shares none": pod(annotations={}, spec={"containers": [limited()]}),
    "its type has two GPUs": sharer({names.GPU_SLOTS: ""}, containers=[limited("2")]),
    "its type has a GPU in each of two containers": sharer(
        {names.GPU_SLOTS: ""}, containers=[limited(), limited(name="side")]
    ),
}


@pytest.mark.parametrize("raw", UNTOUCHED.values(), ids=UNTOUCHED)
def test_other_pods_are_unchanged_but_for_the_gate(raw: Raw) -> None:
    mutation = mutate_pod(raw, controller_alive=True)
    assert not mutation.refusal
    after = jsonpatch.apply_patch(raw, list(mutation.ops))["spec"]
    assert {key: field for key, field in after.items() if key != "schedulingGates"} == raw["spec"]


def test_a_container_that_requests_no_gpu_does_not_count() -> None:
    assert limits_in(sharer(containers=[limited("0"), limited()]))[0][GPU] == "0"


REFUSED: dict[str, tuple[Raw, str]] = {
    "it has two GPUs": (sharer(containers=[limited("2")]), "asks for nvidia.com/gpu: 2 in limits"),
    "two containers have one": (sharer(containers=[limited(), limited()]), "in 2 containers"),
    "an init container has one too": (
        sharer(initContainers=[limited()]),
        "it has an init container that asks for a GPU",
    ),
    "it claims devices by DRA": (sharer(resourceClaims=[{"name": "x"}]), "it has resourceClaims"),
    "it requests a part itself too": (
        sharer(containers=[limited(), {"resources": {"limits": {"kfext.dev/gpu-3": "50"}}}]),
        "it asks for kfext.dev/gpu-3 itself",
    ),
    "it sets its visible GPUs itself": (
        sharer(containers=[limited(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])]),
        "it sets NVIDIA_VISIBLE_DEVICES",
    ),
    "its job has no plan": (sharer({names.GPU_SLOTS: ""}), "has not placed"),
    "it is not in the plan": (sharer(index="2"), "has not placed"),
    "its index is malformed": (sharer(index="-1"), "has not placed"),
    "its index is too large": (sharer(index="9" * 5000), "has not placed"),
    "its part is no number": (sharer({names.GPU_SLOTS: "half@0"}), "has not placed"),
    "its part has no slot": (sharer({names.GPU_SLOTS: "50"}), "has not placed"),
    "its part is zero": (sharer({names.GPU_SLOTS: "0@0"}), "has not placed"),
    "its part is more than a GPU": (sharer({names.GPU_SLOTS: "101@0"}), "has not placed"),
    "its slot is too large": (sharer({names.GPU_SLOTS: "50@64"}), "has not placed"),
}


@pytest.mark.parametrize(("raw", "why"), REFUSED.values(), ids=REFUSED)
def test_a_pod_that_would_not_be_accounted_for_is_refused(raw: Raw, why: str) -> None:
    part = part_in(raw)
    assert why in part.refusal
    assert (part.spec, part.operations) == (raw["spec"], ())
    mutation = mutate_pod(raw, controller_alive=True)
    assert why in mutation.refusal
    assert mutation.ops == ()


PRIORITIES: dict[str, tuple[Raw, str]] = {
    "low by default": ({}, "low"),
    "high": ({names.GPU_PRIORITY: "high"}, "high"),
    "a malformed priority": ({names.GPU_PRIORITY: "highest"}, "low"),
}


@pytest.mark.parametrize(("annotations", "want"), PRIORITIES.values(), ids=PRIORITIES)
def test_the_hook_gets_the_priority_of_the_job(annotations: Raw, want: str) -> None:
    spec = part_in(sharer(annotations)).spec
    env = {variable["name"]: variable.get("value") for variable in spec["containers"][0]["env"]}
    assert env["KFEXT_GPU_PRIORITY"] == want
    assert spec["initContainers"][0]["resources"] == spec["containers"][0]["resources"]


def patched(raw: Raw, *, alive: bool = True) -> Raw:
    mutation = mutate_pod(raw, controller_alive=alive)
    assert not mutation.refusal
    after: Raw = jsonpatch.apply_patch(raw, list(mutation.ops))
    again = mutate_pod(after, controller_alive=alive)
    assert (again.ops, again.refusal) == ((), ""), "the webhook is called again on its own output"
    return after


@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.parametrize("colocation", ["preferred", "off"])
def test_a_pod_that_shares_a_gpu_always_waits_for_its_placement(
    colocation: str, alive: bool
) -> None:
    after = patched(sharer({names.COLOCATION: colocation}), alive=alive)
    assert after["spec"]["schedulingGates"] == GATE


def test_a_pod_without_a_gpu_of_such_a_job_waits_with_the_others() -> None:
    after = patched(sharer(containers=[{"name": "pytorch"}]), alive=False)
    assert after["spec"] == {"containers": [{"name": "pytorch"}], "schedulingGates": GATE}


def test_a_pod_beyond_a_bound_is_refused_as_it_could_not_wait() -> None:
    mutation = mutate_pod(sharer(tolerations=[{}] * 65), controller_alive=True)
    assert "65 tolerations" in mutation.refusal


def test_a_part_the_control_file_and_the_host_network_are_added_together() -> None:
    annotations = {names.PORT_BASE: "20000", names.MIGRATE: "checkpointed"}
    spec = patched(sharer(annotations))["spec"]
    (container,) = spec["containers"]
    assert spec["hostNetwork"] is True
    assert [volume["name"] for volume in spec["volumes"]] == ["kfext-control", "kfext-recorded"]
    mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert mounted == ["/etc/kfext", "/kfext/recorded"]
    assert container["resources"]["limits"] == {"kfext.dev/gpu-0": "50", "cpu": "2"}
    variables = {variable["name"] for variable in container["env"]}
    assert {"PYTHONPATH", "KFEXT_GPU_PRIORITY", "KFEXT_PYTHONPATH"} <= variables


gpu_texts = st.sampled_from(["0", "1", "1", "1", "2", "x", ""])
written = st.sampled_from([*WELL_FORMED.values(), *MALFORMED.values(), "50@0", "1@", ",", "50@0,"])
keys = st.sampled_from([key for key in WELL_FORMED if "gpu" in key])
odd_sharers = st.builds(
    lambda annotations, labels, containers, fields: pod(
        annotations={names.GPU_SHARE: "0.5", names.GPU_SLOTS: "50@0", **annotations},
        labels={names.REPLICA_TYPE: "worker", names.REPLICA_INDEX: "0", **labels},
        spec={**fields, "containers": containers},
    ),
    st.dictionaries(
        keys | st.just(names.GPU_SLOTS), written | st.text(max_size=6) | json_values, max_size=3
    ),
    st.dictionaries(
        st.sampled_from([names.REPLICA_TYPE, names.REPLICA_INDEX]),
        st.sampled_from(["0", "1", "-1", "\u0661", "\u00b2", "master"]),
    ),
    st.lists(
        st.fixed_dictionaries(
            {
                "resources": st.fixed_dictionaries(
                    {"limits": st.fixed_dictionaries({GPU: gpu_texts})}
                )
            },
            optional={
                "env": json_values
                | st.just([{"name": "PYTHONPATH", "value": "/a"}])
                | st.lists(st.fixed_dictionaries({"name": json_values, "value": json_values})),
                "volumeMounts": json_values,
                "image": json_values,
            },
        ),
        min_size=1,
        max_size=2,
    )
    | json_values,
    st.dictionaries(st.sampled_from(["tolerations", "volumes", "initContainers"]), json_values),
)


@example(raw=sharer(tolerations="x"))
@example(raw=sharer(volumes={}, initContainers=3))
@example(raw=sharer(containers=[limited(volumeMounts="x", env="y")]))
@given(raw=odd_sharers)
def test_X1_any_pod_is_refused_or_gets_a_valid_patch(raw: Raw) -> None:
    part = part_in(raw)
    assert not (part.refusal and part.operations)


# --- the hook -------------------------------------------------------------------------------------

PRIORITY = {"name": "KFEXT_GPU_PRIORITY", "value": "low"}
RECORDED = {"name": "KFEXT_PYTHONPATH", "value": "/kfext/recorded/pythonpath"}
MOUNT = {"name": "kfext-recorded", "mountPath": "/kfext/recorded"}
VOLUME = {"name": "kfext-recorded", "emptyDir": {"sizeLimit": "1Mi"}}
BEFORE, AFTER = {"name": "A", "value": "1"}, {"name": "B", "value": "$(PYTHONPATH)"}
FROM_MAP = {"name": "PYTHONPATH", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}


def path(value: str) -> Raw:
    return {"name": "PYTHONPATH", "value": value}


def container(**more: Any) -> Raw:
    return {"name": "main", "image": "trainer", **more}


def hooked(spec: Raw) -> Raw:
    return dict(with_hook(spec, 0, priority="low"))


LITERAL: dict[str, tuple[list[Raw], list[Raw]]] = {
    "a path": ([path("/app")], [path("/kfext/hook:/app"), PRIORITY]),
    "several paths": ([path("/a:/b")], [path("/kfext/hook:/a:/b"), PRIORITY]),
    "an empty path, which is not the working directory": (
        [path("")],
        [path("/kfext/hook"), PRIORITY],
    ),
    "between variables, and a variable refers to it": (
        [BEFORE, path("$(A)"), AFTER],
        [BEFORE, path("/kfext/hook:$(A)"), AFTER, PRIORITY],
    ),
}


@pytest.mark.parametrize(("env", "want"), LITERAL.values(), ids=LITERAL)
def test_a_path_of_the_pod_follows_the_path_of_kfext(env: list[Raw], want: list[Raw]) -> None:
    assert hooked({"containers": [container(env=env)]}) == {
        "containers": [container(env=want)],
    }


def test_the_last_of_several_values_counts_as_for_kubelet() -> None:
    (result,) = hooked({"containers": [container(env=[path("/a"), path("/b")])]})["containers"]
    assert result["env"][-2:] == [path("/kfext/hook:/b"), PRIORITY]


@pytest.mark.parametrize("env", [None, [BEFORE], [FROM_MAP, AFTER]], ids=["no", "other", "its own"])
def test_a_shell_puts_the_hook_before_an_unknown_path_and_becomes_the_command(
    env: list[Raw] | None,
) -> None:
    stated = {"env": env} if env else {}
    main = container(command=["torchrun", "a b"], args=["$x"], **stated)
    spec = hooked({"containers": [main]})
    (result,) = spec.pop("containers")
    assert spec == {}, "it has no init container"
    command = result.pop("command")
    del main["command"]
    assert result == {**main, "env": [*(env or []), PRIORITY]}
    assert command[:3] == ["/kfext/hook/busybox", "sh", "-c"]
    assert command[4:] == ["torchrun", "a b"]


PATHS = {"unset": ({}, "/kfext/hook"), "set": ({"PYTHONPATH": "/a:/b"}, "/kfext/hook:/a:/b")}


def test_a_command_without_a_folder_is_found_in_the_image(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text('#!/bin/sh\necho "own $1"\n')
    tool.chmod(0o755)
    (result,) = hooked({"containers": [container(command=["tool", "a b"])]})["containers"]
    # busybox prefers its built-in programs to the programs in PATH.
    script = f"tool() {{ echo built-in; }}; {result['command'][3]}"
    command = ["/bin/sh", "-c", script.replace('exec "$0"', "tool"), *result["command"][4:]]
    environment = {"PATH": f"/nowhere:{tmp_path}"}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert process.stdout == "own a b\n"


@pytest.mark.parametrize(("environment", "want"), PATHS.values(), ids=PATHS)
def test_the_command_of_the_shell_has_the_path_and_its_arguments(
    environment: dict[str, str], want: str
) -> None:
    script = 'echo "$PYTHONPATH"; printf "%s\\n" "$@"'
    main = container(command=["/bin/sh", "-c", script, "sh", "a b"], args=["$c"])
    (result,) = hooked({"containers": [main]})["containers"]
    command = ["/bin/sh", *result["command"][2:], *result["args"]]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert process.stdout.splitlines() == [want, "a b", "$c"]


UNKNOWN: dict[str, tuple[Any, list[Raw]]] = {
    "no variables": (None, [path("/kfext/hook")]),
    "other variables": ([BEFORE], [BEFORE, path("/kfext/hook")]),
    "its value is elsewhere": ([FROM_MAP, AFTER], [path("/kfext/hook"), AFTER]),
}


@pytest.mark.parametrize(("env", "want"), UNKNOWN.values(), ids=UNKNOWN)
def test_the_path_is_written_into_the_pod_if_the_image_has_the_command(
    env: Any, want: list[Raw]
) -> None:
    copied = {
        "imagePullPolicy": "Always",
        "envFrom": [{"configMapRef": {"name": "m"}}],
        "resources": {"limits": {"kfext.dev/gpu-0": "50"}},
        "securityContext": {"runAsUser": 7},
        **({"env": env} if env else {}),
    }
    pod_spec = {"containers": [container(args=["train.py"], ports=[], **copied), {"name": "side"}]}
    spec = hooked(pod_spec)
    main, side = spec["containers"]
    assert main == {**pod_spec["containers"][0], "env": [*want, PRIORITY, RECORDED],
                    "volumeMounts": [MOUNT]}  # fmt: skip
    assert side == {"name": "side"}
    assert spec["volumes"] == [VOLUME]
    (init,) = spec["initContainers"]
    command = init.pop("command")
    assert init == {"name": "kfext-record", "image": "trainer", **copied, "volumeMounts": [MOUNT]}
    assert command[:3] == ["/kfext/hook/busybox", "sh", "-c"]
    assert command[3] == 'printf %s "$PYTHONPATH" > /kfext/recorded/pythonpath'


def test_existing_entries_stay_and_come_first() -> None:
    mine, first = {"name": "data", "mountPath": "/data"}, {"name": "first"}
    spec = hooked(
        {
            "containers": [container(volumeMounts=[mine])],
            "volumes": [{"name": "data"}],
            "initContainers": [first],
        }
    )
    assert spec["containers"][0]["volumeMounts"] == [mine, MOUNT]
    assert spec["volumes"] == [{"name": "data"}, VOLUME]
    assert [init["name"] for init in spec["initContainers"]] == ["first", "kfext-record"]
