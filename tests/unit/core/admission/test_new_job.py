"""The job webhook: which jobs it holds, and what it writes into them."""

import copy
import json
import time
from dataclasses import replace
from typing import Any, NamedTuple

import jsonpatch
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kfext import names
from kfext.core.admission.new_job import mutate_job
from kfext.core.admission.review import ReviewContext, ReviewResult
from kfext.core.patches.json_patch import Operation
from kfext.model.job import parse_job
from kfext.model.kinds.registered import KINDS
from kfext.model.namespace import Namespace
from kfext.model.policy import TrainingPolicy
from tests.builders import WITH_TEMPLATES
from tests.unit.objects import Raw, job, json_values, odd_jobs, replica

DEVICES = [{"name": "card", "resourceClaimName": "card"}]
CONTEXT = ReviewContext(namespace=Namespace("", {names.MANAGED: "true"}), controller_alive=True)
NO_CONTROLLER = replace(CONTEXT, controller_alive=False)
WRAPPER = {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "controller": True}
TRIAL = {"apiVersion": "kubeflow.org/v1beta1", "kind": "Trial", "controller": True}


def admitted(raw: Raw, context: ReviewContext = CONTEXT) -> Raw:
    """The object as the API server would store it."""
    after: Raw = jsonpatch.apply_patch(raw, list(mutate_job(raw, context).ops))
    return after


def is_held(raw: Raw) -> bool:
    annotations = raw["metadata"].get("annotations") or {}
    suspended = (raw["spec"].get("runPolicy") or {}).get("suspend") is True
    marked = names.HELD in annotations
    assert suspended or not marked
    return marked


def templates(raw: Raw) -> list[Raw]:
    kind = KINDS[raw["kind"]]
    return [spec["template"] for spec in raw["spec"][kind.replica_specs].values()]


@pytest.mark.parametrize("kind", WITH_TEMPLATES)
def test_a_new_job_is_suspended_and_marked(kind: str) -> None:
    raw = job(kind)
    mutation = mutate_job(raw, CONTEXT)
    after = admitted(raw)
    assert is_held(after)
    assert not mutation.warnings
    assert mutation.verdicts[0].reason == names.REASON_HELD
    assert "3 pods" in mutation.verdicts[0].message


def test_a_trial_of_katib_is_held_as_any_job() -> None:
    assert is_held(admitted(job(ownerReferences=[TRIAL])))


def test_the_settings_are_written_into_every_template() -> None:
    raw = job(annotations={names.COLOCATION: "Required"})
    for template in templates(admitted(raw)):
        assert template["metadata"] == {
            "annotations": {
                names.COLOCATION: "required",
                names.NETWORK: "pod",
                names.ISTIO_INJECT: "false",
            },
            "labels": {names.ISTIO_INJECT: "false"},
        }


def test_admission_changes_nothing_else_of_a_held_job() -> None:
    raw = job(annotations={"mine": "1"}, run_policy={"cleanPodPolicy": "Running"})
    after = admitted(raw)
    after["metadata"]["annotations"].pop(names.HELD)
    after["spec"]["runPolicy"].pop("suspend")
    for template in templates(after):
        del template["metadata"]
    assert after == raw


class NotHeld(NamedTuple):
    """A job that kfext does not hold, and the reason."""

    raw: Raw
    reason: str = names.REASON_HANDS_OFF
    context: ReviewContext = CONTEXT


