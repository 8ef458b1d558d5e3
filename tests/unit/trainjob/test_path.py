"""The path of a TrainJob through the planner: held, rendered, started, gated, pinned, placed."""

import copy
from dataclasses import replace
from typing import Any

import jsonpatch
import pytest

from kfext import names
from kfext.cli.plan import Forecast, sources_in
from kfext.core.lifecycle.patience import REPORTS
from kfext.core.lifecycle.steps import (
    DeleteUnbound,
    Pin,
    Release,
    SaveState,
    Step,
    Suspend,
    Ungate,
    Unsuspend,
    Wait,
    job_operations,
)
from kfext.errors import UserError
from kfext.model.kinds.trainjob import TrainJob
from kfext.model.moment import Moment
from kfext.model.namespace import Namespace
from kfext.model.pod import Pod, parse_pod
from kfext.model.rendered import parse_rendered
from kfext.model.snapshot import Snapshot
from kfext.state.planner.planner import Planner
from tests.builders import moment, node
from tests.trainjobs import JOB_UID, Raw, jobset, replicated_job, train_job, trainer_pod


class World:
    """A planner that observes nodes, one TrainJob as the API server stores it, and its pods."""

    def __init__(self, raw: Raw, *, nodes: int = 1, cpu: str = "8") -> None:
        self.planner = Planner()
        self.raw, self.version = raw, 1
        self.pods: dict[str, Pod] = {}
        self.now = 1000.0
        self.planner.settings.observe_namespace(None, Namespace("team", {names.MANAGED: "true"}))
        for number in range(nodes):
            self.planner.cluster.observe_node(None, node(f"n{number}", cpu=cpu))
        self.show_job(raw)

    def show_job(self, raw: Raw) -> None:
        self.version += 1
        self.raw = {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(self.version)}}
        self.planner.cluster.observe_job(self.raw)

    def render(self, *replicated: Raw, **fields: Any) -> None:
        self.planner.cluster.observe_rendered(None, parse_rendered(jobset(*replicated, **fields)))

    def show_pod(self, index: int, **fields: Any) -> None:
        raw = trainer_pod(index, **fields)
        raw["metadata"]["resourceVersion"] = str(len(self.pods) + self.version + 100)
        self.version += 1
        parsed = parse_pod(raw)
        self.planner.cluster.observe_pod(self.pods.get(parsed.uid), parsed)
        self.pods[parsed.uid] = parsed

    def show_pods(self, **fields: Any) -> None:
        """Let the planner observe the two pods of the job."""
        for index in (0, 1):
            self.show_pod(index, **fields)

    def delete_pod(self, index: int, **fields: Any) -> None:
        uid = parse_pod(trainer_pod(index, **fields)).uid
        self.planner.cluster.observe_pod(self.pods.pop(uid), None)

    def step(self, *, later: float = 0.0) -> Step | None:
        """Return the next step after `later` seconds; apply it to the job if it writes the job."""
        self.now += later
        now = Moment(wall=self.now, monotonic=self.now)
        steps = self.planner.tick(now).steps
        if not steps:
            tracked = self.planner.cluster.jobs[JOB_UID]
            return Wait(tracked.phase, tracked.verdict)
        ((tracked, step),) = steps
        operations = job_operations(step, tracked.raw, tracked.job)
        if operations is not None:
            self.show_job(jsonpatch.apply_patch(self.raw, operations))
        self.planner.finish(tracked, now)
        return step

    def set_condition(self, type_: str, status: str = "True") -> None:
        result = {"type": type_, "status": status, "lastTransitionTime": moment(self.now)}
        self.show_job({**self.raw, "status": {"conditions": [result]}})


def start(*replicated: Raw, in_order: bool = False, **world_size: Any) -> World:
    world = World(train_job(held=True), **world_size)
    world.render(*replicated, in_order=in_order)
    step = world.step()
    assert isinstance(step, Unsuspend), step
    return world


def pins(world: World) -> dict[str, str]:
    """Return the nodes by the names of the pods that the next step pins."""
    step = world.step()
    assert isinstance(step, Pin), step
    return {pod.name: node_name for pod, node_name in step.pins}


def test_a_held_job_waits_until_trainer_has_rendered_it() -> None:
    world = World(train_job(held=True))
    step = world.step()
    assert isinstance(step, Wait)
    assert step.verdict is not None
    assert step.verdict.reason == names.REASON_WAITING_FOR_OPERATOR
    world.render()
    assert isinstance(world.step(), Unsuspend)


def test_a_job_that_is_never_rendered_is_released() -> None:
    world = World(train_job(held=True))
    world.step()
    step = world.step(later=31)
    assert isinstance(step, Release)
    assert step.verdict.message == (
        "the operator has not made its templates (jobsets) yet after 30 s"
    )


