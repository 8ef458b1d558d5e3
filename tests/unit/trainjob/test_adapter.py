"""The fields that kfext reads and writes on a TrainJob, its JobSet and its pods."""

from dataclasses import replace
from typing import Any

import jsonpatch
import pytest

from kfext import names
from kfext.core.admission.new_job import mutate_job
from kfext.core.admission.new_pod import mutate_pod
from kfext.core.admission.review import ReviewContext
from kfext.core.eligibility import why_no_host_network
from kfext.core.patches.basis import basis
from kfext.core.patches.host_network import host_network
from kfext.core.patches.job import suspend_patch, unsuspend_patch, user_release_patch
from kfext.core.queue.quota import QuotaView, demand
from kfext.model.job import TrainingJob, parse_job, pod_labels, pod_name
from kfext.model.job_state import JobState
from kfext.model.kinds.registered import KINDS
from kfext.model.namespace import Namespace
from kfext.model.plan import Plan
from kfext.model.pod import ReplicaKey, parse_pod
from kfext.model.quota import parse_quota
from kfext.model.rendered import as_rendered, parse_rendered
from tests.trainjobs import (
    JOB_UID,
    JOBSET_UID,
    OURS,
    Raw,
    jobset,
    replicated_job,
    train_job,
    trainer_pod,
)

CONTEXT = ReviewContext(namespace=Namespace("", {names.MANAGED: "true"}), controller_alive=True)
NODE_0, NODE_1 = ReplicaKey("node", 0), ReplicaKey("node", 1)
PLAN = Plan(JOB_UID, 1, {NODE_0: "a", NODE_1: "b"})
SETTINGS = {names.COLOCATION: "preferred", names.NETWORK: "pod"}


def read(raw: Raw | None = None, rendered: Raw | None = None) -> TrainingJob:
    """Return the job with the templates of its JobSet."""
    job = parse_job(raw or train_job(held=True))
    assert job is not None
    parsed = parse_rendered(rendered or jobset())
    return as_rendered(job, parsed) if parsed else job


def apply(raw: Raw, operations: list[Raw]) -> Raw:
    after: Raw = jsonpatch.apply_patch(raw, operations)
    return after


def own_entry(raw: Raw) -> Raw:
    """Return the change to the JobSet in kfext's entry of runtimePatches."""
    (own,) = [item for item in raw["spec"]["runtimePatches"] if item["manager"] == OURS["manager"]]
    result: Raw = own["trainingRuntimeSpec"]["template"]
    return result


def pod_annotations(raw: Raw, name: str = "node") -> dict[str, str]:
    """Return the annotations in kfext's entry for the pods of a replicated job."""
    jobs = {item["name"]: item for item in own_entry(raw)["spec"]["replicatedJobs"]}
    results: dict[str, str] = jobs[name]["template"]["spec"]["template"]["metadata"]["annotations"]
    return results


# --- reading ---


def test_the_templates_are_read_from_the_jobset() -> None:
    stages = [
        replicated_job("dataset-initializer", pods=1, torch=False),
        replicated_job(pods=2, after={"dataset-initializer": "Complete"}),
    ]
    job_ = read(rendered=jobset(*stages))
    assert [(group.type, group.replicas, group.after) for group in job_.groups] == [
        ("dataset-initializer", 1, ()),
        ("node", 2, ("dataset-initializer",)),
    ]
    assert (job_.pods, job_.training_pods) == (3, 2)
    assert job_.requests["cpu"] == 3000
    assert read(train_job(), jobset(namespace="other")).groups == ()


def test_replicated_jobs_in_order_depend_on_the_previous_job() -> None:
    stages = [replicated_job(name, torch=False) for name in ("first", "second", "third")]
    job_ = read(rendered=jobset(*stages, in_order=True))
    assert [group.after for group in job_.groups] == [(), ("first",), ("second",)]


EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}


@pytest.mark.parametrize("where", ["the JobSet", "the replicated job"])
def test_kfext_does_not_place_a_jobset_with_exclusive_topology(where: str) -> None:
    node = replicated_job()
    rendered_ = jobset(node)
    holder = rendered_["metadata"] if where == "the JobSet" else node["template"]["metadata"]
    holder["annotations"] = EXCLUSIVE
    want = "the node template has the annotation exclusive-topology of JobSet"
    assert read(rendered=rendered_).excess == want


