"""kfext is removed: every job continues, and nothing that is left of kfext blocks a job."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.harness.jobs import gated, held, pinned_to, suspended, workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.manual import Shell, commands, left_behind
from e2e.harness.pods import FOREIGN_GATE, admit_pods, refuse_pods, remove_foreign_gate
from e2e.harness.space import Space
from kfext import names
from kfext.controller.training_plan import encode_condition
from kfext.model.verdict import Verdict
from kfext.state.running.policy import ConditionStatus

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}


def remove_section() -> list[str]:
    """Return the commands of section "Remove" without the command that affects other cases."""
    return [command for command in commands("Remove") if not command.startswith("kubectl label")]


@pytest.fixture
def shell(kfext: Kfext, tmp_path: Path) -> Iterator[Shell]:
    """A shell; afterwards kfext is installed again, because the case removes it."""
    yield Shell(kfext.testbed, tmp_path)
    kfext.end_processes()
    kfext.forget_webhooks()
    kfext.apply_manifests()
    kfext.ensure()


def held_jobs(space: Space, starved: Space) -> None:
    """Submit jobs that are placed, gated and queued, and a planned job with refused pods."""
    space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    space.submit(workers("placed", 2, each=GPU))
    space.phase("placed", "Placed")
    space.submit(workers("gated", 2, each=GPU, pod=FOREIGN_GATE))
    space.phase("gated", "Gated")
    space.submit(workers("queued", 4, each=GPU))
    space.phase("queued", "Queued")
    space.submit(workers("sharing", 1, each=GPU, annotations={names.GPU_SHARE: "0.5"}))
    space.phase("sharing", "Queued")
    refuse_pods(starved)
    starved.submit(workers("planned", 2, each=GPU))
    starved.phase("planned", "Planned")


def check_freed(space: Space, starved: Space) -> None:
    """Check that every job is released to plain Kubernetes, and a new job runs."""
    assert not suspended(space.job("queued"))
    admit_pods(starved, "planned")
    starved.bound("planned", 2)
    remove_foreign_gate(space, "gated")
    space.nodes(1, cpu="32", memory="64Gi", gpu="8")
    space.bound("gated", 2)
    space.bound("queued", 4)
    space.bound("sharing", 1)
    space.submit(workers("new", 1))
    space.bound("new", 1)
    pods = [*space.pods(), *starved.pods()]
    assert not any(gated(pod) for pod in pods)
    fresh = [pod for pod in pods if not pod["metadata"]["name"].startswith(("placed", "planned"))]
    assert not any(pinned_to(pod) for pod in fresh)
    for name in ("placed", "gated", "queued", "sharing", "new"):
        assert "finalizers" not in space.job(name)["metadata"]


def test_the_command_in_remove_md_waits_until_no_cpu_is_boosted(
    space: Space, kfext: Kfext, tmp_path: Path
) -> None:
    (wait,) = (command for command in remove_section() if command.startswith("while "))
    still = wait.removeprefix("while ").partition("; do ")[0]
    shell = Shell(kfext.testbed, tmp_path)
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "gone", "uid": "none"}
    body = {
        "apiVersion": "kfext.dev/v1alpha1",
        "kind": "TrainingPlan",
        "metadata": {"name": "pytorchjob-resized"},
        "spec": {"job": job},
    }
    space.kube.create(space.path("trainingplans"), body)
    status = f"{space.path('trainingplans', 'pytorchjob-resized')}/status"
    shell.run(f"! ({still})")
    for resized in (True, False):
        shown = ConditionStatus(resized, Verdict(names.REASON_CPU_MOVED, "700m"))
        condition = encode_condition(names.RESIZED, shown, {}, now=time.time())
        space.kube.patch(status, {"status": {"conditions": [condition]}})
        shell.run(still if resized else f"! ({still})")
    shell.run(wait)


@pytest.mark.long
def test_removal_as_in_remove_md_frees_every_job_and_leaves_no_object(
    new_space: Callable[..., Space], kfext: Kfext, shell: Shell
) -> None:
    space, starved = new_space(), new_space()
    held_jobs(space, starved)
    output = ""
    for command in remove_section():
        output += shell.run(command)
        if "delete -k" in command:  # it would end the pods of the Deployments
            kfext.end_processes()
    assert "queued: unsuspended and marked as released" in output
    assert "gated: marked as released" in output
    assert left_behind(kfext.kube) == []
    check_freed(space, starved)


@pytest.mark.long
def test_a_release_after_the_removal_still_frees_every_job(
    new_space: Callable[..., Space], kfext: Kfext, shell: Shell
) -> None:
    space, starved = new_space(), new_space()
    held_jobs(space, starved)
    kfext.end_processes()
    (delete,) = (command for command in remove_section() if "delete -k" in command)
    shell.run(delete)
    assert left_behind(kfext.kube) == []
    assert held(space.job("queued"))
    assert suspended(space.job("queued"))
    shell.run("kubectl kfext release --all --all-namespaces")
    check_freed(space, starved)
