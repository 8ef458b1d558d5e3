"""Parts of kfext and of a node are replaced while jobs share the cards that the node simulates."""

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
    kernels,
    reservations,
    shared_gpu_of,
    sharers,
    simulate_cards,
    start_nvidia_stand_in,
    start_pair,
    stop_nvidia_stand_in,
    unique_name,
    wait_shared,
    wait_shared_card,
    wait_unreserved,
)
from e2e.harness.gpu_jobs import Team, dial_job
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


def test_jobs_continue_while_kubelet_and_the_agent_are_replaced(team: Team, gpu_node: Node) -> None:
    pair = start_pair(team, gpu_node)
    uids = pair.uids()
    before = agent_of(team.bed, gpu_node)["metadata"]
    gpu_node.stop_kubelet()
    gpu_node.start_kubelet()
    gpu_node.wait()
    kubectl(team.bed, "delete", "pod", "-n", names.GPU_NAMESPACE, before["name"])
    until(
        lambda: agent_replaced(team.bed, before["uid"]),
        what="a new agent runs and the old agent is gone",
        account=team.messages,
    )
    wait_shared(team.bed, gpu_node)
    pair.check_still_training(in_pods=uids)


def agent_replaced(bed: Testbed, uid: str) -> bool:
    """Return whether there are pods of agents, and none of them has this uid."""
    pods = bed.api.get(f"/api/v1/namespaces/{names.GPU_NAMESPACE}/pods")["items"]
    agents = [pod for pod in pods if pod["spec"].get("serviceAccountName") == names.AGENT]
    return bool(agents) and all(pod["metadata"]["uid"] != uid for pod in agents)


def test_jobs_continue_while_nvidias_plugin_is_replaced(team: Team, gpu_node: Node) -> None:
    pair, whole = start_pair(team, gpu_node), unique_name("whole")
    uids, (reservation,) = pair.uids(), reservations(team.bed)
    stop_nvidia_stand_in(team.bed, gpu_node)
    until(lambda: healthy_cards(team, gpu_node) == 0, what="kubelet knows of no card")
    for name in (pair.high, pair.low):
        pair.wait_for_steps(name)
    start_nvidia_stand_in(gpu_node)
    until(lambda: healthy_cards(team, gpu_node) == 2, what="kubelet knows the cards again")
    pair.check_still_training(in_pods=uids)
    (after,) = reservations(team.bed)
    assert after["metadata"]["uid"] == reservation["metadata"]["uid"]
    team.submit(dial_job(whole, steps=STEPS))
    team.wait_succeeded(whole)
    assert not kernels(gpu_node, pair.card, whole), "the shared card is not allocated to it"


def healthy_cards(team: Team, node: Node) -> int:
    """Return the number of cards that NVIDIA's plugin offers on a node, shared cards included."""
    offered = team.bed.api.get(f"/api/v1/nodes/{node.name}")["status"]["allocatable"]
    return int(offered.get(NATIVE_GPU, "0"))


# --- kfext ----------------------------------------------------------------------------------------


def test_no_pod_gets_a_share_of_a_card_while_no_webhook_answers(team: Team, gpu_node: Node) -> None:
    held = unique_name("held")
    scale(team.bed, "kfext-controller", 0)
    try:
        team.submit(dial_job(held, {"share": "0.5"}, steps=STEPS))
        scale(team.bed, "kfext-webhook", 0)
        with pytest.raises(ApiError, match="webhook"):
            team.submit(dial_job(unique_name("refused"), {"share": "0.5"}))
        scale(team.bed, "kfext-controller", 2)
        until(partial(refused_a_pod, team), what="no pod is created", account=team.messages)
        assert sharers(team, gpu_node) == []
    finally:
        scale(team.bed, "kfext-webhook", 2)
        scale(team.bed, "kfext-controller", 2)
    team.wait_succeeded(held)


