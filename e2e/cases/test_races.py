"""The cluster changes while a write of kfext is on its way, or while kfext cannot see it."""

import json

from e2e.harness.faults import Delay, DelayAnswer, Exchange, pod_patch, unsuspend_patch
from e2e.harness.jobs import conditions, gated, job, pinned_to, workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.pods import event_before_list, uids
from e2e.harness.space import Space

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}


def attempts(space: Space, kfext: Kfext) -> list[Exchange]:
    """Return the patches of pods that the API server answered, including refused patches."""
    match = pod_patch(space.name)
    return [exchange for exchange in list(kfext.proxy.log) if match(exchange)]


def test_a_job_that_is_scaled_down_while_its_start_is_on_its_way_is_planned_again(
    space: Space, kfext: Kfext
) -> None:
    start = Delay(unsuspend_patch(space.name))
    kfext.proxy.arm(start)
    space.submit(workers("gang", 4, each=GPU))
    space.until(lambda: start.seen, "the start is on its way")
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}
    space.patch_job("gang", {"spec": spec})
    start.go.set()
    space.bound("gang", 2)
    space.phase("gang", "Placed")
    plan = space.plan("gang")
    assert plan is not None
    assert {kind: len(places) for kind, places in plan["replicas"].items()} == {
        "master": 1,
        "worker": 1,
    }
    assert space.starts() == 1


def test_a_late_start_does_not_start_the_next_job_with_the_same_name(
    space: Space, kfext: Kfext
) -> None:
    start = Delay(unsuspend_patch(space.name))
    kfext.proxy.arm(start)
    space.submit(workers("gang", 4, each=GPU))
    space.until(lambda: start.seen, "the start is on its way")
    kfext.proxy.heal()
    again = Delay(unsuspend_patch(space.name))
    kfext.proxy.arm(again)
    space.kube.delete(space.path("pytorchjobs", "gang"))
    uid = space.submit(workers("gang", 4, each=GPU))["metadata"]["uid"]
    space.until(lambda: again.seen, "the next job's start is on its way too")
    start.go.set()
    space.until(lambda: _refused(space, kfext), "the late start is refused")
    again.go.set()
    space.bound("gang", 4)
    (started,) = kfext.proxy.writes(unsuspend_patch(space.name))
    assert uid in started.body.decode()
    assert set(space.pins().values()) == {1}


def _refused(space: Space, kfext: Kfext) -> list[Exchange]:
    match = unsuspend_patch(space.name)
    return [
        exchange for exchange in list(kfext.proxy.log) if match(exchange) and exchange.status == 422
    ]


def test_late_pins_do_not_change_the_pods_of_the_next_job_with_the_same_name(
    space: Space, kfext: Kfext
) -> None:
    space.nodes(2, cpu="32", memory="64Gi", gpu="4")
    pins, node = space.submit_with_pins_held(workers("gang", 4, each=GPU), 4)
    kfext.proxy.heal()
    later = Delay(pod_patch(space.name))
    kfext.proxy.arm(later)
    space.kube.delete(space.path("pytorchjobs", "gang"))
    space.until(lambda: not space.pods("gang", ending=True), "its pods are gone")
    space.take_gpus("thief", node, 4)
    space.submit(workers("gang", 4, each=GPU))
    space.until(lambda: later.seen == 4, "the pins of the next job are on their way too")
    pins.go.set()
    space.until(lambda: len(attempts(space, kfext)) == 4, "the late pins are answered")
    assert all(gated(pod) and not pinned_to(pod) for pod in space.pods("gang"))
    later.go.set()
    nodes_by_pod = space.bound("gang", 4)
    assert node not in nodes_by_pod.values()
    assert space.pins() == dict.fromkeys(nodes_by_pod, 1)


def test_pods_that_a_dead_controller_pins_after_a_new_plan_are_replaced(
    space: Space, kfext: Kfext
) -> None:
    space.nodes(2, cpu="32", memory="64Gi", gpu="4")
    space.policy(placement={"bindTimeout": "10m"})
    pins, node = space.submit_with_pins_held(workers("gang", 4, each=GPU), 4)
    kfext.kill_controller()
    kfext.wait_controller_dead()
    kfext.proxy.heal()
    later = Delay(pod_patch(space.name))
    kfext.proxy.arm(later)
    space.take_gpus("thief", node, 4)
    kfext.restart_killed_controller()
    space.until(lambda: later.seen == 4, "the successor has a new plan and pins")
    assert space.plan("gang")["generation"] == 2  # type: ignore[index]
    pins.go.set()
    space.until(lambda: len(attempts(space, kfext)) == 4, "the late pins are carried out")
    mispinned = uids(space, "gang")
    assert all(pinned_to(pod) == [node] for pod in space.pods("gang"))
    later.go.set()
    space.until(
        lambda: len(now := uids(space, "gang")) == 4 and not _common(now, mispinned),
        "new pods have replaced them",
    )
    nodes_by_pod = space.bound("gang", 4)
    assert len(set(nodes_by_pod.values())) == 1
    assert node not in nodes_by_pod.values()
    assert space.starts() == 1
    assert not [e for e in space.events("gang") if e["reason"] == "BindTimeout"]


def _common(left: dict[str, str], right: dict[str, str]) -> set[str]:
    return set(left.values()) & set(right.values())


def test_an_answer_that_arrives_after_a_newer_watch_event_is_ignored(
    space: Space, kfext: Kfext
) -> None:
    answers = DelayAnswer(
        lambda exchange: pod_patch(space.name)(exchange) and "/pods/gang-" in exchange.path
    )
    kfext.proxy.arm(answers)
    space.submit(workers("gang", 4, each=GPU))
    space.bound("gang", 4)
    space.until(lambda: answers.seen == 4, "the answers are on their way")
    space.submit(workers("other", 2, each=GPU))
    space.phase("other", "Placed")  # so the controller has received all earlier events
    answers.go.set()  # the answers show the pods before they were bound
    space.phase("gang", "Placed")
    assert set(space.pins().values()) == {1}


def test_a_pytorchjob_and_a_tfjob_with_the_same_name_do_not_share_pods(space: Space) -> None:
    """The pods of both have the same names, so the operator can create only the pods of one job."""
    space.submit(job("twin", {"Master": 1, "Worker": 2}, each=GPU))
    nodes_by_pod = space.bound("twin", 3)
    space.phase("twin", "Placed")
    first = uids(space, "twin")
    space.policy(placement={"createTimeout": "5s"})
    with event_before_list(space):
        space.submit(job("twin", {"PS": 1, "Worker": 2}, kind="TFJob", each=GPU))
    state = space.until(
        lambda: json.loads(
            space.job("twin", "TFJob")["metadata"]["annotations"].get("kfext.dev/state", "{}")
        ).get("message"),
        "the second is stopped",
    )
    assert "1 of 3 pods exist" in state
    assert "already exists" in state
    space.until(lambda: uids(space, "twin") == first, "only the pods of the first exist")
    assert space.view("twin")["phase"] == "Placed"
    assert space.nodes_by_pod("twin") == nodes_by_pod
    assert conditions(space.job("twin")).isdisjoint({"Failed", "Restarting"})
