"""Faults of the agent, of jobs and of cards while jobs share cards that a node's CPU simulates.

The cases assert counters of the card and the state of the cluster, never a time.
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
    kernels,
    reservations,
    set_card_error,
    shared_gpu_of,
    shared_gpus,
    sharers,
    sharers_of,
    signal_agent,
    start_pair,
    unique_name,
    wait_shared_card,
)
from e2e.harness.gpu_jobs import Team, dial_job
from e2e.harness.install import kubectl, scale
from e2e.harness.wait import until
from e2e.testbed.api import ApiError
from e2e.testbed.realnodes import Node
from kfext import names

pytestmark = pytest.mark.usefixtures("nothing_left")

STEPS = 100
MORE_STEPS = 25
"""These steps take the high-priority job more than 2 s, when the agent's orders expire."""
LONG_SECONDS = 300.0
EVICTED_SECONDS = 900.0
"""Eviction takes three one-minute periods with losses, a minute shut out, and a delay."""
Object = dict[str, Any]


# --- the agent ----------------------------------------------------------------------------------


def restarts_of(agent: Object) -> int:
    """Return the restart count of an agent's container, or -1 while it is not ready."""
    (container,) = agent["status"].get("containerStatuses", [{"ready": False}])
    return int(container["restartCount"]) if container["ready"] else -1


@pytest.mark.long
def test_without_the_agent_a_low_priority_job_slows_down_and_still_yields(
    team: Team, gpu_node: Node
) -> None:
    pair = start_pair(team, gpu_node)
    before = restarts_of(agent_of(team.bed, gpu_node))
    pace_with_agent = pair.pace()
    signal_agent(team.bed, gpu_node, signal.SIGSTOP)
    pair.wait_for_steps(pair.high, steps=MORE_STEPS)
    pace_alone = pair.pace()
    assert 0 < pace_alone < pace_with_agent
    signal_agent(team.bed, gpu_node, signal.SIGCONT)
    signal_agent(team.bed, gpu_node, signal.SIGKILL)
    until(
        lambda: restarts_of(agent_of(team.bed, gpu_node)) > before,
        what="the agent runs again",
        account=team.messages,
    )
    middle = (pace_alone + pace_with_agent) / 2  # exceeded once the sharers have found the agent
    until(lambda: pair.pace() > middle, what="the agent paces low again", account=team.messages)
    assert pair.late_fraction() <= 0.01, "low yielded throughout"


# --- the jobs -----------------------------------------------------------------------------------


def test_a_job_that_is_killed_in_a_micro_step_does_not_block_the_other(
    team: Team, gpu_node: Node
) -> None:
    pair = start_pair(team, gpu_node)
    pair.wait_for_steps(pair.low, steps=MORE_STEPS)
    pair.kill(pair.low)
    assert wait_shared_card(team, gpu_node, pair.high) == pair.card
    pair.wait_for_steps(pair.high)
    later = unique_name("later")
    team.submit(dial_job(later, LOW, steps=STEPS))
    team.wait_running(later)
    pair.kill(pair.high)
    team.wait_succeeded(later)
    assert pair.late_fraction() <= 0.01


@pytest.mark.long
def test_a_job_with_the_name_of_a_terminating_job_gets_a_share_of_its_own(
    team: Team, gpu_node: Node
) -> None:
    # Two shares of 0.6 do not fit one card.
    twin, settings, promised = unique_name("twin"), {"share": "0.6"}, [0]
    team.submit(dial_job(twin, settings, steps=ENDLESS))
    first = team.wait_running(twin)["metadata"]["uid"]
    team.bed.api.delete(f"/apis/kubeflow.org/v1/namespaces/{team.namespace}/pytorchjobs/{twin}")
    until(lambda: created(team, dial_job(twin, settings, steps=STEPS)), what="the name is free")

    def second_has_share() -> bool:
        for gpu in shared_gpus(team.bed, gpu_node.name):
            promised.append(sum(sharer["sharePercent"] for sharer in sharers_of(gpu)))
        return any(sharer["podUID"] not in {first, ""} for sharer in sharers(team, gpu_node))

    until(second_has_share, what="it has a share", account=team.messages, seconds=LONG_SECONDS)
    team.wait_succeeded(twin)
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
    pair = start_pair(team, gpu_node, unhooked=True)
    until(
        lambda: "not hooked: none of its processes" in str(team.plan(pair.low).get("message")),
        what="its plan says that it is not hooked",
        account=team.messages,
        seconds=LONG_SECONDS,
    )
    assert "not hooked" not in str(team.plan(pair.high).get("message"))
    until(
        lambda: team.plan(pair.low).get("reason") == names.REASON_EVICTED,
        what="it is evicted",
        account=team.messages,
        seconds=EVICTED_SECONDS,
    )
    pair.wait_for_steps(pair.high)


