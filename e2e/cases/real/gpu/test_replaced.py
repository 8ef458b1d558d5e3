"""Parts of kfext and of a node are replaced while jobs share cards that its CPU simulates."""

import os
import signal
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from e2e.harness.gpu import (
    ENDLESS,
    HIGH,
    LOAD_MS,
    agent_of,
    beside_high,
    card_of,
    kernels,
    named,
    reservations,
    sharers,
    simulate_cards,
    slot_of,
    start_native_plugin,
    stop_native_plugin,
    unreserved,
    wait_shared,
)
from e2e.harness.gpu_jobs import Team, dialled
from e2e.harness.install import kubectl, lease_holder, scale
from e2e.harness.wait import until
from e2e.testbed.api import ApiError
from e2e.testbed.cluster import Testbed
from e2e.testbed.realnodes import Node, nodes
from kfext import names
from kfext.names import NATIVE_GPU

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("nothing_left")]

STEPS = 100
Object = dict[str, Any]


# --- the node -------------------------------------------------------------------------------------


def test_jobs_go_on_while_kubelet_and_the_agent_are_replaced(team: Team, gpu_node: Node) -> None:
    pair = beside_high(team, gpu_node)
    uids = pair.uids()
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
    pair.trains_on(in_pods=uids)


def agents_but(bed: Testbed, uid: str) -> bool:
    """Return whether agents run, and none of them has this uid."""
    pods = bed.api.get(f"/api/v1/namespaces/{names.GPU_NAMESPACE}/pods")["items"]
    agents = [pod for pod in pods if pod["spec"].get("serviceAccountName") == names.AGENT]
    return bool(agents) and all(pod["metadata"]["uid"] != uid for pod in agents)


def test_jobs_go_on_while_nvidias_plugin_is_replaced(team: Team, gpu_node: Node) -> None:
    pair, whole = beside_high(team, gpu_node), named("whole")
    uids, (reservation,) = pair.uids(), reservations(team.bed)
    stop_native_plugin(team.bed, gpu_node)
    until(lambda: healthy_cards(team, gpu_node) == 0, what="kubelet knows of no card")
    for name in (pair.high, pair.low):
        pair.goes_on(name)
    start_native_plugin(gpu_node)
    until(lambda: healthy_cards(team, gpu_node) == 2, what="kubelet knows the cards again")
    pair.trains_on(in_pods=uids)
    (after,) = reservations(team.bed)
    assert after["metadata"]["uid"] == reservation["metadata"]["uid"]
    team.submit(dialled(whole, steps=STEPS))
    team.succeeded(whole)
    assert not kernels(gpu_node, pair.card, whole), "the shared card is not allocated to it"


def healthy_cards(team: Team, node: Node) -> int:
    """Return the number of whole cards that the node offers."""
    offered = team.bed.api.get(f"/api/v1/nodes/{node.name}")["status"]["allocatable"]
    return int(offered.get(NATIVE_GPU, "0"))


# --- kfext ----------------------------------------------------------------------------------------


def test_no_pod_has_a_share_of_a_card_while_no_webhook_answers(team: Team, gpu_node: Node) -> None:
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
    """Return whether the operator has tried and failed to create a pod, for want of a webhook."""
    events = team.bed.api.get(f"/api/v1/namespaces/{team.namespace}/events")["items"]
    refusals = (event["message"] for event in events if event["reason"] == "FailedCreatePod")
    return any("webhook" in message for message in refusals)


def test_sharers_train_on_while_all_of_kfext_is_replaced(team: Team, gpu_node: Node) -> None:
    pair, between = beside_high(team, gpu_node), named("between")
    uids = pair.uids()
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
    pair.trains_on(in_pods=uids)


def asked_of_kubelet(team: Team, name: str) -> Object:
    """Return the limits of the only container of a job's pod."""
    path = f"/api/v1/namespaces/{team.namespace}/pods/{name}-master-0"
    (container,) = team.bed.api.get(path)["spec"]["containers"]
    return dict(container["resources"]["limits"])


def test_the_next_controller_finishes_the_work_of_its_predecessor(
    team: Team, gpu_node: Node
) -> None:
    before, job = leader(team.bed), named("job")
    team.submit(dialled(job, HIGH, load_ms=LOAD_MS, steps=STEPS))
    at_once = ("--grace-period=0", "--force")
    kubectl(team.bed, "delete", "pod", "-n", names.NAMESPACE, name_of(before), *at_once)
    until(lambda: name_of(leader(team.bed)) != name_of(before), what="another controller leads")
    trains_on_one_card(team, gpu_node, job)


def test_a_frozen_leader_reserves_nothing_after_another_has_placed_a_job(
    team: Team, gpu_node: Node
) -> None:
    before, job = leader(team.bed), named("job")
    (at,) = (node for node in nodes(team.bed) if node.name == before["spec"]["nodeName"])
    pids = at.pod_processes(before["metadata"]["uid"], running="kfext")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        team.submit(dialled(job, HIGH, load_ms=LOAD_MS, steps=STEPS))
        until(lambda: name_of(leader(team.bed)) != name_of(before), what="another controller leads")
        team.running(job)
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):  # kubelet may have replaced it by now
                os.kill(pid, signal.SIGCONT)
    trains_on_one_card(team, gpu_node, job)


def leader(bed: Testbed) -> Object:
    """Return the pod of the leading controller."""
    pods = f"/api/v1/namespaces/{names.NAMESPACE}/pods"

    def leads() -> Object | None:
        holder = lease_holder(bed)
        return next((pod for pod in bed.api.get(pods)["items"] if name_of(pod) in holder), None)

    return until(leads, what="a controller leads")


def name_of(pod: Object) -> str:
    """Return the name of a pod."""
    return str(pod["metadata"]["name"])


def trains_on_one_card(team: Team, node: Node, job: str) -> None:
    """Check that one card is reserved, and that a job trains on it to its end."""
    team.running(job)
    (reservation,) = reservations(team.bed)
    card_of(team, node, job)
    slot = slot_of(team, node, job)
    assert slot is not None
    assert slot["status"]["reservation"] == reservation["metadata"]["uid"]
    team.succeeded(job)


def test_a_node_that_comes_back_shares_its_cards_again(team: Team, gpu_node: Node) -> None:
    lost, later = named("lost"), named("later")
    team.submit(dialled(lost, HIGH, load_ms=LOAD_MS, steps=ENDLESS))
    team.running(lost)
    gpu_node.kill()
    gpu_node.start()
    simulate_cards(gpu_node, 2)
    gpu_node.wait()
    wait_shared(team.bed, gpu_node)
    team.delete(lost)
    unreserved(team.bed)
    team.submit(dialled(later, HIGH, load_ms=LOAD_MS, steps=STEPS))
    team.succeeded(later)