NOT_HELD: dict[str, NotHeld] = {
    "colocation is off": NotHeld(job(annotations={names.COLOCATION: "off"}), names.REASON_NOT_HELD),
    "colocation is off by policy": NotHeld(
        job(),
        names.REASON_NOT_HELD,
        replace(CONTEXT, policies=[TrainingPolicy(settings={names.COLOCATION: "off"})]),
    ),
    "a person suspended it": NotHeld(
        job(run_policy={"suspend": True}), names.REASON_SUSPENDED_BY_USER
    ),
    "Kueue manages it": NotHeld(job(labels={names.KUEUE_QUEUE: "q"}), names.REASON_NOT_HELD),
    "it belongs to a controller that may count its pods": NotHeld(
        job(ownerReferences=[WRAPPER]), names.REASON_NOT_HELD
    ),
    "such a controller created it from a copied manifest": NotHeld(
        job(ownerReferences=[WRAPPER], annotations={names.HELD: "true"}), names.REASON_NOT_HELD
    ),
    "another system runs it": NotHeld(job(run_policy={"managedBy": "kueue.x-k8s.io/multikueue"})),
    "it was released": NotHeld(job(annotations={names.RELEASED: "NoRoom"}), names.REASON_RELEASED),
    "another scheduler places one type": NotHeld(
        job(specs={"Master": replica(1), "Worker": replica(1, schedulerName="volcano")})
    ),
    "one type has a field that kfext does not model": NotHeld(
        job(specs={"Master": replica(1), "Worker": replica(1, resourceClaims=DEVICES)}),
        names.REASON_UNMODELLED,
    ),
    "the controller is away": NotHeld(job(), names.REASON_NOT_HELD, NO_CONTROLLER),
    "the controller is away, and the job must be on one node": NotHeld(
        job(annotations={names.COLOCATION: "required"}), names.REASON_NOT_HELD, NO_CONTROLLER
    ),
    "it has no replicas": NotHeld(job(specs={"Worker": replica(0)})),
    "it has no replica types": NotHeld(job(specs={})),
    "it has no type that is run": NotHeld(job(specs={"Launcher": replica(1)})),
    "it has more pods than kfext places": NotHeld(job(specs={"Worker": replica(2**31 - 1)})),
    "a template is beyond a bound": NotHeld(
        job(specs={"Master": replica(1), "Worker": replica(1, tolerations=[{}] * 65)})
    ),
    "it has too many annotations of kfext": NotHeld(
        job(annotations={f"kfext.dev/{number}": "" for number in range(65)})
    ),
    "it has too many replica types": NotHeld(
        job(specs={f"Worker{n}": replica(1) for n in range(17)})
    ),
    "the namespace is not managed": NotHeld(job(), context=ReviewContext(controller_alive=True)),
    "the namespace is managed: no": NotHeld(
        job(), context=replace(CONTEXT, namespace=Namespace("", {names.MANAGED: "false"}))
    ),
}


@pytest.mark.parametrize(("raw", "reason", "context"), NOT_HELD.values(), ids=NOT_HELD)
def test_a_job_that_kfext_does_not_hold(raw: Raw, context: ReviewContext, reason: str) -> None:
    mutation = mutate_job(raw, context)
    after = admitted(raw, context)
    assert mutation.verdicts[0].reason == reason
    assert after["spec"].get("runPolicy") == raw["spec"].get("runPolicy")
    assert names.HELD not in (after["metadata"].get("annotations") or {})
    assert not mutation.refusal


UNTOUCHED = [key for key, case in NOT_HELD.items() if case.reason == names.REASON_HANDS_OFF]


@pytest.mark.parametrize("case", UNTOUCHED)
def test_a_job_that_kfext_does_not_handle_is_not_changed(case: str) -> None:
    raw, _, context = NOT_HELD[case]
    assert mutate_job(raw, context).ops == ()


def test_colocation_off_is_written_into_templates_for_the_pod_webhook() -> None:
    for template in templates(admitted(job(annotations={names.COLOCATION: "off"}))):
        assert template["metadata"]["annotations"][names.COLOCATION] == "off"


def test_a_release_is_written_into_templates_for_the_pod_webhook() -> None:
    # A copy of a job that was released on the host network has the ports of that job.
    copied = {"annotations": {names.PORT_BASE: "20000", names.INTERFACES: "ib0"}}
    specs = {"Worker": replica(2, metadata=copied)}
    for template in templates(admitted(job(annotations={names.RELEASED: "NoRoom"}, specs=specs))):
        assert template["metadata"] == {"annotations": {names.RELEASED: "NoRoom"}}


def test_no_pod_of_a_job_that_kfext_cannot_place_is_gated_whatever_its_template() -> None:
    specs = {"Master": replica(1), "Worker": replica(1, resourceClaims=DEVICES)}
    for template in templates(admitted(job(specs=specs))):
        assert template["metadata"]["annotations"][names.RELEASED] == names.REASON_UNMODELLED


def test_a_copy_of_such_a_job_without_the_field_is_held_and_its_pods_are_gated() -> None:
    marked = {"annotations": {names.RELEASED: names.REASON_UNMODELLED}}
    after = admitted(job(specs={"Worker": replica(2, metadata=marked)}))
    assert is_held(after)
    assert names.RELEASED not in templates(after)[0]["metadata"]["annotations"]


def test_a_job_that_kfext_cannot_place_is_held_if_it_must_be_on_one_node() -> None:
    specs = {"Worker": replica(2, resourceClaims=DEVICES)}
    assert is_held(admitted(job(annotations={names.COLOCATION: "required"}, specs=specs)))


def test_a_malformed_annotation_refuses_the_job_and_changes_nothing() -> None:
    mutation = mutate_job(job(annotations={names.COLOCATION: "x", names.RESIZE: "y"}), CONTEXT)
    assert mutation.ops == ()
    for part in (names.COLOCATION, "'x'", "preferred, required, off"):
        assert part in mutation.refusal
    for part in (names.RESIZE, "'y'", "off, observe, cpu"):
        assert part in mutation.refusal