FORGED = {
    "another namespace": {"namespace": "other"},
    "another name": {"name": "other"},
    "another job": {
        "ownerReferences": [{**jobset()["metadata"]["ownerReferences"][0], "uid": "x"}]
    },
    "no controller": {"ownerReferences": []},
}


@pytest.mark.parametrize("metadata", FORGED.values(), ids=FORGED)
def test_a_jobset_that_trainer_did_not_render_has_no_templates(metadata: Raw) -> None:
    rendered_ = jobset()
    rendered_["metadata"] |= metadata
    assert read(rendered=rendered_).groups == ()


def test_a_jobset_that_kfext_does_not_support_has_a_reason() -> None:
    many = read(rendered=jobset(*(replicated_job(f"job-{n}") for n in range(17))))
    assert (many.groups, many.excess) == ((), "it has more than 16 replica types")
    several = replicated_job()
    several["replicas"] = 2
    assert read(rendered=jobset(several)).excess == "the node template has several jobs"
    successive = replicated_job()
    successive["template"]["spec"]["completions"] = 5
    assert "one after the other" in read(rendered=jobset(successive)).excess


class Unread(dict[str, Any]):
    """A replicated job that must not be read."""

    def get(self, key: str, default: Any = None) -> Any:
        raise AssertionError("it was read")


def test_only_the_allowed_number_of_replicated_jobs_is_read() -> None:
    many = [replicated_job(f"job-{n}") for n in range(17)]
    result = KINDS["TrainJob"].templates({"replicatedJobs": [*many, *([Unread()] * 28_000)]})
    assert len(result) == 17


MALFORMED: list[Any] = [
    *(None, [], {}, "x", 7),
    {"replicatedJobs": 3},
    {"replicatedJobs": [3, {}, {"name": 7}]},
    {"replicatedJobs": [{"name": "node", "template": 1, "replicas": []}]},
]


@pytest.mark.parametrize("spec", MALFORMED, ids=repr)
def test_a_malformed_jobset_is_read_without_an_error(spec: Any) -> None:
    read(rendered={**jobset(), "spec": spec})


STATUS = {
    "conditions": [
        {"type": "Suspended", "status": "False", "lastTransitionTime": "2026-11-21T10:00:00Z"},
        {"type": "Complete", "status": "True", "lastTransitionTime": "2026-11-21T11:00:00Z"},
    ],
    "jobsStatus": [{"name": "node", "ready": 1, "active": 0, "succeeded": 0}],
}


def test_a_quota_of_services_does_not_count_for_a_jobset() -> None:
    quota = parse_quota(
        {
            "metadata": {"namespace": "team", "name": "limit"},
            "spec": {},
            "status": {"hard": {"services": "1", "pods": "1"}, "used": {"services": "1"}},
        }
    )
    refusal = QuotaView((quota,)).shortage(demand(read()))
    assert refusal is not None
    assert refusal.message == "the job needs 2 pods, but quota team/limit allows only 1 in all"


def test_the_status_of_a_trainjob_is_read_like_that_of_other_kinds() -> None:
    raw = {**train_job(activeDeadlineSeconds=7200), "status": STATUS}
    job_ = read(raw)
    assert (job_.run_seconds, job_.deadline) == (3600.0, 7200.0)
    assert job_.finished
    assert job_.has("Running")
    assert job_.run_by_operator
    assert not read(train_job(managedBy="kueue.x-k8s.io/multikueue")).run_by_operator


def test_a_pod_names_its_job_by_the_jobset() -> None:
    parsed = parse_pod(trainer_pod(1))
    assert (parsed.owner_uid, parsed.replica) == (JOBSET_UID, NODE_1)
    of_a_later_job = trainer_pod(1)
    of_a_later_job["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"] = "1"
    assert parse_pod(of_a_later_job).replica is None
    copied = trainer_pod(1)
    copied["metadata"]["ownerReferences"] = []
    assert (parse_pod(copied).owner_uid, parse_pod(copied).replica) == ("", None)


def test_the_labels_and_names_of_its_pods_are_known() -> None:
    labels = trainer_pod(1)["metadata"]["labels"]
    assert pod_labels(read(), NODE_1).items() <= labels.items()
    assert trainer_pod(1)["metadata"]["name"].startswith(pod_name(read(), NODE_1) + "-")


