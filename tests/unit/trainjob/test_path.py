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
    """A planner, the job as the API server has it, and its pods."""

    def __init__(self, raw: Raw, *, nodes: int = 1, cpu: str = "8") -> None:
        self.planner = Planner()
        self.raw, self.version = raw, 1
        self.pods: dict[str, Pod] = {}
        self.now = 1000.0
        self.planner.settings.observe_namespace(None, Namespace("team", {names.MANAGED: "true"}))
        for number in range(nodes):
            self.planner.cluster.observe_node(None, node(f"n{number}", cpu=cpu))
        self.show(raw)

    def show(self, raw: Raw) -> None:
        self.version += 1
        self.raw = {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(self.version)}}
        self.planner.cluster.observe_job(self.raw)

    def render(self, *replicated: Raw, **more: Any) -> None:
        self.planner.cluster.observe_rendered(None, parse_rendered(jobset(*replicated, **more)))

    def pod(self, index: int, **more: Any) -> None:
        raw = trainer_pod(index, **more)
        raw["metadata"]["resourceVersion"] = str(len(self.pods) + self.version + 100)
        self.version += 1
        parsed = parse_pod(raw)
        self.planner.cluster.observe_pod(self.pods.get(parsed.uid), parsed)
        self.pods[parsed.uid] = parsed

    def both(self, **more: Any) -> None:
        """Show the two pods of the job."""
        for index in (0, 1):
            self.pod(index, **more)

    def gone(self, index: int, **more: Any) -> None:
        uid = parse_pod(trainer_pod(index, **more)).uid
        self.planner.cluster.observe_pod(self.pods.pop(uid), None)

    def step(self, *, later: float = 0.0) -> Step | None:
        """The next step; a step that writes the job is written."""
        self.now += later
        now = Moment(wall=self.now, monotonic=self.now)
        steps = self.planner.tick(now).steps
        if not steps:
            tracked = self.planner.cluster.jobs[JOB_UID]
            return Wait(tracked.phase, tracked.verdict)
        ((tracked, step),) = steps
        operations = job_operations(step, tracked.raw, tracked.job)
        if operations is not None:
            self.show(jsonpatch.apply_patch(self.raw, operations))
        self.planner.finish(tracked, now)
        return step

    def condition(self, type_: str, status: str = "True") -> None:
        result = {"type": type_, "status": status, "lastTransitionTime": moment(self.now)}
        self.show({**self.raw, "status": {"conditions": [result]}})


def started(*replicated: Raw, in_order: bool = False, **more: Any) -> World:
    world = World(train_job(held=True), **more)
    world.render(*replicated, in_order=in_order)
    step = world.step()
    assert isinstance(step, Unsuspend), step
    return world


def pinned(world: World) -> dict[str, str]:
    step = world.step()
    assert isinstance(step, Pin), step
    return {pod.name: to for pod, to in step.pins}


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
    world = started()
    world.pod(0, gated=True)
    assert isinstance(world.step(), Wait)
    world.pod(1, gated=True)
    assert set(pinned(world).values()) == {"n0"}
    for index in (0, 1):
        world.pod(index, pinned="n0")
        world.pod(index, pinned="n0", node="n0")
    while isinstance(world.step(), SaveState):
        pass
    assert world.planner.cluster.jobs[JOB_UID].phase == names.PLACED


def test_pods_seen_before_their_jobset_belong_to_the_job() -> None:
    world = World(train_job(held=True))
    world.pod(0, gated=True)
    assert world.planner.cluster.pods(JOB_UID) == ()
    world.render()
    assert [pod.owner_uid for pod in world.planner.cluster.pods(JOB_UID)] == [JOB_UID]
    world.gone(0, gated=True)
    assert world.planner.cluster.pods(JOB_UID) == ()


STAGES = (
    replicated_job("node", pods=2, torch=False),
    replicated_job("launcher", pods=1, after={"node": "Ready"}, torch=False),
)


IN_ORDER = (replicated_job("node", torch=False), replicated_job("launcher", pods=1, torch=False))


@pytest.mark.parametrize("in_order", [False, True], ids=["dependsOn", "startupPolicy InOrder"])
def test_pods_of_a_later_stage_delay_no_other_pod_and_have_their_capacity(
    in_order: bool,
) -> None:
    world = started(*(IN_ORDER if in_order else STAGES), in_order=in_order, cpu="3")
    world.pod(0, gated=True)
    waiting = world.step()
    assert isinstance(waiting, Wait)
    assert waiting.verdict is not None
    assert waiting.verdict.message == "1 of 2 pods exist"
    world.pod(1, gated=True)
    assert len(pinned(world)) == 2
    world.both(pinned="n0", node="n0", phase="Running")
    while isinstance(world.step(), SaveState):
        pass
    tracked = world.planner.cluster.jobs[JOB_UID]
    assert tracked.phase == names.PLACED
    assert tracked.verdict is not None
    assert tracked.verdict.message == "2 pods are on n0"
    row = world.planner.cluster.ledger.row("n0")
    assert world.planner.cluster.ledger.free(["cpu"])[0, row] == 0, "the launcher has its room"
    world.pod(0, replicated="launcher", gated=True)
    assert list(pinned(world).values()) == ["n0"]