MARKS = {names.HELD: "true", names.PLAN: "{}", names.STATE: "{}"}


@pytest.mark.parametrize(("raw", "reason", "context"), NOT_HELD.values(), ids=NOT_HELD)
def test_marks_of_a_copied_manifest_are_removed_also_if_the_job_is_not_held(
    raw: Raw, context: ReviewContext, reason: str
) -> None:
    raw = copy.deepcopy(raw)
    raw["metadata"].setdefault("annotations", {}).update(MARKS)
    left = admitted(raw, context)["metadata"]["annotations"].keys() & MARKS.keys()
    if reason == names.REASON_SUSPENDED_BY_USER:
        assert left == {names.HELD}  # with the mark, kfext has suspended it and queues it
    elif context.namespace.managed:
        assert not left
    else:
        assert left == MARKS.keys()


def test_a_copy_of_a_queued_job_is_queued_itself() -> None:
    raw = job(run_policy={"suspend": True}, annotations=MARKS)
    after = admitted(raw)
    assert is_held(after)
    assert after["metadata"]["annotations"] == {names.HELD: "true"}


def test_a_copy_of_a_queued_job_starts_if_kfext_does_not_hold_it() -> None:
    annotations = {**MARKS, names.COLOCATION: "off"}
    after = admitted(job(run_policy={"suspend": True}, annotations=annotations))
    assert after["spec"]["runPolicy"] == {"suspend": False}


def test_a_copy_of_a_queued_job_in_a_kueue_queue_stays_suspended_for_kueue() -> None:
    raw = job(run_policy={"suspend": True}, annotations=MARKS, labels={names.KUEUE_QUEUE: "q"})
    after = admitted(raw)
    assert after["spec"]["runPolicy"] == {"suspend": True}
    assert "annotations" not in after["metadata"] or not after["metadata"]["annotations"]


def test_the_plan_generation_of_a_copied_template_is_removed() -> None:
    metadata = {"annotations": {names.PLAN_GENERATION: "7"}}
    after = admitted(job(specs={"Worker": replica(1, metadata=metadata)}))
    assert names.PLAN_GENERATION not in templates(after)[0]["metadata"]["annotations"]


ISTIO: dict[str, tuple[Raw, bool]] = {
    "a label": ({"labels": {names.ISTIO_INJECT: "true"}}, True),
    "an annotation": ({"annotations": {names.ISTIO_INJECT: "true"}}, True),
    "a revision": ({"labels": {"istio.io/rev": "canary"}}, True),
    "a revision, and no sidecar": (
        {"labels": {"istio.io/rev": "canary", names.ISTIO_INJECT: "false"}},
        True,
    ),
    "a revision as an annotation, which Istio does not read": (
        {"annotations": {"istio.io/rev": "canary"}},
        False,
    ),
    "Linkerd's proxy, which ignores Istio's label": (
        {"annotations": {"linkerd.io/inject": "enabled"}},
        False,
    ),
    "nothing": ({}, False),
}


@pytest.mark.parametrize(("metadata", "stated"), ISTIO.values(), ids=ISTIO)
def test_a_template_keeps_its_sidecar_settings(metadata: Raw, *, stated: bool) -> None:
    after = admitted(job(specs={"Worker": replica(1, metadata=metadata)}))
    result = templates(after)[0]["metadata"]
    values = {at: result.get(at, {}).get(names.ISTIO_INJECT) for at in ("labels", "annotations")}
    if stated:
        assert values == {at: metadata.get(at, {}).get(names.ISTIO_INJECT) for at in values}
    else:
        assert set(values.values()) == {"false"}


MISSING_PARENTS = {
    "metadata is null": {"kind": "PyTorchJob", "metadata": None, "spec": job()["spec"]},
    "there is no metadata": {"kind": "PyTorchJob", "spec": job()["spec"]},
    "annotations are null": job(annotations=None),
    "runPolicy is null": job(run_policy=None),
    "a template is null": job(specs={"Worker": {"replicas": 1, "template": None}}),
    "a template has null metadata": job(
        specs={"Worker": {"replicas": 1, "template": {"metadata": None, "spec": {}}}}
    ),
    "labels are null": job(
        specs={"Worker": {"replicas": 1, "template": {"metadata": {"labels": None}}}}
    ),
    "the replica type has a slash and a tilde": job(specs={"Worker": replica(1), "a/b~c": {}}),
}


@pytest.mark.parametrize("raw", MISSING_PARENTS.values(), ids=MISSING_PARENTS)
def test_missing_parents_are_created(raw: Raw) -> None:
    assert is_held(admitted(raw))