# --- admission of the job ---


def test_a_new_job_is_held_by_suspend_and_an_entry() -> None:
    raw = train_job(annotations={names.ELASTIC: "off"})
    result = mutate_job(raw, CONTEXT)
    after = apply(raw, list(result.ops))
    assert after["spec"]["suspend"] is True
    assert after["metadata"]["annotations"][names.HELD] == "true"
    assert own_entry(after) == {"metadata": {"annotations": {**SETTINGS, names.ELASTIC: "off"}}}
    assert result.verdicts[0].reason == names.REASON_HELD
    assert mutate_job(after, CONTEXT).ops == ()
    assert result.warnings == ()


def test_entries_of_other_managers_stay() -> None:
    other = {"manager": "kueue.x-k8s.io/manager"}
    raw = train_job(runtimePatches=[other])
    after = apply(raw, list(mutate_job(raw, CONTEXT).ops))
    assert after["spec"]["runtimePatches"][0] == other
    assert own_entry(after)["metadata"]["annotations"] == SETTINGS


def test_a_copied_manifest_keeps_no_annotations_of_kfext() -> None:
    copied = train_job(held=True)
    node = {"metadata": {"annotations": {names.PORT_BASE: "20001"}}}
    jobs = [{"name": "node", "template": {"spec": {"template": node}}}]
    own_entry(copied)["spec"] = {"replicatedJobs": jobs}
    own_entry(copied)["metadata"]["annotations"][names.MIGRATE] = "checkpointed"
    after = apply(copied, list(mutate_job(copied, CONTEXT).ops))
    assert own_entry(after) == {"metadata": {"annotations": SETTINGS}}


UNHELD = {
    "suspended by its user": (train_job(suspend=True), CONTEXT, names.REASON_SUSPENDED_BY_USER),
    "the controller does not handle the kind": (
        train_job(), replace(CONTEXT, kinds=frozenset({"PyTorchJob"})), names.REASON_HANDS_OFF,
    ),
    "another system runs it": (
        train_job(managedBy="kueue.x-k8s.io/multikueue"), CONTEXT, names.REASON_HANDS_OFF,
    ),
    "the controller does not answer": (
        train_job(), replace(CONTEXT, controller_alive=False), names.REASON_NOT_HELD,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "context", "reason"), UNHELD.values(), ids=UNHELD)
def test_why_a_job_is_not_held(raw: Raw, context: ReviewContext, reason: str) -> None:
    result = mutate_job(raw, context)
    after = apply(raw, list(result.ops))
    assert names.HELD not in after["metadata"]["annotations"]
    assert after["spec"].get("suspend") == raw["spec"].get("suspend")
    assert result.verdicts[0].reason == reason


REFUSED = {
    "a GPU share": ({names.GPU_SHARE: "0.5"}, "rendered after its admission"),
    "a malformed setting": ({names.COLOCATION: "mabye"}, "allowed"),
}


@pytest.mark.parametrize(("annotations", "why"), REFUSED.values(), ids=REFUSED)
def test_an_impossible_setting_is_refused(annotations: dict[str, str], why: str) -> None:
    assert why in mutate_job(train_job(annotations=annotations), CONTEXT).refusal


def test_a_range_of_sizes_has_no_effect_and_the_reason_is_shown() -> None:
    (warning,) = mutate_job(train_job(annotations={names.ELASTIC: "1-4"}), CONTEXT).warnings
    assert "the number of nodes of a TrainJob cannot change once it is created" in warning


# --- patches ---


def test_one_patch_resumes_the_job_and_gives_its_pods_the_plan() -> None:
    raw = train_job(held=True)
    raw["spec"]["runtimePatches"].insert(0, {"manager": "kueue.x-k8s.io/manager"})
    operations = unsuspend_patch(basis(raw, read(raw)), read(raw), replace(PLAN, port=20001))
    after = apply(raw, operations)
    assert after["spec"]["suspend"] is False
    assert names.HELD not in after["metadata"]["annotations"]
    assert pod_annotations(after) == {
        **SETTINGS,
        names.PLAN_GENERATION: "1",
        names.PORT_BASE: "20001",
    }
    assert "affinity" not in str(after["spec"]["runtimePatches"])
    assert {"op": "test", "path": "/spec/suspend", "value": True} in operations
    reordered = {
        **raw,
        "spec": {**raw["spec"], "runtimePatches": raw["spec"]["runtimePatches"][::-1]},
    }
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        apply(reordered, operations)


