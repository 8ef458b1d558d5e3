"""Faults while jobs share cards that a node's CPU plays: who gives way, what is shown, what stays.

What is asserted is what the card has counted and what the cluster shows, never a time.
"""

import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from e2e.gpu.node_cards import uuids
from e2e.harness.gpu import (
    agent_of,
    late,
    left_over,
    play_cards,
    reservations,
    set_trouble,
    signal_agent,
    slots,
    unreserved,
    wait_shared,
)
from e2e.harness.gpu_jobs import Team, dialled
from e2e.harness.gpu_pair import (
    ENDLESS,
    HIGH,
    LOAD_MS,
    LOW,
    STEP_KERNELS,
    TRAINING,
    Pair,
    beside_high,
    card_of,
    kernels,
    named,
    sharers,
    sharers_of,
    slot_of,
)
from e2e.harness.install import kubectl
from e2e.harness.wait import until
from e2e.testbed.api import ApiError
from e2e.testbed.cluster import Testbed
from e2e.testbed.realnodes import Node
from kfext import names
from kfext.names import NATIVE_GPU

STEPS = 100
LEASE_STEPS = 25
"""These take the job of high priority longer than orders of the agent hold, which is 2 s."""
LONG_SECONDS = 300.0
EVICTED_SECONDS = 900.0
"""Three times of a minute of losses, and being shut out for one after two of them; and a delay."""
Object = dict[str, Any]


@pytest.fixture(autouse=True)
def nothing_left(bed: Testbed, gpu_node: Node) -> Iterator[None]:
    """After each case, and the end of its namespace, no card is reserved and nothing trains."""
    yield
    unreserved(bed)
    until(lambda: not left_over(gpu_node), what="the agent has forgotten all sharers")
    until(lambda: not gpu_node.processes(running=TRAINING), what="no training is left")


# --- the agent ----------------------------------------------------------------------------------


def starts_of(agent: Object) -> int:
    """Return how often the container of an agent was started again; -1 while it is not ready."""
    (container,) = agent["status"].get("containerStatuses", [{"ready": False}])
    return int(container["restartCount"]) if container["ready"] else -1


def test_without_its_agent_low_priority_paces_itself_and_goes_on_to_give_way(
    team: Team, gpu_node: Node
) -> None:
    pair = beside_high(team, gpu_node)
    before = starts_of(agent_of(team.bed, gpu_node))
    led = pair.pace()
    signal_agent(team.bed, gpu_node, signal.SIGSTOP)
    pair.goes_on(pair.high, steps=LEASE_STEPS)
    alone = pair.pace()
    assert 0 < alone < led
    signal_agent(team.bed, gpu_node, signal.SIGCONT)
    signal_agent(team.bed, gpu_node, signal.SIGKILL)
    until(
        lambda: starts_of(agent_of(team.bed, gpu_node)) > before,
        what="the agent runs again",
        account=team.said,
    )
    pair.goes_on(pair.high, steps=LEASE_STEPS)
    assert pair.pace() > alone
    assert late(gpu_node, pair.card, pair.low) <= 0.01, "it gave way all the time"


@pytest.mark.long
def test_jobs_go_on_while_kubelet_and_the_agent_are_replaced(team: Team, gpu_node: Node) -> None:
    pair = beside_high(team, gpu_node)
    uids = uids_of(pair)
    before = agent_of(team.bed, gpu_node)["metadata"]
    gpu_node.stop_kubelet()
    gpu_node.start_kubelet()
    gpu_node.wait()
    kubectl(team.bed, "delete", "pod", "-n", names.GPU_NAMESPACE, before["name"])
    until(
        lambda: agents_but(team.bed, before["uid"]),
        what="another agent is there",
        account=team.said,
    )
    wait_shared(team.bed, gpu_node)
    trains_on(pair, before=uids)


def uids_of(pair: Pair) -> dict[str, str]:
    """Return the uids of the pods of a pair, by job."""
    return {name: pair.team.running(name)["metadata"]["uid"] for name in (pair.high, pair.low)}


def trains_on(pair: Pair, *, before: dict[str, str]) -> None:
    """Check that both go on, in the same pods and on the same card, and that low gives way."""
    assert card_of(pair.team, pair.node, pair.high, pair.low) == pair.card
    for name in before:
        pair.goes_on(name)
    assert uids_of(pair) == before
    assert late(pair.node, pair.card, pair.low) <= 0.01