def test_a_job_is_placed_once_all_its_pods_exist() -> None:
    world = start()
    world.show_pod(0, gated=True)
    assert isinstance(world.step(), Wait)
    world.show_pod(1, gated=True)
    assert set(pins(world).values()) == {"n0"}
    for index in (0, 1):
        world.show_pod(index, pinned="n0")
        world.show_pod(index, pinned="n0", node="n0")
    while isinstance(world.step(), SaveState):
        pass
    assert world.planner.cluster.jobs[JOB_UID].phase == names.PLACED


def test_pods_seen_before_their_jobset_belong_to_the_job() -> None:
    world = World(train_job(held=True))
    world.show_pod(0, gated=True)
    assert world.planner.cluster.pods(JOB_UID) == ()
    world.render()
    assert [pod.owner_uid for pod in world.planner.cluster.pods(JOB_UID)] == [JOB_UID]
    world.delete_pod(0, gated=True)
    assert world.planner.cluster.pods(JOB_UID) == ()


STAGES = (
    replicated_job("node", pods=2, torch=False),
    replicated_job("launcher", pods=1, after={"node": "Ready"}, torch=False),
)


IN_ORDER = (replicated_job("node", torch=False), replicated_job("launcher", pods=1, torch=False))


@pytest.mark.parametrize("in_order", [False, True], ids=["dependsOn", "startupPolicy InOrder"])
def test_pods_of_a_later_stage_delay_no_other_pod_and_their_capacity_is_held(
    in_order: bool,
) -> None:
    world = start(*(IN_ORDER if in_order else STAGES), in_order=in_order, cpu="3")
    world.show_pod(0, gated=True)
    step = world.step()
    assert isinstance(step, Wait)
    assert step.verdict is not None
    assert step.verdict.message == "1 of 2 pods exist"
    world.show_pod(1, gated=True)
    assert len(pins(world)) == 2
    world.show_pods(pinned="n0", node="n0", phase="Running")
    while isinstance(world.step(), SaveState):
        pass
    tracked = world.planner.cluster.jobs[JOB_UID]
    assert tracked.phase == names.PLACED
    assert tracked.verdict is not None
    assert tracked.verdict.message == "2 pods are on n0"
    row = world.planner.cluster.ledger.row("n0")
    assert world.planner.cluster.ledger.free(["cpu"])[0, row] == 0, (
        "the launcher's capacity is held"
    )
    world.show_pod(0, replicated="launcher", gated=True)
    assert list(pins(world).values()) == ["n0"]


def test_the_job_is_suspended_for_pods_that_are_not_bound_in_time() -> None:
    world = start(nodes=2)
    world.show_pods(gated=True)
    homes = set(pins(world).values())
    world.show_pods(pinned=min(homes))
    world.step()
    step = world.step(later=61)
    assert isinstance(step, Suspend), step
    assert world.raw["spec"]["suspend"] is True
    for index in (0, 1):
        world.delete_pod(index, pinned=min(homes))
    world.set_condition("Suspended")
    assert isinstance(world.step(), Wait)
    again = world.step(later=3)
    assert isinstance(again, Unsuspend)
    assert not homes & set(again.plan.nodes)


def test_after_three_attempts_the_job_is_released_from_the_queue() -> None:
    world = start(nodes=4)
    for attempt in range(3):
        world.show_pods(gated=True)
        home = set(pins(world).values()).pop()
        world.show_pods(pinned=home)
        world.step()
        step = world.step(later=61)
        assert isinstance(step, Suspend), (attempt, step)
        for index in (0, 1):
            world.delete_pod(index, pinned=home)
        world.set_condition("Suspended")
        world.step()
        step = world.step(later=3)
        assert isinstance(step, Unsuspend if attempt < 2 else Release), (attempt, step)
    assert world.raw["spec"]["suspend"] is False
    world.show_pod(0, gated=True)
    assert isinstance(world.step(), Ungate)


def without_all_pods(world: World, *, created: int, report: str = "") -> list[Step | None]:
    """Return the last steps of at most four starts with `created` of the pods."""
    steps: list[Step | None] = []
    for _ in range(4):
        for index in range(created):
            world.show_pod(index, gated=True)
        world.set_condition("Suspended", "False")
        world.step()
        step = world.step(later=31)
        if not isinstance(step, Suspend):
            return [*steps, step]
        for index in range(created):
            world.delete_pod(index, gated=True)
        if report:
            state = replace(step.state, message=f"{step.state.message}{REPORTS}{report}")
            world.raw["metadata"]["annotations"][names.STATE] = state.encode(job_uid=JOB_UID)
        world.set_condition("Suspended")
        world.step()
        steps += [step, world.step(later=301)]
        if not isinstance(steps[-1], Unsuspend):
            return steps
    return steps


