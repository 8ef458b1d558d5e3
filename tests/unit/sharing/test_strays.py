"""Pods with the labels and the owner of a job that shares a GPU; any user may create them."""

from collections import Counter
from copy import deepcopy

from kfext import names
from kfext.core.lifecycle.steps import Pin
from tests.builders import moment
from tests.unit.sharing.stages import World, decide, placed, show_newer_version, terminate


def show_second_pod(world: World) -> None:
    """Create a second pod of replica 0, gated as the webhook leaves it."""
    raw = deepcopy(world.pods["pod-0"])
    raw["metadata"] |= {"uid": "pod-9", "name": "mine", "creationTimestamp": moment(world.now)}
    raw["metadata"].pop("deletionTimestamp", None)
    raw["metadata"]["annotations"].pop(names.GPU_TERMS)
    raw["spec"]["schedulingGates"] = [{"name": names.GATE}]
    for field in ("nodeName", "affinity"):
        raw["spec"].pop(field)
    world.pods["pod-9"] = {**raw, "status": {}}
    world.see("pod-9")


def claimed_amounts(world: World) -> dict[str, int]:
    """Return the sum of all claims on the node, by resource."""
    claims = world.planner.cluster.ledger.claims_on(["n"])
    return dict(sum((Counter(claim.requests) for claim in claims), Counter()))


def high_priority_claims(world: World) -> int:
    """Return the number of high-priority claims on the first card."""
    return claimed_amounts(world)["card 0 high"]


def test_a_second_pod_of_a_replica_gets_nothing() -> None:
    world = placed()
    before = claimed_amounts(world)
    show_second_pod(world)
    assert not decide(world)
    assert claimed_amounts(world) == before
    assert world.pods["pod-9"]["spec"]["schedulingGates"]


def test_a_second_pod_beside_a_terminating_pod_gets_its_own_share() -> None:
    world = placed()
    terminate(world)
    show_second_pod(world)
    assert isinstance(world.step(), Pin)
    show_newer_version(world, 9)
    decide(world)
    assert high_priority_claims(world) == 2
