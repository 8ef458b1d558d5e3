"""A job is deleted in any phase, and its capacity is free for the next job at once."""

from collections.abc import Callable

import pytest

from e2e.harness.faults import Delay, Refuse, pod_patch
from e2e.harness.jobs import gated, workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.pods import admit_pods, refuse_pods
from e2e.harness.space import Space

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}
FOREIGN = {"schedulingGates": [{"name": "example.com/gate"}]}


def while_queued(space: Space, kfext: Kfext) -> None:
    space.submit(workers("blocker", 4, each=GPU))
    space.phase("blocker", "Placed")
    space.submit(workers("doomed", 4, each=GPU))
    space.phase("doomed", "Queued")
    space.kube.delete(space.path("pytorchjobs", "blocker"))
    space.kube.delete(space.path("pytorchjobs", "doomed"))


def while_planned(space: Space, kfext: Kfext) -> None:
    refuse_pods(space)
    space.submit(workers("doomed", 4, each=GPU))
    space.phase("doomed", "Planned")
    space.kube.delete(space.path("pytorchjobs", "doomed"))
    admit_pods(space)


def while_gated(space: Space, kfext: Kfext) -> None:
    space.submit(workers("doomed", 4, each=GPU, pod=FOREIGN))
    space.phase("doomed", "Gated")
    space.kube.delete(space.path("pytorchjobs", "doomed"))


def while_half_pinned(space: Space, kfext: Kfext) -> None:
    failing = Refuse(pod_patch(space.name), first=3, times=1_000_000)
    kfext.proxy.arm(failing)
    space.submit(workers("doomed", 4, each=GPU))
    space.until(lambda: failing.seen >= 4 and sum(space.pins().values()) == 2, "half are pinned")
    space.kube.delete(space.path("pytorchjobs", "doomed"))
    kfext.proxy.heal()


def while_pins_are_on_their_way(space: Space, kfext: Kfext) -> None:
    pins = Delay(pod_patch(space.name))
    kfext.proxy.arm(pins)
    space.submit(workers("doomed", 4, each=GPU))
    space.until(lambda: pins.seen == 4, "four pins are on their way")
    space.kube.delete(space.path("pytorchjobs", "doomed"))
    space.until(lambda: not space.pods("doomed", ending=True), "its pods are gone")
    pins.go.set()
    kfext.proxy.heal()


def while_placed(space: Space, kfext: Kfext) -> None:
    space.submit(workers("doomed", 4, each=GPU))
    space.phase("doomed", "Placed")
    space.kube.delete(space.path("pytorchjobs", "doomed"))


WAYS: list[Callable[[Space, Kfext], None]] = [
    while_queued,
    while_planned,
    while_gated,
    while_half_pinned,
    while_pins_are_on_their_way,
    while_placed,
]


@pytest.mark.parametrize("delete_job", WAYS, ids=[way.__name__.replace("_", " ") for way in WAYS])
def test_the_next_job_gets_the_capacity_of_a_job_deleted(
    space: Space, kfext: Kfext, delete_job: Callable[[Space, Kfext], None]
) -> None:
    (node,) = space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    delete_job(space, kfext)
    space.submit(workers("next", 4, each=GPU))
    assert set(space.bound("next", 4).values()) == {node}
    space.phase("next", "Placed")


@pytest.mark.parametrize("delete_job", WAYS, ids=[way.__name__.replace("_", " ") for way in WAYS])
def test_a_resubmitted_job_is_placed_by_a_plan_of_its_own_after_a_job_deleted(
    space: Space, kfext: Kfext, delete_job: Callable[[Space, Kfext], None]
) -> None:
    (node,) = space.nodes(1, cpu="32", memory="64Gi", gpu="4")
    delete_job(space, kfext)
    # Submitted at once, while old pods with the same names may still be terminating.
    stored = space.submit(workers("doomed", 4, each=GPU))
    uid = stored["metadata"]["uid"]

    def has_new_pods() -> bool:
        pods = space.pods("doomed", ending=True)
        owners = {pod["metadata"]["ownerReferences"][0]["uid"] for pod in pods}
        return len(pods) == 4 and owners == {uid} and not any(gated(pod) for pod in pods)

    space.until(has_new_pods, "the pods belong to the new job")
    assert set(space.bound("doomed", 4).values()) == {node}
    space.phase("doomed", "Placed")
    plan = space.plan("doomed")
    assert plan is not None
    assert (plan["uid"], plan["generation"]) == (uid, 1)
