"""Faults while jobs share cards that a node's CPU simulates: who yields, what shows, what stays.

The cases assert counts of the card and the state of the cluster, never a time.
"""

import signal
from typing import Any

import pytest

from e2e.gpu.node_cards import uuids
from e2e.harness.gpu import (
    ENDLESS,
    HIGH,
    LOAD_MS,
    LOW,
    STEP_KERNELS,
    agent_of,
    beside_high,
    card_of,
    kernels,
    named,
    reservations,
    set_trouble,
    sharers,
    sharers_of,
    signal_agent,
    slot_of,
    slots,
)
from e2e.harness.gpu_jobs import Team, dialled
from e2e.harness.install import kubectl, scale
from e2e.harness.wait import until
from e2e.testbed.api import ApiError
from e2e.testbed.realnodes import Node
from kfext import names

pytestmark = pytest.mark.usefixtures("nothing_left")

STEPS = 100
MORE_STEPS = 25
"""The high-priority job takes longer for these steps than the agent's orders hold, which is 2 s."""
LONG_SECONDS = 300.0
EVICTED_SECONDS = 900.0
"""Three periods of a minute with losses, a shut-out of a minute after two of them, and a delay."""
Object = dict[str, Any]


# --- the agent ----------------------------------------------------------------------------------


def starts_of(agent: Object) -> int:
    """Return the restarts of an agent's container; -1 while it is not ready."""
    (container,) = agent["status"].get("containerStatuses", [{"ready": False}])
    return int(container["restartCount"]) if container["ready"] else -1


@pytest.mark.long
def test_without_its_agent_low_priority_paces_itself_and_still_yields(
    team: Team, gpu_node: Node
) -> None:
    pair = beside_high(team, gpu_node)
    before = starts_of(agent_of(team.bed, gpu_node))
    led = pair.pace()
    signal_agent(team.bed, gpu_node, signal.SIGSTOP)
    pair.goes_on(pair.high, steps=MORE_STEPS)
    alone = pair.pace()
    assert 0 < alone < led
    signal_agent(team.bed, gpu_node, signal.SIGCONT)
    signal_agent(team.bed, gpu_node, signal.SIGKILL)
    until(
        lambda: starts_of(agent_of(team.bed, gpu_node)) > before,
        what="the agent runs again",
        account=team.said,
    )
    middle = (alone + led) / 2  # the agent leads it again once the sharers have found it
    until(lambda: pair.pace() > middle, what="the agent leads low again", account=team.said)
    assert pair.late() <= 0.01, "it yielded all the time"


# --- the jobs -----------------------------------------------------------------------------------


def test_a_job_that_is_killed_in_a_micro_step_costs_the_other_nothing(
    team: Team, gpu_node: Node
) -> None:
    pair = beside_high(team, gpu_node)
    pair.goes_on(pair.low, steps=MORE_STEPS)
    pair.kill(pair.low)
    assert card_of(team, gpu_node, pair.high) == pair.card
    pair.goes_on(pair.high)
    later = named("later")
    team.submit(dialled(later, LOW, steps=STEPS))
    team.running(later)
    pair.kill(pair.high)
    team.succeeded(later)
    assert pair.late() <= 0.01


@pytest.mark.long
def test_a_namesake_has_its_own_share_while_the_job_before_it_ends(
    team: Team, gpu_node: Node
) -> None:
    twin, most, promised = named("twin"), {"share": "0.6"}, [0]
    team.submit(dialled(twin, most, steps=ENDLESS))
    first = team.running(twin)["metadata"]["uid"]
    team.bed.api.delete(f"/apis/kubeflow.org/v1/namespaces/{team.namespace}/pytorchjobs/{twin}")
    until(lambda: created(team, dialled(twin, most, steps=STEPS)), what="the name is free")

    def has_its_own() -> bool:
        for slot in slots(team.bed, gpu_node.name):
            promised.append(sum(sharer["sharePercent"] for sharer in sharers_of(slot)))
        return any(sharer["podUID"] not in {first, ""} for sharer in sharers(team, gpu_node))

    until(has_its_own, what="it has a share", account=team.said, seconds=LONG_SECONDS)
    team.succeeded(twin)
    assert max(promised) <= 100


def created(team: Team, job: Object) -> bool:
    """Create a job; return whether its name was free."""
    try:
        team.submit(job)
    except ApiError as error:
        if error.status != 409:
            raise
        return False
    return True


@pytest.mark.long
def test_a_job_without_the_hook_is_reported_and_evicted(team: Team, gpu_node: Node) -> None:
    pair = beside_high(team, gpu_node, disables=True)
    until(
        lambda: "not hooked: none of its processes" in str(team.plan(pair.low).get("message")),
        what="its plan says so",
        account=team.said,
        seconds=LONG_SECONDS,
    )
    assert "not hooked" not in str(team.plan(pair.high).get("message"))
    until(
        lambda: team.plan(pair.low).get("reason") == names.REASON_EVICTED,
        what="it is evicted",
        account=team.said,
        seconds=EVICTED_SECONDS,
    )
    pair.goes_on(pair.high)


