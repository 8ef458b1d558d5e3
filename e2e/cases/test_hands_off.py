"""Objects that kfext must not touch: in other namespaces, of other systems, or by user's choice."""

import json
from collections.abc import Callable

import pytest

from e2e.harness.jobs import gated, held, job, pinned_to, suspended, workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.kube import Object
from e2e.harness.space import Space

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}
OFF = {"kfext.dev/colocation": "off"}
_VOLATILE = {"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"}


def canonical(pods: list[Object], space: Space) -> str:
    """Return pods as JSON, without the fields that differ between two runs of the same job."""
    comparable = []
    for pod in sorted(pods, key=lambda body: str(body["metadata"]["name"])):
        metadata = {k: v for k, v in pod["metadata"].items() if k not in _VOLATILE}
        metadata["ownerReferences"] = [
            {k: v for k, v in owner.items() if k != "uid"} for owner in metadata["ownerReferences"]
        ]
        spec = json.dumps(pod["spec"])
        for volume in pod["spec"].get("volumes", []):  # its name ends with random characters
            spec = spec.replace(volume["name"], "account")
        comparable.append({"metadata": metadata, "spec": json.loads(spec)})
    return json.dumps(comparable, sort_keys=True, indent=1).replace(space.name, "NAMESPACE")


def test_in_an_unmanaged_namespace_pods_are_byte_identical_with_and_without_kfext(
    new_space: Callable[..., Space], kfext: Kfext
) -> None:
    def run(space: Space) -> str:
        space.nodes(1, cpu="32", memory="64Gi", gpu="8")  # only one, so both runs use it
        space.submit(workers("torch", 3, each=GPU))
        space.submit(job("tensor", {"PS": 1, "Worker": 2}, kind="TFJob", each=GPU))
        space.bound("torch", 3)
        space.bound("tensor", 3)
        return canonical(space.pods(), space)

    beside = new_space(managed=False)
    with_kfext = run(beside)
    assert beside.view("torch") == {}
    assert not [
        exchange for exchange in kfext.proxy.writes() if f"/{beside.name}/" in exchange.path
    ]
    kfext.remove_everything()
    assert run(new_space(managed=False)) == with_kfext


@pytest.mark.parametrize("place", ["job", "namespace", "policy"])
def test_colocation_off_starts_a_job_as_on_plain_kubernetes(
    new_space: Callable[..., Space], place: str
) -> None:
    space = new_space(annotations=OFF if place == "namespace" else {})
    if place == "policy":
        space.policy(settings={"colocation": "off"})
        trial = workers("trial", 1, each=GPU)
        space.until(
            lambda: not suspended(space.try_submit(trial, query="?dryRun=All").body),
            "the webhook has received the policy",
        )
    stored = space.submit(workers("off", 3, each=GPU, annotations=OFF if place == "job" else {}))
    assert not suspended(stored)
    space.bound("off", 3)
    assert [pod for pod in space.pods("off") if gated(pod) or pinned_to(pod)] == []
    assert space.pins() == {}


