"""Parts of kfext are absent: new jobs run as on plain Kubernetes, and nothing waits without end."""

import subprocess

import pytest

from e2e.harness.jobs import gated, held, job, pinned_to, suspended, workers
from e2e.harness.kfext_process import COMMAND, Kfext
from e2e.harness.space import Space, set_managed

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}


def check_runs_plainly(space: Space, name: str, count: int) -> None:
    """Check that all pods of a job are bound without a gate or a pin of kfext."""
    space.bound(name, count)
    assert [pod for pod in space.pods(name) if gated(pod) or pinned_to(pod)] == []


def test_without_a_controller_jobs_run_as_on_plain_kubernetes(space: Space, kfext: Kfext) -> None:
    kfext.remove_controller()
    answer = space.try_submit(workers("torch", 3, each=GPU))
    assert answer.ok
    assert not suspended(answer.body)
    assert not held(answer.body)
    assert any("controller does not answer" in text for text in answer.warnings)
    space.submit(job("tensor", {"PS": 1, "Worker": 2}, kind="TFJob", each=GPU))
    check_runs_plainly(space, "torch", 3)
    check_runs_plainly(space, "tensor", 3)
    # A controller that comes back moves no pod that it did not place.
    before = space.bound("torch", 3)
    kfext.ensure()
    space.submit(workers("after", 2, each=GPU))
    space.phase("after", "Placed")
    assert space.bound("torch", 3) == before
    assert {name for name in space.pins() if not name.startswith("after")} == set()


@pytest.mark.long
def test_new_jobs_are_not_held_once_the_lease_was_not_renewed_for_thirty_seconds(
    space: Space, kfext: Kfext
) -> None:
    kfext.kill_controller()
    kfext.wait_controller_dead()
    assert suspended(space.submit(workers("early", 2, each=GPU)))
    kfext.wait_webhooks(job="seen", pod="untouched")
    assert not suspended(space.submit(workers("late", 2, each=GPU)))
    check_runs_plainly(space, "late", 2)
    assert space.pods("early") == []
    kfext.ensure()
    assert len(set(space.bound("early", 2).values())) == 1


def test_the_release_command_frees_jobs_without_a_controller(space: Space, kfext: Kfext) -> None:
    space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    gates = {"schedulingGates": [{"name": "example.com/gate"}]}
    space.submit(workers("gated", 2, each=GPU, pod=gates))
    space.phase("gated", "Gated")
    space.submit(workers("queued", 4, each=GPU))
    space.phase("queued", "Queued")
    kfext.kill_controller()
    kfext.wait_controller_dead()
    done = subprocess.run(
        [COMMAND, "release", "--all", "-n", space.name, f"--kubeconfig={kfext.testbed.kubeconfig}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "queued: unsuspended and marked as released" in done.stdout
    assert "pods ungated: 2\n" in done.stdout
    assert not suspended(space.job("queued"))
    assert not any(gated(pod) for pod in space.pods("gated"))
    space.until(lambda: len(space.pods("queued")) == 4, "the operator creates its pods")
    assert not any(gated(pod) for pod in space.pods("queued"))
    kfext.ensure()
    # A controller that comes back does not touch the released job.
    space.phase("queued", "Released")
    assert space.pins() == {}


def test_a_job_released_by_hand_is_never_touched_again(space: Space, kfext: Kfext) -> None:
    space.nodes(1, cpu="32", memory="64Gi", gpu="2")
    space.submit(workers("mine", 4, each=GPU))
    space.phase("mine", "Queued")
    subprocess.run(
        [COMMAND, "release", "mine", "-n", space.name, f"--kubeconfig={kfext.testbed.kubeconfig}"],
        check=True,
    )
    space.phase("mine", "Released")
    space.until(lambda: len(space.pods("mine")) == 4, "its pods exist")
    space.patch_job("mine", {"spec": {"runPolicy": {"suspend": True}}})
    space.until(lambda: not space.pods("mine", ending=True), "its pods are gone")
    space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("other", 4, each=GPU))
    space.phase("other", "Placed")
    assert suspended(space.job("mine"))
    assert not any(name.startswith("mine") for name in space.pins())


def test_a_job_that_no_webhook_saw_runs_plainly(space: Space, kfext: Kfext) -> None:
    kfext.kill_webhook()
    stored = space.submit(workers("unseen", 3, each=GPU))
    assert not suspended(stored)
    assert not stored["metadata"].get("annotations")
    check_runs_plainly(space, "unseen", 3)


def test_a_job_that_only_the_pod_webhook_saw_is_placed_by_its_gated_pods(
    space: Space, kfext: Kfext
) -> None:
    kfext.configure_webhooks(unreachable=("jobs.kfext.dev",))
    kfext.wait_webhooks(job="untouched", pod="gated")
    assert not suspended(space.submit(workers("late", 4, each=GPU)))
    nodes_by_pod = space.bound("late", 4)
    assert len(set(nodes_by_pod.values())) == 1
    assert space.pins() == dict.fromkeys(nodes_by_pod, 1)


def test_pods_that_the_pod_webhook_missed_prefer_the_planned_node(
    space: Space, kfext: Kfext
) -> None:
    kfext.configure_webhooks(unreachable=("pods.kfext.dev",))
    kfext.wait_webhooks(job="held", pod="untouched")
    space.nodes(4, cpu="32", memory="64Gi", gpu="8")
    assert suspended(space.submit(workers("leaning", 6, each=GPU)))
    nodes_by_pod = space.bound("leaning", 6)
    plan = space.plan("leaning")
    assert plan is not None
    assert set(nodes_by_pod.values()) == set(plan["nodes"])
    assert len(plan["nodes"]) == 1
    assert space.pins() == {}
    space.phase("leaning", "Placed")


def test_a_waiting_job_still_runs_in_a_namespace_that_is_no_longer_managed(space: Space) -> None:
    space.nodes(1, cpu="32", memory="64Gi", gpu="2")
    space.submit(workers("begun", 4, each=GPU))
    space.phase("begun", "Queued")
    set_managed(space, None)
    stored = space.submit(workers("new", 1, each=GPU))
    assert not suspended(stored)
    space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.bound("begun", 4)