@pytest.mark.long
def test_a_job_that_queues_200_kernels_is_shut_out_when_that_costs_too_much(
    team: Team, gpu_node: Node
) -> None:
    pair = beside_high(team, gpu_node, queue=200)
    until(
        lambda: any(sharer.get("strikes", 0) > 0 for sharer in sharers(team, gpu_node)),
        what="it has a strike",
        account=team.said,
        seconds=LONG_SECONDS,
    )
    pair.goes_on(pair.high)  # the kernels queued before are done then
    before = kernels(gpu_node, pair.card, pair.low)
    pair.goes_on(pair.high)
    begun = kernels(gpu_node, pair.card, pair.low) - before
    assert begun <= 200 + STEP_KERNELS, "its queued kernels, and the current step"


# --- cards and reservations ---------------------------------------------------------------------


def test_a_job_moves_off_a_faulty_card_to_another_and_says_why(team: Team, gpu_node: Node) -> None:
    patient = named("patient")
    team.submit(dialled(patient, HIGH, load_ms=LOAD_MS, steps=ENDLESS))
    card = card_of(team, gpu_node, patient)
    (other,) = (uuid for uuid in uuids(gpu_node.name, 2) if uuid != card)
    until(lambda: kernels(gpu_node, card, patient), what="it trains", account=team.said)
    set_trouble(gpu_node, card, "it reported Xid 79")
    try:
        until(
            lambda: team.plan(patient).get("reason") == names.REASON_CARD_LOST,
            what="its plan says why it was stopped",
            account=team.said,
        )
        until(
            lambda: kernels(gpu_node, other, patient),
            what="it trains on the other card",
            account=team.said,
            seconds=LONG_SECONDS,
        )
    finally:
        set_trouble(gpu_node, card, "")


@pytest.mark.long
def test_a_reservation_that_is_deleted_by_hand_is_recreated_with_the_same_card(
    team: Team, gpu_node: Node
) -> None:
    part, whole = named("part"), named("whole")
    team.submit(dialled(part, {"share": "0.5"}, steps=ENDLESS))
    pod = team.running(part)["metadata"]["uid"]
    card = card_of(team, gpu_node, part)
    team.submit(dialled(whole, steps=ENDLESS))  # so that one card alone is left
    team.running(whole)
    (reservation,) = reservations(team.bed)
    name, uid = reservation["metadata"]["name"], reservation["metadata"]["uid"]
    kubectl(team.bed, "delete", "pod", "-n", names.GPU_NAMESPACE, name)

    def anew() -> bool:
        slot = slot_of(team, gpu_node, part)
        return slot is not None and slot["status"].get("reservation", uid) != uid

    until(anew, what="the card is reserved again", account=team.said)
    before = kernels(gpu_node, card, part)
    until(lambda: kernels(gpu_node, card, part) > before + STEP_KERNELS, what="it continues")
    assert team.running(part)["metadata"]["uid"] == pod


@pytest.mark.long
def test_a_card_that_kubelet_allocated_to_another_pod_is_no_longer_used(
    team: Team, gpu_node: Node
) -> None:
    part, whole, taker = named("part"), named("whole"), named("taker")
    team.submit(dialled(part, {"share": "0.5"}, steps=ENDLESS))
    card = card_of(team, gpu_node, part)
    team.submit(dialled(whole, steps=ENDLESS))  # so that one card alone is left
    team.running(whole)
    (template,) = dialled(taker, steps=ENDLESS)["spec"]["pytorchReplicaSpecs"].values()
    pods = f"/api/v1/namespaces/{team.namespace}/pods"
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": taker}, **template["template"]}
    team.bed.api.create(pods, made)
    (reservation,) = reservations(team.bed)
    scale(team.bed, "kfext-controller", 0)  # so that the other pod is first
    try:
        name = reservation["metadata"]["name"]
        kubectl(team.bed, "delete", "pod", "-n", names.GPU_NAMESPACE, name)
        until(lambda: kernels(gpu_node, card, taker), what="the other pod has the card")
    finally:
        scale(team.bed, "kfext-controller", 2)
    until(
        lambda: team.plan(part).get("reason") == names.REASON_CARD_LOST,
        what="its plan says why it was stopped",
        account=team.said,
        seconds=LONG_SECONDS,
    )
    until(lambda: not sharers(team, gpu_node), what="it is not on the card any more")
    kubectl(team.bed, "delete", "pod", "-n", team.namespace, taker)
