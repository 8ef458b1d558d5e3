"""TrainJobs of Kubeflow Trainer 2 are held, planned from the JobSet, gated and pinned."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest

from e2e.cases.test_cli import kfext
from e2e.harness import jobs
from e2e.harness.faults import KillAfter, Match, plan_write, pod_patch, unsuspend_patch
from e2e.harness.jobs import ended, gated, jobs_path, pinned_to
from e2e.harness.kfext_process import Kfext
from e2e.harness.pods import admit_pods, refuse_pods, succeed
from e2e.harness.space import CASE, Space
from e2e.harness.standing import trainer_or_skipped
from e2e.testbed import trainer
from e2e.testbed.cluster import Testbed
from kfext import names

Object = dict[str, Any]


@pytest.fixture(scope="module")
def with_trainer(testbed: Testbed, installed: Kfext) -> Iterator[None]:
    """Trainer and JobSet run in the cluster, and the controller has discovered their kinds."""
    with trainer_or_skipped(testbed):
        installed.stop_controller()
        installed.ensure()
        yield


def train_job(space: Space, name: str, nodes: int, *, cpu: Any = "2", **annotations: str) -> Object:
    resources, selector = {"requests": {"cpu": cpu}}, {"nodeSelector": {CASE: space.name}}
    return jobs.train_job(name, nodes, resources=resources, annotations=annotations, pod=selector)


def path(space: Space, name: str = "") -> str:
    return jobs_path(space.name, "TrainJob", name)


def submit(space: Space, body: Object) -> Object:
    stored: Object = space.kube.create(path(space), body)
    return stored


def pods(space: Space, job: str) -> list[Object]:
    selector = f"?labelSelector={jobs.pod_label(jobs.TRAIN_JOB)}%3D{job}"
    return space.kube.items(f"/api/v1/namespaces/{space.name}/pods{selector}")


def bound_nodes(space: Space, job: str, count: int) -> dict[str, str]:
    """Wait until exactly `count` pods of a job exist and are bound; return their nodes by name."""

    def bound() -> dict[str, str] | None:
        nodes_of = {
            pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods(space, job)
        }
        return nodes_of if len(nodes_of) == count and all(nodes_of.values()) else None

    nodes: dict[str, str] = space.until(bound, f"{count} pods of {job} are bound")
    return nodes


@contextmanager
def runtime(
    space: Space, edit: Callable[[Object], None], *, policy: Object | None = None
) -> Iterator[str]:
    """Create a copy of the torch runtime with changes; yield its name.

    `edit`: changes the spec of its JobSet. `policy`: its mlPolicy, if it differs.
    """
    root = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
    base = space.kube.get(f"{root}/{trainer.RUNTIME}")
    edit(base["spec"]["template"]["spec"])
    base["spec"]["mlPolicy"] = policy or base["spec"]["mlPolicy"]
    space.kube.create(root, {**base, "metadata": {"name": space.name}})
    try:
        yield space.name
    finally:
        space.kube.delete(f"{root}/{space.name}")


def in_order(jobset: Object) -> None:
    """Add a second replicated job with one pod, which starts once the first is ready."""
    later = deepcopy(jobset["replicatedJobs"][0])
    later["name"] = "driver"
    del later["template"]["metadata"]["labels"]
    jobset["replicatedJobs"].append(later)
    jobset["startupPolicy"] = {"startupPolicyOrder": "InOrder"}


MPI = {"mpi": {"mpiImplementation": "OpenMPI", "runLauncherAsNode": False}}


def with_launcher(jobset: Object) -> None:
    """Add a launcher that starts the training, as in Trainer's runtime for DeepSpeed."""
    (node,) = jobset["replicatedJobs"]
    launcher = deepcopy(node) | {
        "name": "launcher",
        "dependsOn": [{"name": "node", "status": "Ready"}],
    }
    del node["template"]["metadata"]["labels"]
    jobset["replicatedJobs"].append(launcher)


def by_another_scheduler(jobset: Object) -> None:
    (node,) = jobset["replicatedJobs"]
    node["template"]["spec"]["template"]["spec"]["schedulerName"] = "kai-scheduler"


def marked(space: Space, name: str) -> bool:
    """Return whether the templates that Trainer rendered have the annotation colocation."""
    root = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{space.name}/jobsets"
    jobset = space.kube.find(f"{root}/{name}")
    return names.COLOCATION in json.dumps(jobset["spec"] if jobset else {})