def agents_but(bed: Testbed, uid: str) -> bool:
    """Return whether an agent is there, and none with this uid."""
    pods = bed.api.get(f"/api/v1/namespaces/{names.GPU_NAMESPACE}/pods")["items"]
    agents = [pod for pod in pods if pod["spec"].get("serviceAccountName") == names.AGENT]
    return bool(agents) and all(pod["metadata"]["uid"] != uid for pod in agents)


# --- the jobs -----------------------------------------------------------------------------------


def test_a_job_that_is_killed_in_a_micro_step_costs_the_other_nothing(
    team: Team, gpu_node: Node
) -> None:
    pair = beside_high(team, gpu_node)
    pair.kill(pair.low)
    assert card_of(team, gpu_node, pair.high) == pair.card
    pair.goes_on(pair.high)
    later = named("later")
    team.submit(dialled(later, LOW, steps=STEPS))
    team.running(later)
    pair.kill(pair.high)
    team.succeeded(later)
    assert late(gpu_node, pair.card, pair.low) <= 0.01


@pytest.mark.long
def test_a_namesake_has_a_part_of_its_own_while_the_one_before_it_ends(
    team: Team, gpu_node: Node
) -> None:
    twin, most, promised = named("twin"), {"share": "0.6"}, [0]
    team.submit(dialled(twin, most, steps=ENDLESS))
    first = team.running(twin)["metadata"]["uid"]
    team.bed.api.delete(f"/apis/kubeflow.org/v1/namespaces/{team.namespace}/pytorchjobs/{twin}")
    until(lambda: created(team, dialled(twin, most, steps=STEPS)), what="the name is free")

    def has_its_own() -> bool:
        for slot in slots(team.bed, gpu_node.name):
            promised.append(sum(one["sharePercent"] for one in sharers_of(slot)))
        return any(one["podUID"] not in {first, ""} for one in sharers(team, gpu_node))

    until(has_its_own, what="it has a part", account=team.said, seconds=LONG_SECONDS)
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
def test_a_job_that_leaves_the_hook_out_is_shown_to_do_so_and_has_to_leave(
    team: Team, gpu_node: Node
) -> None:
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
        lambda: any(one.get("strikes", 0) > 0 for one in sharers(team, gpu_node)),
        what="it has a strike",
        account=team.said,
        seconds=LONG_SECONDS,
    )
    pair.goes_on(pair.high)  # what was queued before is done then
    before = kernels(gpu_node, pair.card, pair.low)
    pair.goes_on(pair.high)
    begun = kernels(gpu_node, pair.card, pair.low) - before
    assert begun <= 200 + STEP_KERNELS, "one step at most, for a ticket"


# --- cards and reservations ---------------------------------------------------------------------