@pytest.mark.long
def test_a_job_that_queues_200_kernels_is_shut_out_when_it_delays_the_other_too_much(
    team: Team, gpu_node: Node
) -> None:
    # In regular pauses, its kernels would wait for a pause that is long enough.
    pair = start_pair(team, gpu_node, spread=0.5, queue=200)
    until(
        lambda: any(sharer.get("strikes", 0) > 0 for sharer in sharers(team, gpu_node)),
        what="it has a strike",
        account=team.messages,
        seconds=LONG_SECONDS,
    )
    pair.wait_for_steps(pair.high)  # by then the kernels queued earlier are done
    before = kernels(gpu_node, pair.card, pair.low)
    pair.wait_for_steps(pair.high)
    started = kernels(gpu_node, pair.card, pair.low) - before
    assert started <= 200 + STEP_KERNELS, "at most its queued kernels, and the current step"


# --- cards and reservations ---------------------------------------------------------------------


def test_a_job_moves_off_a_faulty_card_and_shows_the_reason(team: Team, gpu_node: Node) -> None:
    job = unique_name("job")
    team.submit(dial_job(job, HIGH, load_ms=LOAD_MS, steps=ENDLESS))
    card = wait_shared_card(team, gpu_node, job)
    (other,) = (uuid for uuid in uuids(gpu_node.name, 2) if uuid != card)
    until(lambda: kernels(gpu_node, card, job), what="it trains", account=team.messages)
    set_card_error(gpu_node, card, "it reported Xid 79")
    try:
        until(
            lambda: team.plan(job).get("reason") == names.REASON_CARD_LOST,
            what="its plan says why it was stopped",
            account=team.messages,
        )
        until(
            lambda: kernels(gpu_node, other, job),
            what="it trains on the other card",
            account=team.messages,
            seconds=LONG_SECONDS,
        )
    finally:
        set_card_error(gpu_node, card, "")


@pytest.mark.long
def test_a_reservation_that_is_deleted_by_hand_is_recreated_with_the_same_card(
    team: Team, gpu_node: Node
) -> None:
    part, whole = unique_name("part"), unique_name("whole")
    team.submit(dial_job(part, {"share": "0.5"}, steps=ENDLESS))
    pod = team.wait_running(part)["metadata"]["uid"]
    card = wait_shared_card(team, gpu_node, part)
    team.submit(dial_job(whole, steps=ENDLESS))  # so that only one card is left
    team.wait_running(whole)
    (reservation,) = reservations(team.bed)
    name, uid = reservation["metadata"]["name"], reservation["metadata"]["uid"]
    kubectl(team.bed, "delete", "pod", "-n", names.GPU_NAMESPACE, name)

    def has_new_reservation() -> bool:
        gpu = shared_gpu_of(team, gpu_node, part)
        return gpu is not None and gpu["status"].get("reservation", uid) != uid

    until(has_new_reservation, what="the card is reserved again", account=team.messages)
    before = kernels(gpu_node, card, part)
    until(lambda: kernels(gpu_node, card, part) > before + STEP_KERNELS, what="it continues")
    assert team.wait_running(part)["metadata"]["uid"] == pod


@pytest.mark.long
def test_a_card_that_kubelet_allocated_to_another_pod_is_no_longer_used(
    team: Team, gpu_node: Node
) -> None:
    part, whole, taker = unique_name("part"), unique_name("whole"), unique_name("taker")
    team.submit(dial_job(part, {"share": "0.5"}, steps=ENDLESS))
    card = wait_shared_card(team, gpu_node, part)
    team.submit(dial_job(whole, steps=ENDLESS))  # so that only one card is left
    team.wait_running(whole)
    (template,) = dial_job(taker, steps=ENDLESS)["spec"]["pytorchReplicaSpecs"].values()
    pods = f"/api/v1/namespaces/{team.namespace}/pods"
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": taker}, **template["template"]}
    team.bed.api.create(pods, body)
    (reservation,) = reservations(team.bed)
    scale(team.bed, "kfext-controller", 0)  # so that the other pod gets the card first
    try:
        name = reservation["metadata"]["name"]
        kubectl(team.bed, "delete", "pod", "-n", names.GPU_NAMESPACE, name)
        until(lambda: kernels(gpu_node, card, taker), what="the other pod has the card")
    finally:
        scale(team.bed, "kfext-controller", 2)
    until(
        lambda: team.plan(part).get("reason") == names.REASON_CARD_LOST,
        what="its plan says why it was stopped",
        account=team.messages,
        seconds=LONG_SECONDS,
    )
    until(lambda: not sharers(team, gpu_node), what="the job no longer shares the card")
    kubectl(team.bed, "delete", "pod", "-n", team.namespace, taker)