@pytest.mark.usefixtures("with_trainer")
@pytest.mark.parametrize("cpu", ["2", 2, "2000m"], ids=repr)
def test_a_train_job_is_held_and_bound_to_one_node_as_planned(space: Space, cpu: Any) -> None:
    space.nodes(2, cpu="16", memory="64Gi")
    stored = submit(space, train_job(space, "one", 3, cpu=cpu))
    assert stored["spec"]["suspend"] is True
    assert names.HELD in stored["metadata"]["annotations"]
    (home,) = set(bound_nodes(space, "one", 3).values())
    for pod in pods(space, "one"):
        assert pinned_to(pod) == [home]
        assert not gated(pod)
    plan = space.kube.get(path(space, "one"))["metadata"]["annotations"][names.PLAN]
    assert home in plan
    for pod in pods(space, "one"):
        succeed(space, pod["metadata"]["name"])
    space.until(lambda: ended(space.kube.get(path(space, "one"))), "the job is complete")


@pytest.mark.usefixtures("with_trainer")
def test_a_train_job_without_capacity_waits_suspended_and_starts_when_there_is_capacity(
    space: Space,
) -> None:
    space.nodes(1, cpu="3", memory="64Gi")
    submit(space, train_job(space, "waits", 2, **{names.COLOCATION: "required"}))
    space.until(
        lambda: space.view("waits", "TrainJob").get("reason") == "TooBig", "the job is too big"
    )
    assert pods(space, "waits") == []
    (big,) = space.nodes(1, cpu="16", memory="64Gi")
    assert set(bound_nodes(space, "waits", 2).values()) == {big}


@pytest.mark.usefixtures("with_trainer")
def test_a_train_job_on_the_host_network_has_a_port_of_its_own(space: Space) -> None:
    space.nodes(1, cpu="8", memory="64Gi")
    submit(space, train_job(space, "host", 2, **{names.NETWORK: "host"}))
    bound_nodes(space, "host", 2)
    first, second = sorted(pods(space, "host"), key=lambda pod: str(pod["metadata"]["name"]))
    assert first["spec"]["hostNetwork"]
    assert second["spec"]["hostNetwork"]
    (port,) = first["spec"]["containers"][0]["ports"]
    assert "ports" not in second["spec"]["containers"][0]
    for pod in (first, second):
        env = {item["name"]: item.get("value") for item in pod["spec"]["containers"][0]["env"]}
        assert env["PET_MASTER_PORT"] == str(port["containerPort"])


DEATHS: dict[str, tuple[Callable[[str], Match], int]] = {
    "before the patch that plans and resumes": (unsuspend_patch, 0),
    "after the patch that plans and resumes": (unsuspend_patch, 1),
    "after the first pin": (pod_patch, 1),
    "after the last pin": (pod_patch, 3),
    "after the first write of the TrainingPlan": (plan_write, 1),
}


@pytest.mark.usefixtures("with_trainer")
@pytest.mark.parametrize(("match", "nth"), DEATHS.values(), ids=DEATHS)
def test_a_train_job_is_placed_once_though_the_controller_is_killed(
    space: Space, kfext: Kfext, match: Callable[[str], Match], nth: int
) -> None:
    space.nodes(2, cpu="16", memory="64Gi")
    fault = KillAfter(match(space.name), nth=nth)
    kfext.proxy.arm(fault)
    submit(space, train_job(space, "one", 3))
    space.until(lambda: fault.fired, "the controller has reached that write")
    kfext.wait_controller_dead()
    kfext.proxy.heal()
    kfext.restart_killed_controller()
    nodes = bound_nodes(space, "one", 3)
    assert len(set(nodes.values())) == 1
    space.phase("one", "Placed", "TrainJob")
    assert space.pins() == dict.fromkeys(nodes, 1)
    assert space.starts() == 1


@pytest.mark.usefixtures("with_trainer")
def test_a_train_job_that_loses_its_planned_node_is_planned_again(space: Space) -> None:
    """No pod may be deleted, because each deleted pod would count as failed."""
    first, second = space.nodes(2, cpu="16", memory="64Gi")
    refuse_pods(space)
    submit(space, train_job(space, "one", 3))
    space.phase("one", "Planned", "TrainJob")
    plan = space.kube.get(path(space, "one"))["metadata"]["annotations"][names.PLAN]
    home = first if first in plan else second
    space.lose_node(home)
    admit_pods(space)
    (now,) = set(bound_nodes(space, "one", 3).values())
    assert {home, now} == {first, second}
    assert all(
        job["failed"] == 0 for job in space.kube.get(path(space, "one"))["status"]["jobsStatus"]
    )