def test_of_a_card_in_trouble_the_job_goes_to_another_and_says_why(
    team: Team, gpu_node: Node
) -> None:
    patient = named("patient")
    team.submit(dialled(patient, HIGH, load_ms=LOAD_MS, steps=ENDLESS))
    card = card_of(team, gpu_node, patient)
    (other,) = (one for one in uuids(gpu_node.name, 2) if one != card)
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
def test_a_reservation_that_is_deleted_by_hand_comes_back_with_the_same_card(
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

    until(anew, what="the card is reserved anew", account=team.said)
    before = kernels(gpu_node, card, part)
    until(lambda: kernels(gpu_node, card, part) > before + STEP_KERNELS, what="it goes on")
    assert team.running(part)["metadata"]["uid"] == pod


@pytest.mark.long
def test_a_card_that_another_pod_got_meanwhile_is_not_used_any_more(
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
    scale(team.bed, "kfext-controller", 0)  # so that nothing is faster than the other pod
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


# --- kfext and the node -------------------------------------------------------------------------


def scale(bed: Testbed, part: str, replicas: int) -> None:
    """Have a part of kfext run so many times; return when it does."""
    at = ("-n", names.NAMESPACE)
    kubectl(bed, "scale", "deployment", part, *at, f"--replicas={replicas}")
    kubectl(bed, "rollout", "status", "deployment", part, *at, "--timeout=180s")
    if not replicas:
        label = f"app.kubernetes.io/component={part.removeprefix('kfext-')}"
        kubectl(bed, "wait", "pod", *at, "-l", label, "--for=delete", "--timeout=180s")


@pytest.mark.long
def test_while_no_webhook_answers_nothing_gets_a_part_of_a_card(team: Team, gpu_node: Node) -> None:
    held = named("held")
    scale(team.bed, "kfext-controller", 0)
    try:
        team.submit(dialled(held, {"share": "0.5"}, steps=STEPS))
        scale(team.bed, "kfext-webhook", 0)
        with pytest.raises(ApiError, match="webhook"):
            team.submit(dialled(named("refused"), {"share": "0.5"}))
        scale(team.bed, "kfext-controller", 2)
        until(partial(refused_a_pod, team), what="no pod is created", account=team.said)
        assert sharers(team, gpu_node) == []
    finally:
        scale(team.bed, "kfext-webhook", 2)
        scale(team.bed, "kfext-controller", 2)
    team.succeeded(held)


def refused_a_pod(team: Team) -> bool:
    """Return whether the operator has tried to create a pod, in vain for want of a webhook."""
    events = team.bed.api.get(f"/api/v1/namespaces/{team.namespace}/events")["items"]
    refusals = (one["message"] for one in events if one["reason"] == "FailedCreatePod")
    return any("webhook" in message for message in refusals)


@pytest.mark.long
def test_sharers_train_on_while_all_of_kfext_is_replaced(team: Team, gpu_node: Node) -> None:
    pair, between = beside_high(team, gpu_node), named("between")
    uids = uids_of(pair)
    parts = (
        (names.NAMESPACE, "deployment/kfext-webhook"),
        (names.NAMESPACE, "deployment/kfext-controller"),
        (names.GPU_NAMESPACE, f"daemonset/{names.AGENT}"),
    )
    for namespace, part in parts:
        kubectl(team.bed, "rollout", "restart", "-n", namespace, part)
    team.submit(dialled(between, {"share": "0.5", "priority": "high"}, steps=STEPS))
    for namespace, part in parts:
        kubectl(team.bed, "rollout", "status", "-n", namespace, part, "--timeout=300s")
    wait_shared(team.bed, gpu_node)
    team.succeeded(between)
    assert NATIVE_GPU not in asked_of_kubelet(team, between)
    trains_on(pair, before=uids)


def asked_of_kubelet(team: Team, name: str) -> Object:
    """Return the limits of the only container of a job's pod."""
    path = f"/api/v1/namespaces/{team.namespace}/pods/{name}-master-0"
    (container,) = team.bed.api.get(path)["spec"]["containers"]
    return dict(container["resources"]["limits"])


@pytest.mark.long
def test_the_next_controller_finishes_what_the_one_before_it_has_begun(
    team: Team, gpu_node: Node
) -> None:
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases/{names.LEASE}"
    before = team.bed.api.get(lease)["spec"]["holderIdentity"]
    pods = team.bed.api.get(f"/api/v1/namespaces/{names.NAMESPACE}/pods")["items"]
    (leader,) = (name for pod in pods if (name := pod["metadata"]["name"]) in before)
    job = named("job")
    team.submit(dialled(job, HIGH, load_ms=LOAD_MS, steps=STEPS))
    at_once = ("--grace-period=0", "--force")
    kubectl(team.bed, "delete", "pod", "-n", names.NAMESPACE, leader, *at_once)
    until(
        lambda: team.bed.api.get(lease)["spec"]["holderIdentity"] not in {before, ""},
        what="another one leads",
    )
    team.running(job)
    (reservation,) = reservations(team.bed)
    card_of(team, gpu_node, job)
    slot = slot_of(team, gpu_node, job)
    assert slot is not None
    assert slot["status"]["reservation"] == reservation["metadata"]["uid"]
    team.succeeded(job)


@pytest.mark.long
def test_a_node_that_comes_back_shares_its_cards_again(team: Team, gpu_node: Node) -> None:
    lost, later = named("lost"), named("later")
    team.submit(dialled(lost, HIGH, load_ms=LOAD_MS, steps=ENDLESS))
    team.running(lost)
    gpu_node.kill()
    gpu_node.start()
    play_cards(gpu_node, 2)
    gpu_node.wait()
    wait_shared(team.bed, gpu_node)
    team.delete(lost)
    unreserved(team.bed)
    team.submit(dialled(later, HIGH, load_ms=LOAD_MS, steps=STEPS))
    team.succeeded(later)
