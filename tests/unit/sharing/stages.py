"""A world with a job that shares a GPU, and the stages of the job in which a test may begin.

In each stage the world has one high-priority job, and a node with two cards.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import jsonpatch

from kfext import names
from kfext.core.admission.new_pod import mutate_pod
from kfext.core.lifecycle.steps import ForgetPlan, Pin, Step, Suspend, Unsuspend, job_operations
from kfext.core.patches import pod as pod_patch
from kfext.model.moment import Moment
from kfext.model.namespace import Namespace
from kfext.model.pod import Pod, ReplicaKey, parse_pod
from kfext.model.shared_gpu import CardSharer
from kfext.state.mirror.cards import Reserve
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.planner.planner import Planner
from tests.builders import JobBuilder, moment
from tests.gpu_builders import plain_node, reservation, sharing, slot

TEAM = Namespace("team", labels={names.MANAGED: "true"})
OTHERS = Namespace("others", labels={names.MANAGED: "true"})
FIRST = ReplicaKey("worker", 0)


class World:
    """One job, a node with two cards, and an operator and an agent that act if a test calls them.

    `slots`: the number of slots of the node that the agent has reported.
    """

    def __init__(self, builder: JobBuilder, *, slots: int = 2) -> None:
        self.raw: dict[str, Any] = builder.raw
        self.now = 1000.0
        self.pods: dict[str, dict[str, Any]] = {}
        self.planner = Planner()
        self.planner.settings.observe_namespace(None, TEAM)
        self.planner.cluster.observe_node(None, plain_node("n", cards=2, slots=slots))
        for number in range(slots):
            self.planner.cluster.observe_card(None, slot("n", number))
        self.show()

    @property
    def moment(self) -> Moment:
        return Moment(wall=self.now, monotonic=self.now)

    def show(self) -> None:
        version = int(self.raw["metadata"]["resourceVersion"]) + 1
        self.raw["metadata"]["resourceVersion"] = str(version)
        self.planner.cluster.observe_job(deepcopy(self.raw))

    def step(self) -> Step | None:
        """Decide, write the step, and return it."""
        tick = self.planner.tick(self.moment)
        assert not tick.failures
        if not tick.steps:
            return None
        ((tracked, step),) = tick.steps
        self.write(tracked, step)
        return step

    def write(self, tracked: TrackedJob, step: Step) -> None:
        """Carry out a step."""
        operations = job_operations(step, tracked.raw, tracked.job)
        if operations is not None:
            self.raw = jsonpatch.apply_patch(self.raw, operations)
            self.show()
        if isinstance(step, Pin):
            for pod, node in step.pins:
                patch = pod_patch.pin(pod, node, share=step.share_of(pod))
                self.pods[pod.uid] = jsonpatch.apply_patch(self.pods[pod.uid], patch)
                self.see(pod.uid)
        self.planner.finish(tracked, self.moment)

    def reason(self) -> str:
        """Check that no step is written; return the reason."""
        assert self.step() is None
        (tracked,) = self.planner.cluster.jobs.values()
        assert tracked.verdict is not None
        return tracked.verdict.reason

    def see(self, uid: str) -> None:
        self.planner.cluster.observe_pod(None, parse_pod(deepcopy(self.pods[uid])))

    def create(self, index: int = 0) -> str:
        """Create a pod as the operator and the webhook do; return the refusal, or ""."""
        template = self.raw["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "uid": "uid-1"}
        labels = {names.JOB_NAME: "train", names.REPLICA_TYPE: "worker"}
        raw = deepcopy(template)
        raw.setdefault("metadata", {}).update(
            namespace="team",
            name=f"train-worker-{index}",
            uid=f"pod-{index}",
            resourceVersion="1",
            labels={**labels, names.REPLICA_INDEX: str(index)},
            ownerReferences=[{**owner, "controller": True}],
        )
        mutation = mutate_pod(raw, controller_alive=True)
        if not mutation.refusal:
            uid = f"pod-{index}"
            self.pods[uid] = jsonpatch.apply_patch(raw, list(mutation.ops))
            self.see(uid)
        return mutation.refusal

    def reserve(self) -> None:
        """Create the due reservation pods, and report their cards as the agent does."""
        cluster = self.planner.cluster
        for step in list(self.planner.card_steps(self.now)):
            assert isinstance(step, Reserve)
            node, number = step.place
            pod = reservation(node, number)
            cluster.observe_pod(None, pod)
            self.planner.cards.finish(step, self.now)
            cluster.observe_card(None, slot(node, number, card=f"GPU-{number}"))


def admitted(builder: JobBuilder) -> JobBuilder:
    """Return a job as the job webhook changes it: held, with its settings on the templates."""
    annotations = {**builder.raw["metadata"]["annotations"], names.COLOCATION: "preferred"}
    for replica in builder.raw["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["metadata"] = {"annotations": dict(annotations)}
    return builder.held()


def started(replicas: int = 1, **settings: str) -> World:
    world = World(admitted(sharing("0.5", replicas=replicas, **settings)))
    assert isinstance(world.step(), Unsuspend)
    return world


def queued() -> World:
    return World(admitted(sharing("0.5", priority="high")))


def planned() -> World:
    return started(priority="high")


def gated() -> World:
    world = planned()
    assert not world.create()
    return world


def reserved() -> World:
    world = gated()
    world.reserve()
    return world


def pinned() -> World:
    world = reserved()
    assert isinstance(world.step(), Pin)
    return world


def bind(world: World, index: int = 0) -> None:
    raw = world.pods[f"pod-{index}"]
    raw["spec"]["nodeName"] = "n"
    raw["status"] = {"phase": "Running"}
    show_newer_version(world, index)


def show_newer_version(world: World, index: int = 0) -> None:
    """Show a pod with a newer version."""
    metadata = world.pods[f"pod-{index}"]["metadata"]
    metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 10)
    world.see(f"pod-{index}")


def placed() -> World:
    world = pinned()
    bind(world)
    assert world.reason() == names.REASON_PLACED
    return world


def terminate(world: World, index: int = 0) -> None:
    """Delete a pod as the operator does; the pod continues for its grace period."""
    world.pods[f"pod-{index}"]["metadata"]["deletionTimestamp"] = moment(world.now)
    show_newer_version(world, index)


def remove(world: World, index: int = 0) -> None:
    """Remove a pod."""
    raw = world.pods.pop(f"pod-{index}")
    world.planner.cluster.observe_pod(parse_pod(raw), None)


def end(world: World) -> None:
    """Remove the last pod, and write the step that then ends all claims of the job."""
    remove(world)
    tracked = world.planner.cluster.jobs.get("uid-1")
    if tracked and tracked.plan and tracked.job.suspend:
        step = decide(world)["uid-1"]
        assert isinstance(step, ForgetPlan)
        world.write(tracked, step)


def evicted() -> World:
    """A job that was stopped; its pod has not ended yet."""
    world = placed()
    report = slot("n", 0, card="GPU-0", sharers=(CardSharer("pod-0", evict=True),))
    world.planner.cluster.observe_card(None, report)
    assert isinstance(world.step(), Suspend)
    terminate(world)
    return world


def stopped_by_user() -> World:
    world = placed()
    world.raw["spec"]["runPolicy"]["suspend"] = True
    world.show()
    terminate(world)
    return world


def deleted() -> World:
    """A deleted job with a remaining pod."""
    world = placed()
    world.planner.cluster.forget_job("uid-1")
    terminate(world)
    return world


def released() -> World:
    """A job that a user has released while it ran."""
    world = placed()
    world.raw["metadata"]["annotations"][names.RELEASED] = names.REASON_RELEASED_BY_USER
    del world.raw["metadata"]["annotations"][names.PLAN]
    world.show()
    return world


def opted_out() -> World:
    """A job that runs in a namespace that is no longer managed."""
    world = placed()
    world.planner.settings.observe_namespace(TEAM, Namespace("team"))
    return world


STAGES: dict[str, Callable[[], World]] = {
    "in the queue": queued,
    "planned": planned,
    "its pod waits for a GPU": gated,
    "the GPU is reserved": reserved,
    "its pod is pinned": pinned,
    "placed": placed,
    "evicted": evicted,
    "stopped by its user": stopped_by_user,
    "deleted": deleted,
    "released": released,
    "opted out": opted_out,
}
HOLDING = ("evicted", "stopped by its user", "deleted", "released", "opted out")
"""The stages in which no plan runs, and a pod still has its share of a card."""


def submit(world: World, uid: str, *, share: str = "0.5", **settings: str) -> None:
    """Submit an admitted job in another namespace."""
    world.planner.settings.observe_namespace(None, OTHERS)
    raw = admitted(sharing(share, replicas=1, uid=uid, **settings)).raw
    raw["metadata"]["namespace"] = OTHERS.name
    world.planner.cluster.observe_job(deepcopy(raw))


def decide(world: World) -> dict[str, Step]:
    """Return the planner's present steps, by the uid of the job."""
    tick = world.planner.tick(world.moment)
    assert not tick.failures
    return {tracked.job.uid: step for tracked, step in tick.steps}


def restart(world: World) -> None:
    """Replace the planner by a new planner that sees the same objects."""
    old, new = world.planner, Planner()
    for namespace in old.settings.namespaces.values():
        new.settings.observe_namespace(None, namespace)
    new.cluster.observe_node(None, plain_node("n", cards=2))
    for card in old.cluster.claim_tracker.cards.known.values():
        new.cluster.observe_card(None, card)
    for pod in old.cluster.claim_tracker.cards.reserved.values():
        new.cluster.observe_pod(None, pod)
    for raw in world.pods.values():
        new.cluster.observe_pod(None, parse_pod(deepcopy(raw)))
    world.planner = new
    if "uid-1" in old.cluster.jobs:
        new.cluster.observe_job(deepcopy(world.raw))


def show_reservation(world: World, **fields: Any) -> Pod:
    """Show the reservation pod of the first slot, with these fields; return the pod."""
    pod = replace(reservation("n", 0), **fields)
    world.planner.cluster.observe_pod(None, pod)
    return pod
