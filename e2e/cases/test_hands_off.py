"""Objects that kfext must not touch: other namespaces, other systems' jobs, a person's choice."""

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
    """Return pods as text, without the fields that differ between two runs of the same job."""
    comparable = []
    for pod in sorted(pods, key=lambda body: str(body["metadata"]["name"])):
        metadata = {k: v for k, v in pod["metadata"].items() if k not in _VOLATILE}
        metadata["ownerReferences"] = [
            {k: v for k, v in owner.items() if k != "uid"} for owner in metadata["ownerReferences"]
        ]
        spec = json.dumps(pod["spec"])
        for volume in pod["spec"].get("volumes", []):  # its name has a random end
            spec = spec.replace(volume["name"], "account")
        comparable.append({"metadata": metadata, "spec": json.loads(spec)})
    return json.dumps(comparable, sort_keys=True, indent=1).replace(space.name, "NAMESPACE")


def test_in_an_unmanaged_namespace_pods_are_byte_identical_with_and_without_kfext(
    new_space: Callable[..., Space], kfext: Kfext
) -> None:
    def run(space: Space) -> str:
        space.nodes(1, cpu="32", memory="64Gi", gpu="8")  # one, so that the choice is the same
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
            "the policy is known to the webhook",
        )
    stored = space.submit(workers("off", 3, each=GPU, annotations=OFF if place == "job" else {}))
    assert not suspended(stored)
    space.bound("off", 3)
    assert [pod for pod in space.pods("off") if gated(pod) or pinned_to(pod)] == []
    assert space.pins() == {}


def test_a_jobs_own_setting_overrides_the_namespaces_which_overrides_the_policys(
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


def test_a_job_that_a_person_suspended_waits_for_the_person_and_is_placed_together_then(
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


def test_a_person_may_suspend_a_placed_job_and_resume_it_by_hand(space: Space) -> None:
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


def test_a_held_job_that_a_person_resumes_by_hand_is_theirs_to_suspend(space: Space) -> None:
    space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    quotas = f"/api/v1/namespaces/{space.name}/resourcequotas"
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    space.kube.create(quotas, {"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    space.until(lambda: space.kube.get(f"{quotas}/none").get("status"), "the quota holds")
    space.submit(workers("mine", 4, each=GPU))
    space.phase("mine", "Queued")
    # It has no pods, so kfext has no cause to suspend it.
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
    # A real job afterwards would meet any remains of the dry run.
    space.submit(workers("real", 2, each=GPU))
    space.phase("real", "Placed")
    assert space.kube.find(space.path("pytorchjobs", "trial")) is None
    assert space.view("trial") == {}
    assert not [exchange for exchange in kfext.proxy.writes()[before:] if b"trial" in exchange.body]


def test_a_job_that_another_controller_runs_is_not_touched(space: Space) -> None:
    policy = {"managedBy": "kueue.x-k8s.io/multikueue"}
    stored = space.submit(workers("elsewhere", 2, each=GPU, policy=policy))
    assert not suspended(stored)
    assert not held(stored)
    space.submit(workers("here", 2, each=GPU))
    space.phase("here", "Placed")
    after = space.job("elsewhere")
    assert after["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]


def test_kueue_alone_suspends_and_resumes_its_jobs_and_kfext_places_them_then(space: Space) -> None:
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    # Kueue's own webhook suspends; the test acts in its place.
    stored = space.submit(workers("queued", 4, each=GPU, labels=labels, policy={"suspend": True}))
    assert not held(stored)
    space.phase("queued", "Suspended")
    assert suspended(space.job("queued"))
    space.patch_job("queued", {"spec": {"runPolicy": {"suspend": False}}})
    assert len(set(space.bound("queued", 4).values())) == 1
    assert set(space.pins().values()) == {1}
    assert space.starts() == 0


def test_a_label_that_kueue_adds_after_kfexts_webhook_still_keeps_kfext_from_resuming(
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


def test_another_systems_gate_is_left_and_kfexts_gate_is_removed_after_it(space: Space) -> None:
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