def refused_a_pod(team: Team) -> bool:
    """Return whether the operator failed to create a pod because no webhook answered."""
    events = team.bed.api.get(f"/api/v1/namespaces/{team.namespace}/events")["items"]
    refusals = (event["message"] for event in events if event["reason"] == "FailedCreatePod")
    return any("webhook" in message for message in refusals)


def test_sharers_continue_while_all_of_kfext_is_replaced(team: Team, gpu_node: Node) -> None:
    pair, between = start_pair(team, gpu_node), unique_name("between")
    uids = pair.uids()
    parts = (
        (names.NAMESPACE, "deployment/kfext-webhook"),
        (names.NAMESPACE, "deployment/kfext-controller"),
        (names.GPU_NAMESPACE, f"daemonset/{names.AGENT}"),
    )
    for namespace, part in parts:
        kubectl(team.bed, "rollout", "restart", "-n", namespace, part)
    team.submit(dial_job(between, {"share": "0.5", "priority": "high"}, steps=STEPS))
    for namespace, part in parts:
        kubectl(team.bed, "rollout", "status", "-n", namespace, part, "--timeout=300s")
    wait_shared(team.bed, gpu_node)
    team.wait_succeeded(between)
    assert NATIVE_GPU not in resource_limits(team, between)
    pair.check_still_training(in_pods=uids)


def resource_limits(team: Team, name: str) -> Object:
    path = f"/api/v1/namespaces/{team.namespace}/pods/{name}-master-0"
    (container,) = team.bed.api.get(path)["spec"]["containers"]
    return dict(container["resources"]["limits"])


def test_the_next_controller_finishes_the_work_of_its_predecessor(
    team: Team, gpu_node: Node
) -> None:
    old_leader, job = leader(team.bed), unique_name("job")
    # More steps, because the old leader may place it, and it must not end before another leads.
    team.submit(dial_job(job, HIGH, load_ms=LOAD_MS, steps=5 * STEPS))
    at_once = ("--grace-period=0", "--force")
    kubectl(team.bed, "delete", "pod", "-n", names.NAMESPACE, name_of(old_leader), *at_once)
    until(lambda: name_of(leader(team.bed)) != name_of(old_leader), what="another leads")
    trains_on_one_card(team, gpu_node, job)


def test_a_frozen_leader_reserves_nothing_after_another_has_placed_a_job(
    team: Team, gpu_node: Node
) -> None:
    old_leader, job = leader(team.bed), unique_name("job")
    (node,) = (node for node in nodes(team.bed) if node.name == old_leader["spec"]["nodeName"])
    pids = node.pod_processes(old_leader["metadata"]["uid"], running="kfext")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        team.submit(dial_job(job, HIGH, load_ms=LOAD_MS, steps=STEPS))
        until(lambda: name_of(leader(team.bed)) != name_of(old_leader), what="another leads")
        team.wait_running(job)
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
    return str(pod["metadata"]["name"])


def trains_on_one_card(team: Team, node: Node, job: str) -> None:
    """Check that one card is reserved, and that a job trains there until it has succeeded."""
    team.wait_running(job)
    (reservation,) = reservations(team.bed)
    wait_shared_card(team, node, job)
    slot = shared_gpu_of(team, node, job)
    assert slot is not None
    assert slot["status"]["reservation"] == reservation["metadata"]["uid"]
    team.wait_succeeded(job)


def test_a_node_that_comes_back_shares_its_cards_again(team: Team, gpu_node: Node) -> None:
    lost, later = unique_name("lost"), unique_name("later")
    team.submit(dial_job(lost, HIGH, load_ms=LOAD_MS, steps=ENDLESS))
    team.wait_running(lost)
    gpu_node.kill()
    gpu_node.start()
    simulate_cards(gpu_node, 2)
    gpu_node.wait()
    wait_shared(team.bed, gpu_node)
    team.delete(lost)
    wait_unreserved(team.bed)
    team.submit(dial_job(later, HIGH, load_ms=LOAD_MS, steps=STEPS))
    team.wait_succeeded(later)