def test_the_next_start_overwrites_fields_that_jobset_would_keep() -> None:
    raw = train_job(held=True)
    started = apply(raw, unsuspend_patch(raw, read(raw), replace(PLAN, port=20001)))
    running = read(started)
    stopped = apply(started, suspend_patch(started, running, JobState()))
    assert stopped["spec"]["suspend"] is True
    assert stopped["spec"]["runtimePatches"] == started["spec"]["runtimePatches"]
    again = apply(stopped, unsuspend_patch(stopped, read(stopped), replace(PLAN, generation=2)))
    assert pod_annotations(again) == {**SETTINGS, names.PLAN_GENERATION: "2", names.PORT_BASE: ""}


def test_a_release_resumes_the_job_and_changes_templates_only_after_a_start() -> None:
    raw = train_job(held=True)
    after = apply(raw, user_release_patch(raw, read(raw)))
    assert after["spec"] == {**raw["spec"], "suspend": False}
    assert names.RELEASED in after["metadata"]["annotations"]
    started = apply(raw, unsuspend_patch(raw, read(raw), replace(PLAN, port=20001)))
    stopped = apply(started, suspend_patch(started, read(started), JobState()))
    released = pod_annotations(apply(stopped, user_release_patch(stopped, read(stopped))))
    assert (released[names.PORT_BASE], names.RELEASED in released) == ("", True)


def test_the_stored_parts_of_a_job_are_small_and_yield_the_same_patches() -> None:
    raw = train_job(held=True)
    raw["spec"]["runtimePatches"].append(
        {"manager": "x/y", "trainingRuntimeSpec": {"a": "b" * 10**6}}
    )
    kept = basis(raw, read(raw))
    assert len(str(kept)) < 1000
    job = read(raw)
    assert unsuspend_patch(kept, job, PLAN) == unsuspend_patch(raw, job, PLAN)
    assert suspend_patch(kept, job, JobState()) == suspend_patch(raw, job, JobState())
    assert user_release_patch(kept, job) == user_release_patch(raw, job)


# --- admission of its pods ---


def test_a_pod_with_the_mark_of_kfext_gets_the_gate() -> None:
    after = apply(trainer_pod(0), list(mutate_pod(trainer_pod(0), controller_alive=True).ops))
    assert after["spec"]["schedulingGates"] == [{"name": names.GATE}]
    unbuffered = {"name": "PYTHONUNBUFFERED", "value": "1"}
    assert unbuffered in after["spec"]["containers"][0]["env"]


def test_pods_of_other_jobsets_are_left_alone() -> None:
    assert mutate_pod(trainer_pod(0, annotations={}), controller_alive=True).ops == ()


@pytest.mark.parametrize(("index", "ports"), [(0, [20001]), (1, [])])
def test_a_pod_on_the_host_network_meets_at_the_port_of_its_job(
    index: int, ports: list[int]
) -> None:
    raw = trainer_pod(index, annotations={**SETTINGS, names.PORT_BASE: "20001"})
    after = apply(raw, host_network(KINDS["TrainJob"], raw["metadata"], raw["spec"]))
    (container,) = after["spec"]["containers"]
    assert after["spec"]["hostNetwork"] is True
    assert after["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert {"name": "PET_MASTER_PORT", "value": "20001"} in container["env"]
    assert [port["containerPort"] for port in container.get("ports", [])] == ports


def test_an_empty_port_means_the_pod_network() -> None:
    raw = trainer_pod(0, annotations={**SETTINGS, names.PORT_BASE: ""})
    assert host_network(KINDS["TrainJob"], raw["metadata"], raw["spec"]) == []


def test_only_pods_that_torch_starts_can_use_the_network_of_their_nodes() -> None:
    assert why_no_host_network(read(), {}) == ""
    other = read(rendered=jobset(replicated_job(torch=False)))
    want = "its runtime does not set the port at which its pods meet"
    assert why_no_host_network(other, {}) == want
