"""SIGKILL ends the controller after any step, and its successor continues from there."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from e2e.harness.faults import (
    Exchange,
    KillAfter,
    Match,
    plan_write,
    pod_patch,
    unsuspend_patch,
)
from e2e.harness.jobs import gated, job, suspended, workers
from e2e.harness.kfext_process import Kfext
from e2e.harness.kube import Object
from e2e.harness.pods import admit_pods, refuse_pods
from e2e.harness.space import Space

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}
PODS = 6


@dataclass(frozen=True)
class Death:
    """When the controller is killed: after the `nth` matching write; 0 means before the first."""

    match: Callable[[str], Match]
    nth: int


DEATHS = {
    "before the plan, when the job is only suspended": Death(unsuspend_patch, 0),
    "after the patch that plans and unsuspends": Death(unsuspend_patch, 1),
    "before the first pin": Death(pod_patch, 0),
    "after the first pin": Death(pod_patch, 1),
    "after half of the pins": Death(pod_patch, PODS // 2),
    "after all pins but one": Death(pod_patch, PODS - 1),
    "after the last pin": Death(pod_patch, PODS),
    "after the first write of the TrainingPlan": Death(plan_write, 1),
}


@pytest.mark.parametrize("death", DEATHS.values(), ids=DEATHS.keys())
def test_a_job_is_placed_once_though_the_controller_is_killed(
    space: Space, kfext: Kfext, death: Death
) -> None:
    fault = KillAfter(death.match(space.name), nth=death.nth)
    kfext.proxy.arm(fault)
    space.submit(workers("one", PODS, each=GPU))
    space.until(lambda: fault.fired, "the controller has reached that write")
    kfext.wait_controller_dead()
    plan_before = space.plan("one")
    kfext.proxy.heal()
    kfext.restart_killed_controller()
    nodes_by_pod = space.bound("one", PODS)
    assert len(set(nodes_by_pod.values())) == 1
    space.phase("one", "Placed")
    # Each pod is pinned once, by either controller; the successor keeps the only plan.
    assert space.pins() == dict.fromkeys(nodes_by_pod, 1)
    assert space.starts() == 1
    if plan_before is not None:
        assert space.plan("one") == plan_before


def test_a_controller_killed_after_every_single_write_still_places_the_job_once(
    space: Space, kfext: Kfext
) -> None:
    kfext.kill_controller()
    kfext.wait_controller_dead()
    space.submit(job("one", {"PS": 1, "Worker": 2}, kind="TFJob", each=GPU))
    for step in (unsuspend_patch, pod_patch, pod_patch, pod_patch):
        fault = KillAfter(step(space.name), nth=1)
        kfext.proxy.arm(fault)
        kfext.relaunch_killed_controller()  # it may be killed again before it is seen to lead
        space.until(lambda: fault.fired, "the controller has written once")  # noqa: B023
        kfext.wait_controller_dead()
        kfext.proxy.heal()
    kfext.ensure()
    nodes_by_pod = space.bound("one", 3)
    assert space.pins() == dict.fromkeys(nodes_by_pod, 1)
    assert space.starts() == 1


@pytest.mark.long
def test_a_successor_waits_until_the_lease_of_the_dead_leader_expires(
    space: Space, kfext: Kfext
) -> None:
    fault = KillAfter(pod_patch(space.name), nth=2)
    kfext.proxy.arm(fault)
    space.submit(workers("one", 4, each=GPU))
    space.until(lambda: fault.fired, "the controller has pinned two pods")
    kfext.wait_controller_dead()
    kfext.proxy.heal()
    kfext.start_controller()
    space.bound("one", 4)
    assert set(space.pins().values()) == {1}


def test_a_controller_that_restarts_among_twenty_jobs_in_every_phase_places_each_once(
    new_space: Callable[..., Space], kfext: Kfext
) -> None:
    space, starved = new_space(), new_space()
    space.nodes(2, cpu="64", memory="256Gi", gpu="16")  # capacity for eight gangs of four
    starved.nodes(1, cpu="64", memory="256Gi", gpu="16")
    refuse_pods(starved)
    foreign = {"schedulingGates": [{"name": "example.com/gate"}]}
    for number in range(3):
        space.submit(workers(f"gated-{number}", 4, each=GPU, pod=foreign))
        starved.submit(workers(f"planned-{number}", 4, each=GPU))
        space.submit(workers(f"off-{number}", 1, annotations={"kfext.dev/colocation": "off"}))
        space.submit(workers(f"person-{number}", 1, policy={"suspend": True}))
    for number in range(3):
        space.phase(f"gated-{number}", "Gated")
        starved.phase(f"planned-{number}", "Planned")
    fault = KillAfter(unsuspend_patch(space.name), nth=4)
    kfext.proxy.arm(fault)
    for number in range(8):
        space.submit(workers(f"many-{number}", 4, each=GPU))
    space.until(lambda: fault.fired, "four more jobs are started")
    kfext.wait_controller_dead()
    kfext.proxy.heal()
    kfext.restart_killed_controller()

    admit_pods(starved, *(f"planned-{number}" for number in range(3)))
    for pod in space.pods():
        if pod["metadata"]["name"].startswith("gated-"):
            gates = [gate["name"] for gate in pod["spec"]["schedulingGates"]]
            path = f"/spec/schedulingGates/{gates.index('example.com/gate')}"
            space.kube.patch(
                space.path("pods", pod["metadata"]["name"]),
                [{"op": "remove", "path": path}],
                kind="json",
            )
    for number in range(3):
        starved.bound(f"planned-{number}", 4)
        space.bound(f"gated-{number}", 4)
        space.bound(f"off-{number}", 1)
        assert suspended(space.job(f"person-{number}"))
    # Eight gangs fit: three gated gangs and five of the many; the others wait as a whole.
    space.until(lambda: len(_placed(space)) == 5, "five of the many are placed")
    assert sorted(_sizes(space)) == [0, 0, 0, 4, 4, 4, 4, 4]
    for namespace in (space, starved):
        assert set(namespace.pins().values()) == {1}
    assert space.starts() == 8
    assert starved.starts() == 3


def _sizes(space: Space) -> list[int]:
    return [len(space.pods(f"many-{number}")) for number in range(8)]


def _placed(space: Space) -> list[str]:
    names = [f"many-{number}" for number in range(8)]
    return [name for name in names if _all_on_one_node(space.pods(name))]


def _all_on_one_node(pods: list[Object]) -> bool:
    used_nodes = {pod["spec"].get("nodeName") for pod in pods}
    return len(pods) == 4 and len(used_nodes) == 1 and None not in used_nodes


def test_sigterm_while_pins_are_written_loses_no_pin(space: Space, kfext: Kfext) -> None:
    space.submit(workers("one", PODS, each=GPU))
    space.until(lambda: any(gated(pod) for pod in space.pods("one")), "the first pods exist")
    kfext.stop_controller()
    assert (kfext.lease() or {})["holderIdentity"] == ""  # the successor need not wait
    kfext.start_controller()
    nodes_by_pod = space.bound("one", PODS)
    assert space.pins() == dict.fromkeys(nodes_by_pod, 1)


def test_two_plans_are_never_written_for_one_job(space: Space, kfext: Kfext) -> None:
    """The answer to the first plan is lost; the successor reads this plan, and writes no other."""
    fault = KillAfter(unsuspend_patch(space.name), nth=1)
    kfext.proxy.arm(fault)
    space.nodes(3, cpu="32", memory="64Gi", gpu="8")
    space.submit(workers("one", 4, each=GPU))
    space.until(lambda: fault.fired, "the plan is written")
    kfext.wait_controller_dead()
    kfext.proxy.heal()
    kfext.restart_killed_controller()
    nodes_by_pod = space.bound("one", 4)
    plans = [exchange.body for exchange in kfext.proxy.writes(_plan_writes(space.name))]
    assert len(plans) == 1
    (node,) = set(nodes_by_pod.values())
    assert node in json.dumps(json.loads(plans[0]))


def _plan_writes(namespace: str) -> Match:
    def match(exchange: Exchange) -> bool:
        return f"/{namespace}/pytorchjobs/" in exchange.path and b"kfext.dev~1plan" in exchange.body

    return match
