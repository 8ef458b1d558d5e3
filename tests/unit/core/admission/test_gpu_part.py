"""The part of a GPU that a new pod gets in place of a whole one."""

from copy import deepcopy
from typing import Any

import jsonpatch
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kfext import names
from kfext.core.admission.gpu_part import Part, gpu_part
from kfext.core.admission.pod import mutate_pod
from tests.setting_samples import MALFORMED, WELL_FORMED
from tests.unit.objects import Raw, json_values, pod

GPU = names.NATIVE_GPU
TOLERATION = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
GATE = [{"name": names.GATE}]


def limited(number: str = "1", **more: Any) -> Raw:
    amounts = {GPU: number, "cpu": "2"}
    return {"name": "pytorch", "resources": {"limits": amounts, "requests": amounts}, **more}


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


def part_of(raw: Raw) -> Part:
    """The part; its operations make its spec, and a second look adds none."""
    before = deepcopy(raw)
    part = gpu_part(raw["metadata"], raw["spec"])
    assert raw == before
    after = jsonpatch.apply_patch({"spec": raw["spec"]}, list(part.operations))["spec"]
    assert after == part.spec
    if not part.refusal:
        again = gpu_part(raw["metadata"], after)
        assert (again.spec, again.operations, again.refusal) == (after, (), "")
    return part


def limits_in(raw: Raw) -> list[Raw]:
    part = part_of(raw)
    assert not part.refusal
    return [one.get("resources", {}).get("limits") for one in part.spec["containers"]]


def test_the_part_stands_where_the_gpu_stood() -> None:
    spec = part_of(sharer(containers=[{"name": "side"}, limited()])).spec
    amounts = {"kfext.dev/gpu-0": "50", "cpu": "2"}
    side, trains = spec["containers"]
    assert side == {"name": "side"}
    assert trains["resources"] == {"limits": amounts, "requests": amounts}
    assert spec["tolerations"] == [TOLERATION]


def test_nothing_is_stated_that_was_not() -> None:
    only = {"name": "pytorch", "resources": {"limits": {GPU: "1"}}}
    found = part_of(sharer(containers=[only])).spec["containers"][0]["resources"]
    assert found == {"limits": {"kfext.dev/gpu-0": "50"}}


def test_each_replica_gets_the_part_that_was_planned_for_it() -> None:
    assert limits_in(sharer(index="1")) == [{"kfext.dev/gpu-3": "50", "cpu": "2"}]


TOLERATED: dict[str, tuple[Any, list[Raw]]] = {
    "none": (None, [TOLERATION]),
    "another": ([{"operator": "Exists"}], [{"operator": "Exists"}, TOLERATION]),
    "ours": ([TOLERATION, {"key": "x"}], [TOLERATION, {"key": "x"}]),
}


@pytest.mark.parametrize(("stated", "want"), TOLERATED.values(), ids=TOLERATED)
def test_the_taint_of_gpu_nodes_is_tolerated_once(stated: Any, want: list[Raw]) -> None:
    given = sharer(**({} if stated is None else {"tolerations": stated}))
    assert part_of(given).spec["tolerations"] == want


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
    "its type alone did not share, under an earlier version": pod(
        annotations={f"{names.GPU_SHARE}.worker": "0.5"},
        labels={names.REPLICA_TYPE: "master", names.REPLICA_INDEX: "0"},
        spec={"containers": [limited()]},
    ),
}


@pytest.mark.parametrize("raw", UNTOUCHED.values(), ids=UNTOUCHED)
def test_other_pods_are_left_as_they_are(raw: Raw) -> None:
    assert part_of(raw) == Part(raw["spec"])


def test_a_container_that_asks_for_none_is_not_one_more() -> None:
    assert limits_in(sharer(containers=[limited("0"), limited()]))[0][GPU] == "0"