def test_the_job_is_suspended_for_pods_that_are_not_bound_in_time() -> None:
    world = started(nodes=2)
    world.both(gated=True)
    homes = set(pinned(world).values())
    world.both(pinned=min(homes))
    world.step()
    step = world.step(later=61)
    assert isinstance(step, Suspend), step
    assert world.raw["spec"]["suspend"] is True
    for index in (0, 1):
        world.gone(index, pinned=min(homes))
    world.condition("Suspended")
    assert isinstance(world.step(), Wait)
    again = world.step(later=3)
    assert isinstance(again, Unsuspend)
    assert not homes & set(again.plan.nodes)


def test_after_three_attempts_the_job_is_released_from_the_queue() -> None:
    world = started(nodes=4)
    for attempt in range(3):
        world.both(gated=True)
        home = set(pinned(world).values()).pop()
        world.both(pinned=home)
        world.step()
        step = world.step(later=61)
        assert isinstance(step, Suspend), (attempt, step)
        for index in (0, 1):
            world.gone(index, pinned=home)
        world.condition("Suspended")
        world.step()
        step = world.step(later=3)
        assert isinstance(step, Unsuspend if attempt < 2 else Release), (attempt, step)
    assert world.raw["spec"]["suspend"] is False
    world.pod(0, gated=True)
    assert isinstance(world.step(), Ungate)


def without_all_pods(world: World, *, came: int, note: str = "") -> list[Step | None]:
    """The last steps of four starts in which only the first of three pods are created."""
    steps: list[Step | None] = []
    for _ in range(4):
        for index in range(came):
            world.pod(index, gated=True)
        world.condition("Suspended", "False")
        world.step()
        step = world.step(later=31)
        if not isinstance(step, Suspend):
            return [*steps, step]
        for index in range(came):
            world.gone(index, gated=True)
        if note:
            told = replace(step.state, message=f"{step.state.message}{REPORTS}{note}")
            world.raw["metadata"]["annotations"][names.STATE] = told.encode(job_uid=JOB_UID)
        world.condition("Suspended")
        world.step()
        steps += [step, world.step(later=301)]
        if not isinstance(steps[-1], Unsuspend):
            return steps
    return steps


THREE = replicated_job(pods=3)
UNKNOWN: dict[str, tuple[int, str, list[type[Step]]]] = {
    "the operator holds back the third for a reason of its own": (
        2, "", [*[Suspend, Unsuspend] * 2, Release],
    ),
    "a quota refuses the third": (2, "exceeded quota: x", [Suspend, Unsuspend] * 4),
    "a policy denies the gate": (
        0, "VAP 'x' denied request: gates", [*[Suspend, Unsuspend] * 2, Suspend, Release],
    ),
    "Pod Security refuses all": (0, "violates PodSecurity", [Suspend, Unsuspend] * 4),
}  # fmt: skip