@pytest.mark.usefixtures("with_trainer")
def test_replicated_jobs_that_start_in_order_are_all_bound_as_planned(space: Space) -> None:
    (home,) = space.nodes(1, cpu="16", memory="64Gi")
    body = train_job(space, "one", 2)
    with runtime(space, in_order) as name:
        body["spec"]["runtimeRef"]["name"] = name
        submit(space, body)
        assert set(bound_nodes(space, "one", 3).values()) == {home}
        assert all(pinned_to(pod) == [home] for pod in pods(space, "one"))
        assert space.starts() == 1


@pytest.mark.usefixtures("with_trainer")
def test_an_mpi_launcher_leaves_a_drained_node_together_with_its_nodes(
    space: Space,
) -> None:
    space.nodes(2, cpu="16", memory="64Gi")
    body = train_job(space, "one", 2)
    jobset = body["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]
    jobset["replicatedJobs"].append(deepcopy(jobset["replicatedJobs"][0]) | {"name": "launcher"})
    with runtime(space, with_launcher, policy=MPI) as name:
        body["spec"]["runtimeRef"]["name"] = name
        submit(space, body)
        (before,) = set(bound_nodes(space, "one", 3).values())
        drained = kfext(space, "drain", before, "--force", "--timeout=60")
        assert drained.returncode == 0, drained.stdout + drained.stderr
        (after,) = set(bound_nodes(space, "one", 3).values())
    assert after != before
    assert space.kube.get(path(space, "one"))["spec"]["suspend"] is False
    assert kfext(space, "uncordon", before).returncode == 0


@pytest.mark.usefixtures("with_trainer")
def test_a_train_job_is_released_if_its_runtime_names_another_scheduler(space: Space) -> None:
    space.nodes(1, cpu="1", memory="64Gi")
    body = train_job(space, "one", 2)
    with runtime(space, by_another_scheduler) as name:
        body["spec"]["runtimeRef"]["name"] = name
        submit(space, body)
        space.phase("one", "Released", "TrainJob")
        space.until(lambda: len(pods(space, "one")) == 2, "both pods exist, without capacity")
        assert not any(gated(pod) or pinned_to(pod) for pod in pods(space, "one"))


@pytest.mark.usefixtures("with_trainer")
def test_progress_that_a_program_posts_to_trainer_is_shown(space: Space) -> None:
    """The case writes the field in place of Trainer's endpoint, which is off by default."""
    space.nodes(1, cpu="16", memory="64Gi")
    submit(space, train_job(space, "one", 1))
    space.phase("one", "Placed", "TrainJob")
    metrics = {"loss": "0.5", "current_step": "40", "total_steps": "100"}
    samples = [{"name": name, "value": value} for name, value in metrics.items()]
    now = datetime.now(UTC).isoformat()
    status = {"lastUpdatedTime": now, "progressPercentage": 40, "metrics": samples}
    space.kube.patch(f"{path(space, 'one')}/status", {"status": {"trainerStatus": status}})
    progress = space.until(
        lambda: space.view("one", "TrainJob").get("progress"), "the progress is shown"
    )
    assert (progress["step"], progress["totalSteps"], progress["value"]) == (40, 100, 0.5)


@pytest.mark.usefixtures("with_trainer")
def test_a_train_job_that_kueue_resumes_is_pinned_and_never_suspended(space: Space) -> None:
    space.nodes(2, cpu="16", memory="64Gi")
    body = train_job(space, "one", 3)
    body["metadata"]["labels"] = {names.KUEUE_QUEUE: "default"}
    body["spec"]["suspend"] = True
    stored = submit(space, body)
    assert names.HELD not in stored["metadata"].get("annotations", {})
    space.until(lambda: marked(space, "one"), "kfext has marked the templates")
    space.kube.patch(path(space, "one"), {"spec": {"suspend": False}})
    (home,) = set(bound_nodes(space, "one", 3).values())
    assert all(pinned_to(pod) == [home] for pod in pods(space, "one"))
    assert space.starts() == 0