THREE = replicated_job(pods=3)
REPORTED: dict[str, tuple[int, str, list[type[Step]]]] = {
    "nothing is reported, and the third pod is missing": (
        2, "", [*[Suspend, Unsuspend] * 2, Release],
    ),
    "a quota refuses the third pod": (2, "exceeded quota: x", [Suspend, Unsuspend] * 4),
    "a policy denies the gate": (
        0, "VAP 'x' denied request: gates", [*[Suspend, Unsuspend] * 2, Suspend, Release],
    ),
    "Pod Security refuses all pods": (0, "violates PodSecurity", [Suspend, Unsuspend] * 4),
}  # fmt: skip


@pytest.mark.parametrize(("created", "report", "want"), REPORTED.values(), ids=REPORTED)
def test_a_job_is_released_if_its_pods_might_be_created_without_kfext(
    created: int, report: str, want: list[type[Step]]
) -> None:
    world = start(THREE)
    assert [type(step) for step in without_all_pods(world, created=created, report=report)] == want
    assert (names.RELEASED in world.raw["metadata"]["annotations"]) is (want[-1] is Release)
    if want[-1] is Release and not created:
        entry = world.raw["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]
        assert names.RELEASED in str(entry), "the next pods are not gated"


def test_a_failed_pod_beside_its_successor_is_not_a_member_of_the_gang() -> None:
    world = start()
    world.show_pods(gated=True)
    pins(world)
    world.show_pod(0, pinned="n0", node="n0", phase="Running")
    world.show_pod(1, pinned="n0", node="n0", phase="Failed")
    while isinstance(world.step(), SaveState):
        pass
    world.show_pod(1, suffix="later", gated=True)
    assert pins(world) == {"train-node-0-1-later": "n0"}
    world.show_pod(1, suffix="later", pinned="n0")
    claims = world.planner.cluster.claim_tracker
    assert [pod.name for pod in claims.pinned()] == ["train-node-0-1-later"]


def test_a_restart_of_the_jobset_gates_the_gang_again_under_its_plan() -> None:
    world = start()
    world.show_pods(gated=True)
    pins(world)
    world.show_pods(pinned="n0", node="n0", phase="Running")
    while isinstance(world.step(), SaveState):
        pass
    for index in (0, 1):
        world.show_pod(index, pinned="n0", node="n0", phase="Running", deleting=True)
        world.show_pod(index, suffix="after", attempt=1, gated=True)
        world.delete_pod(index)
    assert len(pins(world)) == 2


def test_a_suspended_job_starts_again_although_pods_that_ended_still_exist() -> None:
    world = start(nodes=2)
    world.show_pods(gated=True)
    home = set(pins(world).values()).pop()
    world.show_pod(0, pinned=home, node=home, phase="Failed")
    world.show_pod(1, pinned=home)
    assert isinstance(world.step(later=61), Wait | SaveState)
    step = world.step(later=61)
    assert isinstance(step, Suspend), step
    world.delete_pod(1)
    world.set_condition("Suspended")
    world.step()
    assert isinstance(world.step(later=3), Unsuspend)


@pytest.mark.parametrize("queue", [None, "team"])
@pytest.mark.parametrize("seen", [True, False], ids=["admission saw it", "admission missed it"])
def test_a_suspended_job_without_the_mark_gets_it_once(queue: str | None, seen: bool) -> None:
    raw = train_job(held=True)
    if not seen:
        del raw["spec"]["runtimePatches"]
    del raw["metadata"]["annotations"][names.HELD]
    if queue:
        raw["metadata"]["labels"] = {names.KUEUE_QUEUE: queue}
    world = World(raw)
    assert isinstance(world.step(), Wait)
    world.render()
    step = world.step()
    assert isinstance(step, SaveState), step
    assert names.COLOCATION in str(world.raw["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]
                                   ["template"]["spec"])  # fmt: skip
    assert isinstance(world.step(), Wait)
    world.show_job({**world.raw, "spec": {**world.raw["spec"], "suspend": False}})
    world.show_pods(gated=True)
    step = world.step()
    while isinstance(step, SaveState):
        step = world.step()
    assert not isinstance(step, Wait), "the gang is planned from its pods"


def test_kfext_never_suspends_a_job_of_kueue_nor_deletes_its_pods() -> None:
    world = start()
    world.show_pods(gated=True)
    pins(world)
    queued = {**world.raw["metadata"], "labels": {names.KUEUE_QUEUE: "team"}}
    world.show_job({**world.raw, "metadata": queued})
    world.show_pods(pinned="n0")
    for _ in range(8):
        assert not isinstance(world.step(later=61), Suspend | DeleteUnbound | Release)


RUNTIME = {
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "torch-distributed"},
    "spec": {
        "mlPolicy": {"numNodes": 1, "torch": {}},
        "template": {"spec": {"replicatedJobs": [{
            "name": "node",
            "template": {
                "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                "spec": {"template": {"spec": {"containers": [{"name": "node"}]}}},
            },
        }]}},
    },
}  # fmt: skip


def test_a_job_in_a_file_is_planned_from_its_runtime() -> None:
    snapshot = Snapshot(
        nodes=(node("a", cpu="1"), node("b", cpu="4"), node("c", cpu="8", labels={"zone": "x"})),
        namespaces={"team": Namespace("team", {names.MANAGED: "true"})},
    )
    sources = {(str(RUNTIME["kind"]), "", "torch-distributed"): RUNTIME}
    result = Forecast(snapshot, now=1.0).submit(train_job(), home="team", sources=sources)
    assert (result.outcome, {*result.nodes}) == ("starts", {"train-node-0-0", "train-node-0-1"})
    on_b = {"spec": {"nodeSelector": {"kubernetes.io/hostname": "b"}}}
    jobs = [{"name": "node", "template": {"spec": {"template": on_b}}}]
    patch = {
        "manager": "a/b",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }
    with_selector = train_job(runtimePatches=[patch])
    result = Forecast(snapshot, now=1.0).submit(with_selector, home="team", sources=sources)
    assert set(result.nodes.values()) == {"b"}
    with pytest.raises(
        UserError, match="ClusterTrainingRuntime 'torch-distributed', which does not"
    ):
        Forecast(snapshot, now=1.0).submit(train_job(), home="team")


def test_a_node_selector_in_a_patch_is_merged_with_the_selector_of_the_runtime() -> None:
    runtime = copy.deepcopy(RUNTIME)
    (replicated,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]  # type: ignore[index]
    replicated["template"]["spec"]["template"]["spec"]["nodeSelector"] = {
        "kubernetes.io/hostname": "b"
    }
    patch = {"spec": {"nodeSelector": {"zone": "x"}}}
    jobs = [{"name": "node", "template": {"spec": {"template": patch}}}]
    entry = {
        "manager": "a/b",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }
    spec = train_job(runtimePatches=[entry])["spec"]
    (rendered,) = TrainJob().rendered_from(spec, runtime)["replicatedJobs"]
    selector = rendered["template"]["spec"]["template"]["spec"]["nodeSelector"]
    assert selector == {"kubernetes.io/hostname": "b", "zone": "x"}


MPI = {
    "the launcher trains too": (True, 4, {"launcher": 1, "node": 3}),
    "the launcher trains too, with one node": (True, 1, {"launcher": 1, "node": 1}),
    "the launcher only launches": (False, 4, {"launcher": 1, "node": 4}),
    "as the runtime has it": (False, None, {"launcher": 1, "node": 2}),
}


@pytest.mark.parametrize(("as_node", "nodes", "want"), MPI.values(), ids=MPI)
def test_with_mpi_the_launcher_counts_as_a_node_only_if_it_trains(
    *, as_node: bool, nodes: int | None, want: dict[str, int]
) -> None:
    def replicated(name: str, pods: int, **labels: str) -> dict[str, Any]:
        pod = {"spec": {"containers": [{"name": "node"}]}}
        return {
            "name": name,
            "template": {
                "metadata": {"labels": labels},
                "spec": {"parallelism": pods, "template": pod},
            },
        }

    jobs = [
        replicated("node", 2),
        replicated("launcher", 1, **{"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}),
    ]
    policy = {"numNodes": 1, "mpi": {"runLauncherAsNode": as_node}}
    runtime = {"spec": {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": jobs}}}}
    size = {"requests": {"cpu": "2"}}
    spec = {"trainer": {"resourcesPerNode": size} | ({"numNodes": nodes} if nodes else {})}
    templates = TrainJob().templates(TrainJob().rendered_from(spec, runtime))
    assert {name: template["replicas"] for name, template in templates.items()} == want
    (container,) = templates["node"]["template"]["spec"]["containers"]
    assert (container["resources"]["requests"] == {"cpu": "2"}) is as_node


def test_the_runtime_is_from_the_namespace_of_the_job_and_first_from_the_files() -> None:
    def runtime(namespace: str | None) -> dict[str, Any]:
        metadata = {"name": "torch"} | ({"namespace": namespace} if namespace else {})
        return {"kind": "TrainingRuntime", "metadata": metadata}

    reference = {"kind": "TrainingRuntime", "name": "torch"}
    jobs = [train_job(runtimeRef=reference) for _ in range(3)]
    for result, namespace in zip(jobs, ("a", "b", "c"), strict=True):
        result["metadata"]["namespace"] = namespace
    in_file, in_b = runtime(None), runtime("b")
    sources = sources_in([in_file, *jobs, in_b], jobs, home="a")
    assert sources == {
        ("TrainingRuntime", "a", "torch"): in_file,
        ("TrainingRuntime", "b", "torch"): in_b,
    }