@pytest.mark.parametrize(("came", "note", "want"), UNKNOWN.values(), ids=UNKNOWN)
def test_a_job_is_released_where_its_pods_may_be_created_without_kfext(
    came: int, note: str, want: list[type[Step]]
) -> None:
    world = started(THREE)
    assert [type(step) for step in without_all_pods(world, came=came, note=note)] == want
    assert (names.RELEASED in world.raw["metadata"]["annotations"]) is (want[-1] is Release)
    if want[-1] is Release and not came:
        entry = world.raw["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]
        assert names.RELEASED in str(entry), "the next pods are not gated"


def test_a_failed_pod_beside_its_successor_is_no_member_of_the_gang() -> None:
    world = started()
    world.both(gated=True)
    pinned(world)
    world.pod(0, pinned="n0", node="n0", phase="Running")
    world.pod(1, pinned="n0", node="n0", phase="Failed")
    while isinstance(world.step(), SaveState):
        pass
    world.pod(1, suffix="later", gated=True)
    assert pinned(world) == {"train-node-0-1-later": "n0"}
    world.pod(1, suffix="later", pinned="n0")
    claims = world.planner.cluster.claim_tracker
    assert [pod.name for pod in claims.pinned()] == ["train-node-0-1-later"]


def test_a_restart_of_the_jobset_gates_the_gang_again_under_its_plan() -> None:
    world = started()
    world.both(gated=True)
    pinned(world)
    world.both(pinned="n0", node="n0", phase="Running")
    while isinstance(world.step(), SaveState):
        pass
    for index in (0, 1):
        world.pod(index, pinned="n0", node="n0", phase="Running", deleting=True)
        world.pod(index, suffix="after", attempt=1, gated=True)
        world.gone(index)
    assert len(pinned(world)) == 2


def test_pods_that_have_ended_do_not_keep_a_suspended_job_from_its_next_start() -> None:
    world = started(nodes=2)
    world.both(gated=True)
    home = set(pinned(world).values()).pop()
    world.pod(0, pinned=home, node=home, phase="Failed")
    world.pod(1, pinned=home)
    assert isinstance(world.step(later=61), Wait | SaveState)
    step = world.step(later=61)
    assert isinstance(step, Suspend), step
    world.gone(1)
    world.condition("Suspended")
    world.step()
    assert isinstance(world.step(later=3), Unsuspend)


@pytest.mark.parametrize("queue", [None, "team"])
@pytest.mark.parametrize("seen", [True, False], ids=["admission saw it", "admission missed it"])
def test_a_job_that_another_client_suspended_gets_the_mark_once(
    queue: str | None, seen: bool
) -> None:
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
    world.show({**world.raw, "spec": {**world.raw["spec"], "suspend": False}})
    world.both(gated=True)
    step = world.step()
    while isinstance(step, SaveState):
        step = world.step()
    assert not isinstance(step, Wait), "its pods are planned from the pods"


def test_kfext_never_suspends_a_job_of_kueue_nor_deletes_its_pods() -> None:
    world = started()
    world.both(gated=True)
    pinned(world)
    queued = {**world.raw["metadata"], "labels": {names.KUEUE_QUEUE: "team"}}
    world.show({**world.raw, "metadata": queued})
    world.both(pinned="n0")
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
    here = {"spec": {"nodeSelector": {"kubernetes.io/hostname": "b"}}}
    jobs = [{"name": "node", "template": {"spec": {"template": here}}}]
    patch = {
        "manager": "a/b",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }
    steered = train_job(runtimePatches=[patch])
    result = Forecast(snapshot, now=1.0).submit(steered, home="team", sources=sources)
    assert set(result.nodes.values()) == {"b"}
    with pytest.raises(
        UserError, match="ClusterTrainingRuntime 'torch-distributed', which does not"
    ):
        Forecast(snapshot, now=1.0).submit(train_job(), home="team")


def test_places_in_a_patch_are_merged_with_the_runtime() -> None:
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
    (made,) = TrainJob().rendered_from(spec, runtime)["replicatedJobs"]
    selector = made["template"]["spec"]["template"]["spec"]["nodeSelector"]
    assert selector == {"kubernetes.io/hostname": "b", "zone": "x"}


MPI = {
    "the launcher trains too": (True, 4, {"launcher": 1, "node": 3}),
    "the launcher trains too, with one node": (True, 1, {"launcher": 1, "node": 1}),
    "the launcher only launches": (False, 4, {"launcher": 1, "node": 4}),
    "as the runtime has it": (False, None, {"launcher": 1, "node": 2}),
}


@pytest.mark.parametrize(("as_node", "asked", "want"), MPI.values(), ids=MPI)
def test_with_mpi_the_number_of_nodes_does_not_count_the_launcher(
    *, as_node: bool, asked: int | None, want: dict[str, int]
) -> None:
    def replicated(name: str, nodes: int, **labels: str) -> dict[str, Any]:
        pod = {"spec": {"containers": [{"name": "node"}]}}
        return {
            "name": name,
            "template": {
                "metadata": {"labels": labels},
                "spec": {"parallelism": nodes, "template": pod},
            },
        }

    jobs = [
        replicated("node", 2),
        replicated("launcher", 1, **{"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}),
    ]
    policy = {"numNodes": 1, "mpi": {"runLauncherAsNode": as_node}}
    runtime = {"spec": {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": jobs}}}}
    size = {"requests": {"cpu": "2"}}
    spec = {"trainer": {"resourcesPerNode": size} | ({"numNodes": asked} if asked else {})}
    made = TrainJob().templates(TrainJob().rendered_from(spec, runtime))
    assert {name: template["replicas"] for name, template in made.items()} == want
    (container,) = made["node"]["template"]["spec"]["containers"]
    assert (container["resources"]["requests"] == {"cpu": "2"}) is as_node


def test_the_runtime_is_that_of_the_jobs_namespace_and_a_file_comes_first() -> None:
    def runtime(namespace: str | None) -> dict[str, Any]:
        metadata = {"name": "torch"} | ({"namespace": namespace} if namespace else {})
        return {"kind": "TrainingRuntime", "metadata": metadata}

    reference = {"kind": "TrainingRuntime", "name": "torch"}
    jobs = [train_job(runtimeRef=reference) for _ in range(3)]
    for result, namespace in zip(jobs, ("a", "b", "c"), strict=True):
        result["metadata"]["namespace"] = namespace
    here, there = runtime(None), runtime("b")
    sources = sources_in([here, *jobs, there], jobs, home="a")
    assert sources == {
        ("TrainingRuntime", "a", "torch"): here,
        ("TrainingRuntime", "b", "torch"): there,
    }