REFUSED: dict[str, tuple[Raw, str]] = {
    "it has two GPUs": (sharer(containers=[limited("2")]), "asks for nvidia.com/gpu: 2 in limits"),
    "two containers have one": (sharer(containers=[limited(), limited()]), "in 2 containers"),
    "an init container has one too": (
        sharer(initContainers=[limited()]),
        "it has an init container that asks for a GPU",
    ),
    "it claims devices by DRA": (sharer(resourceClaims=[{"name": "x"}]), "it has resourceClaims"),
    "it asks for a part itself too": (
        sharer(containers=[limited(), {"resources": {"limits": {"kfext.dev/gpu-3": "50"}}}]),
        "it asks for kfext.dev/gpu-3 itself",
    ),
    "it says itself which GPUs it sees": (
        sharer(containers=[limited(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])]),
        "it sets NVIDIA_VISIBLE_DEVICES",
    ),
    "its job has no plan": (sharer({names.GPU_SLOTS: ""}), "has not placed"),
    "it is not in the plan": (sharer(index="2"), "has not placed"),
    "its index is none": (sharer(index="-1"), "has not placed"),
    "its index is beyond all": (sharer(index="9" * 5000), "has not placed"),
    "its part is no number": (sharer({names.GPU_SLOTS: "half@0"}), "has not placed"),
    "its part has no slot": (sharer({names.GPU_SLOTS: "50"}), "has not placed"),
    "its part is nothing": (sharer({names.GPU_SLOTS: "0@0"}), "has not placed"),
    "its part is more than a GPU": (sharer({names.GPU_SLOTS: "101@0"}), "has not placed"),
    "its slot is beyond all": (sharer({names.GPU_SLOTS: "50@64"}), "has not placed"),
}


@pytest.mark.parametrize(("raw", "why"), REFUSED.values(), ids=REFUSED)
def test_a_pod_that_nothing_would_account_for_is_refused(raw: Raw, why: str) -> None:
    part = part_of(raw)
    assert why in part.refusal
    assert (part.spec, part.operations) == (raw["spec"], ())
    mutation = mutate_pod(raw, controller_alive=True)
    assert why in mutation.refusal
    assert mutation.ops == ()


HOOKED: dict[str, tuple[Raw, str]] = {
    "low by default": ({}, "low"),
    "high": ({names.GPU_PRIORITY: "high"}, "high"),
    "a malformed priority": ({names.GPU_PRIORITY: "highest"}, "low"),
}


@pytest.mark.parametrize(("annotations", "want"), HOOKED.values(), ids=HOOKED)
def test_its_container_gives_way(annotations: Raw, want: str) -> None:
    spec = part_of(sharer(annotations)).spec
    env = {one["name"]: one.get("value") for one in spec["containers"][0]["env"]}
    assert env["KFEXT_GPU_PRIORITY"] == want
    assert spec["initContainers"][0]["resources"] == spec["containers"][0]["resources"]


def test_a_pod_that_is_replaced_in_a_job_of_an_earlier_version_gets_its_part() -> None:
    stated = {
        f"{names.GPU_SHARE}.worker": "0.5",
        f"{names.GPU_PRIORITY}.worker": "high",
        names.GPU_SLOTS: "50@0",
    }
    labels = {names.REPLICA_TYPE: "worker", names.REPLICA_INDEX: "0"}
    raw = pod(annotations=stated, labels=labels, spec={"containers": [limited()]})
    (container,) = part_of(raw).spec["containers"]
    assert container["resources"]["limits"] == {"kfext.dev/gpu-0": "50", "cpu": "2"}
    assert {"name": "KFEXT_GPU_PRIORITY", "value": "high"} in container["env"]


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


def test_a_part_the_control_file_and_the_host_network_go_together() -> None:
    annotations = {names.PORT_BASE: "20000", names.MIGRATE: "checkpointed"}
    spec = patched(sharer(annotations))["spec"]
    (container,) = spec["containers"]
    assert spec["hostNetwork"] is True
    assert [one["name"] for one in spec["volumes"]] == ["kfext-control", "kfext-recorded"]
    mounted = [one["mountPath"] for one in container["volumeMounts"]]
    assert mounted == ["/etc/kfext", "/kfext/recorded"]
    assert container["resources"]["limits"] == {"kfext.dev/gpu-0": "50", "cpu": "2"}
    given = {one["name"] for one in container["env"]}
    assert {"PYTHONPATH", "KFEXT_GPU_PRIORITY", "KFEXT_PYTHONPATH"} <= given


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
    part = part_of(raw)
    assert not (part.refusal and part.operations)