def test_a_setting_of_the_job_overrides_the_namespace_which_overrides_the_policy(
    new_space: Callable[..., Space],
) -> None:
    space = new_space(annotations={"kfext.dev/colocation": "required"})
    space.policy(settings={"colocation": "off"})
    mine = space.submit(workers("mine", 2, each=GPU, annotations=OFF))
    theirs = space.submit(workers("theirs", 2, each=GPU))
    assert not suspended(mine)
    assert suspended(theirs)
    template = theirs["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    assert template["metadata"]["annotations"]["kfext.dev/colocation"] == "required"
    space.bound("theirs", 2)


def test_a_job_that_its_user_suspended_is_placed_on_one_node_once_the_user_resumes_it(
    space: Space,
) -> None:
    stored = space.submit(workers("mine", 4, each=GPU, policy={"suspend": True}))
    assert not held(stored)
    assert space.phase("mine", "Suspended")["reason"] == "SuspendedByUser"
    assert space.starts() == 0
    space.patch_job("mine", {"spec": {"runPolicy": {"suspend": False}}})
    assert len(set(space.bound("mine", 4).values())) == 1
    space.phase("mine", "Placed")
    assert set(space.pins().values()) == {1}


def test_a_user_may_suspend_a_placed_job_and_resume_it(space: Space) -> None:
    space.submit(workers("mine", 4, each=GPU))
    space.phase("mine", "Placed")
    space.patch_job("mine", {"spec": {"runPolicy": {"suspend": True}}})
    space.phase("mine", "Suspended")
    space.until(lambda: not space.pods("mine", ending=True), "its pods are gone")
    space.submit(workers("other", 4, each=GPU))  # kfext places it, and not the suspended job
    space.phase("other", "Placed")
    assert suspended(space.job("mine"))
    assert space.view("mine")["phase"] == "Suspended"
    space.patch_job("mine", {"spec": {"runPolicy": {"suspend": False}}})
    assert len(set(space.bound("mine", 4).values())) == 1
    space.phase("mine", "Placed")


def test_a_held_job_that_its_user_resumes_is_the_users_to_suspend(space: Space) -> None:
    space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    quotas = f"/api/v1/namespaces/{space.name}/resourcequotas"
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    space.kube.create(quotas, {"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    space.until(lambda: space.kube.get(f"{quotas}/none").get("status"), "the quota has a status")
    space.submit(workers("mine", 4, each=GPU))
    space.phase("mine", "Queued")
    # The job has no pods, so kfext has no reason to suspend it.
    space.patch_job("mine", {"spec": {"runPolicy": {"suspend": False}}})
    space.until(lambda: not held(space.job("mine")), "the mark of kfext is gone")
    space.patch_job("mine", {"spec": {"runPolicy": {"suspend": True}}})
    space.phase("mine", "Suspended")
    space.kube.delete(f"{quotas}/none")
    space.submit(workers("other", 4, each=GPU))  # kfext places it, and suspends no other
    space.phase("other", "Placed")
    assert suspended(space.job("mine"))
    assert space.view("mine")["phase"] == "Suspended"


def test_a_dry_run_create_is_answered_and_changes_nothing(space: Space, kfext: Kfext) -> None:
    before = len(kfext.proxy.writes())
    answer = space.try_submit(workers("trial", 2, each=GPU), query="?dryRun=All")
    assert answer.ok
    assert suspended(answer.body)
    assert held(answer.body)
    # A later job would meet any remains of the dry run.
    space.submit(workers("real", 2, each=GPU))
    space.phase("real", "Placed")
    assert space.kube.find(space.path("pytorchjobs", "trial")) is None
    assert space.view("trial") == {}
    assert not [exchange for exchange in kfext.proxy.writes()[before:] if b"trial" in exchange.body]


def test_a_job_with_a_foreign_managed_by_is_not_touched(space: Space) -> None:
    policy = {"managedBy": "kueue.x-k8s.io/multikueue"}
    stored = space.submit(workers("elsewhere", 2, each=GPU, policy=policy))
    assert not suspended(stored)
    assert not held(stored)
    space.submit(workers("here", 2, each=GPU))
    space.phase("here", "Placed")
    after = space.job("elsewhere")
    assert after["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]


def test_only_kueue_suspends_and_resumes_its_jobs_and_kfext_then_places_them(space: Space) -> None:
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    # The test suspends the job in place of Kueue's webhook.
    stored = space.submit(workers("queued", 4, each=GPU, labels=labels, policy={"suspend": True}))
    assert not held(stored)
    space.phase("queued", "Suspended")
    assert suspended(space.job("queued"))
    space.patch_job("queued", {"spec": {"runPolicy": {"suspend": False}}})
    assert len(set(space.bound("queued", 4).values())) == 1
    assert set(space.pins().values()) == {1}
    assert space.starts() == 0


def test_kfext_does_not_resume_a_queued_job_that_gets_kueues_label(
    space: Space,
) -> None:
    space.nodes(1, cpu="32", memory="64Gi", gpu="2")
    space.submit(workers("late", 4, each=GPU))
    space.phase("late", "Queued")
    space.patch_job("late", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "team"}}})
    space.phase("late", "Suspended")
    space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("other", 4, each=GPU))
    space.phase("other", "Placed")
    assert suspended(space.job("late"))
    assert space.pods("late") == []


def test_kfext_removes_its_gate_only_after_the_gate_of_another_system(space: Space) -> None:
    gates = {"schedulingGates": [{"name": "example.com/quota"}]}
    space.submit(workers("shared", 3, each=GPU, pod=gates))
    view = space.phase("shared", "Gated")
    assert view["reason"] == "ForeignGate"
    for pod in space.pods("shared"):
        assert [gate["name"] for gate in pod["spec"]["schedulingGates"]] == [
            "example.com/quota",
            "kfext.dev/placement",
        ]
        patch = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
        space.kube.patch(space.path("pods", pod["metadata"]["name"]), patch, kind="json")
    assert len(set(space.bound("shared", 3).values())) == 1
    assert set(space.pins().values()) == {1}


def test_a_job_of_another_scheduler_is_neither_held_nor_gated(space: Space) -> None:
    stored = space.submit(workers("custom", 2, each=GPU, pod={"schedulerName": "volcano"}))
    assert not suspended(stored)
    pods = space.until(lambda: space.pods("custom"), "its pods exist")
    assert not any(gated(pod) for pod in pods)