WRONG = {
    "spec is a list": {"kind": "TFJob", "spec": []},
    "metadata is a string": {**job(), "metadata": "x"},
    "annotations are a list": job(annotations=[]),
    "runPolicy is a number": job(run_policy=3),
    "a template is a list": job(specs={"Worker": {"replicas": 1, "template": []}}),
    "a replica type is a number": job(specs={"Worker": 3}),
    "labels are a string": job(
        specs={"Worker": {"replicas": 1, "template": {"metadata": {"labels": "x"}}}}
    ),
}


@pytest.mark.parametrize("raw", WRONG.values(), ids=WRONG)
def test_objects_that_the_api_server_refuses_are_left_to_it(raw: Raw) -> None:
    mutation = mutate_job(raw, CONTEXT)
    assert mutation.ops == ()
    assert not mutation.refusal


@pytest.mark.parametrize("raw", [None, [], "x", 3, {}, {"kind": "Job"}, {"kind": []}])
def test_an_object_that_is_no_training_job_is_not_changed(raw: Any) -> None:
    assert mutate_job(raw, CONTEXT) == ReviewResult()


context = st.builds(
    ReviewContext,
    namespace=st.builds(
        Namespace,
        st.just(""),
        st.just({names.MANAGED: "true"}),
        st.dictionaries(
            st.sampled_from([names.COLOCATION, names.NETWORK]),
            st.sampled_from(["off", "x", "host"]),
        ),
    ),
    controller_alive=st.booleans(),
)


UNHASHABLE = {"containers": [{"name": "tensorflow", "env": [{"name": []}]}]}


@settings(max_examples=400)
@example(
    raw={
        "kind": "TFJob",
        "spec": {"tfReplicaSpecs": {"Worker": {"template": {"spec": UNHASHABLE}}}},
    },
    review_context=ReviewContext(namespace=Namespace("", {names.MANAGED: "true"})),
)
@given(raw=odd_jobs | json_values, review_context=context)
def test_X1_any_job_gets_a_valid_patch_and_a_second_review_none(
    raw: Any, review_context: ReviewContext
) -> None:
    before = copy.deepcopy(raw)
    mutation = mutate_job(raw, review_context)
    assert raw == before
    after = jsonpatch.apply_patch(raw, list(mutation.ops)) if mutation.ops else raw
    again = mutate_job(after, review_context)
    assert again.ops == ()
    assert again.refusal == mutation.refusal
    if mutation.refusal:
        assert mutation.ops == ()


@example({"kind": "TrainJob", "spec": {"runtimePatches": [{"manager": "kfext.dev/manager"}]}})
@example({"kind": "TrainJob", "spec": {"runtimePatches": [{"manager": []}]}})
@example({"kind": "TrainJob", "spec": {"suspend": 1}})
@given(odd_jobs)
def test_every_write_operation_of_a_patch_is_necessary(raw: Raw) -> None:
    ops = list(mutate_job(raw, CONTEXT).ops)

    def patched(chosen: list[Operation]) -> str:
        # As text, since 1 == True.
        return json.dumps(jsonpatch.apply_patch(raw, chosen), sort_keys=True)

    for left_out, op in enumerate(ops):
        if op["op"] != "test":
            assert patched(ops[:left_out] + ops[left_out + 1 :]) != patched(ops)


@given(odd_jobs)
def test_only_jobs_that_no_other_system_runs_or_starts_are_ever_held(raw: Raw) -> None:
    after = jsonpatch.apply_patch(raw, list(mutate_job(raw, CONTEXT).ops))
    parsed = parse_job(after)
    assert parsed is not None
    if names.HELD not in parsed.annotations or mutate_job(raw, CONTEXT).refusal:
        return
    if mutate_job(raw, CONTEXT).ops:
        assert parsed.suspend
        assert parsed.run_by_operator
        assert not parsed.started_by
        assert not parsed.released
        assert parsed.pods or parsed.kind.rendered


def test_a_job_of_500_replicas_and_half_a_megabyte_gets_the_same_patch() -> None:
    env = [{"name": f"V{i}", "value": "x" * 200} for i in range(1200)]
    containers = [{"name": "pytorch", "image": "i", "env": env}]
    specs = {
        "Master": replica(1, containers=containers),
        "Worker": replica(499, containers=containers),
    }
    raw = job(specs=specs)
    assert len(json.dumps(raw)) > 500_000
    began = time.process_time()
    mutation = mutate_job(raw, CONTEXT)
    assert time.process_time() - began < 1  # catches only a quadratic search
    assert [op["path"] for op in mutation.ops] == [
        op["path"] for op in mutate_job(job(), CONTEXT).ops
    ]


def test_the_ports_of_a_copied_manifest_are_not_kept() -> None:
    raw = job(specs={"Worker": replica(2, metadata={"annotations": {names.PORT_BASE: "20000"}})})
    (template,) = templates(admitted(raw))
    assert names.PORT_BASE not in template["metadata"]["annotations"]
