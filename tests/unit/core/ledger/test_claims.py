"""The claims that jobs and pods have on the ledger."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.claims import plan_claims, pod_claim
from kfext.model.cpu_size import TrainerCpu
from kfext.model.cpu_state import CpuState, PodCpu
from kfext.model.gang_terms import GangTerm
from kfext.model.plan import Plan
from kfext.model.pod import ReplicaKey
from tests.builders import JobBuilder, apart, job, pod, pods

THREE = job().worker(3, cpu="1").resumed()

PODS: dict[str, tuple[Mapping[str, Any], str | None]] = {
    "a pod that was never placed": ({}, None),
    "behind the gate": ({"gated": True}, None),
    "pinned": ({"pinned": "a"}, "a"),
    "bound": ({"bound": "b"}, "b"),
    "bound elsewhere than pinned": ({"pinned": "a", "bound": "b"}, "b"),
    "running": ({"bound": "a", "phase": "Running"}, "a"),
    "ending": ({"bound": "a", "deleting": True}, "a"),
    "succeeded": ({"bound": "a", "phase": "Succeeded"}, None),
    "failed": ({"bound": "a", "phase": "Failed"}, None),
}


@pytest.mark.parametrize(("state", "want"), PODS.values(), ids=PODS)
def test_a_pod_claims_capacity_from_its_pin_to_its_end(
    state: Mapping[str, Any], want: str | None
) -> None:
    claim = pod_claim(pod(THREE.build(), "worker", 0, **state))
    assert (claim and claim.node) == want


def test_a_pod_claims_its_own_requests_with_its_ports_and_priority() -> None:
    container = {"resources": {"requests": {"cpu": "2"}}, "ports": [{"hostPort": 80}]}
    spec = {"containers": [container], "priority": 7}
    claim = pod_claim(pod(THREE.build(), "worker", 0, bound="a", spec=spec))
    assert claim == Claim("a", {"cpu": 2000, "pods": 1}, (("TCP", 80),), "uid-1", 7)


def test_a_pod_and_its_plan_claim_its_anti_affinity_in_its_namespace() -> None:
    training_job = job().worker(2, spec=apart(GangTerm("train"))).resumed().build()
    want = (GangTerm("train", namespace="team"),)
    claim = pod_claim(pod(training_job, "worker", 0, bound="a"))
    assert claim is not None
    assert claim.gang_terms == want
    gated = [pod(training_job, "worker", 0, gated=True)]
    claims = plan_claims(training_job, planned("a", "b"), gated).values()
    assert [claim.gang_terms for claim in claims] == [want, want]


def test_a_pod_without_an_owner_claims_for_no_job() -> None:
    training_job = job().worker(1, spec=apart(GangTerm("train"))).build()
    claim = pod_claim(pod(training_job, "worker", 0, bound="a", owned=False))
    assert claim is not None
    assert (claim.job, claim.gang_terms) == ("", ())


def planned(*places: str) -> Plan:
    return Plan("uid-1", 1, {ReplicaKey("worker", n): to for n, to in enumerate(places)})


def restarting(policy: str) -> JobBuilder:
    builder = job().worker(3, cpu="1").resumed()
    builder.raw["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = policy
    return builder


ON_A = planned("a", "a", "a")
FAILED = {"bound": "a", "phase": "Failed"}
PLANNED: dict[str, tuple[JobBuilder, Plan | None, list[Mapping[str, Any]], int]] = {
    "no plan": (THREE, None, [], 0),
    "no pod yet": (THREE, ON_A, [], 3),
    "a pod behind the gate": (THREE, ON_A, [{"gated": True}], 3),
    "a pod that is pinned claims for itself": (THREE, ON_A, [{"pinned": "a"}], 2),
    "a pod that is bound claims for itself": (THREE, ON_A, [{"bound": "b"}], 2),
    "a pod that has ended needs no successor": (THREE, ON_A, [{"phase": "Succeeded"}], 2),
    "a terminating pod has a successor": (THREE, ON_A, [{"bound": "a", "deleting": True}], 3),
    "a pod that failed, and is to be replaced": (THREE, ON_A, [FAILED], 3),
    "a pod that failed, and is not replaced": (restarting("Never"), ON_A, [FAILED], 2),
    "a pod that failed, and may be replaced": (restarting("ExitCode"), ON_A, [FAILED], 3),
    "a pod that failed, of a kind that replaces none by default": (
        job("TFJob").worker(3, cpu="1").resumed(),
        ON_A,
        [FAILED],
        2,
    ),
    "a plan for more workers than the job has": (THREE, planned(*"aaaaa"), [], 3),
    "a plan for fewer workers": (THREE, planned("a"), [], 1),
    "a type that the job no longer has": (job().master().resumed(), ON_A, [], 0),
    "suspended": (job().worker(3).suspended(), ON_A, [], 0),
    "succeeded": (job().worker(3).resumed().condition("Succeeded"), ON_A, [], 0),
    "being deleted": (job().worker(3).resumed().deleting(), ON_A, [], 0),
    "released": (job().worker(3).resumed().released(), ON_A, [], 0),
}


@pytest.mark.parametrize(("builder", "plan", "states", "want"), PLANNED.values(), ids=PLANNED)
def test_a_plan_holds_capacity_for_pods_that_do_not_claim_it_yet(
    builder: JobBuilder, plan: Plan | None, states: list[Mapping[str, Any]], want: int
) -> None:
    job = builder.build()
    present = [pod(job, "worker", index, **state) for index, state in enumerate(states)]
    assert len(plan_claims(job, plan, present)) == want


LAPSED: dict[str, tuple[JobBuilder, list[Mapping[str, Any]], int]] = {
    "no pod yet": (THREE, [], 3),
    "a pod behind the gate": (THREE, [{"gated": True}], 3),
    "a pod that may go anywhere": (THREE, [{}], 2),
    "a pod that another system's gate holds": (THREE, [{"gates": ["example.com/g"]}], 2),
    "a job of Kueue without pods": (job().worker(3).resumed().queued_by_kueue(), [], 0),
    "a job of Kueue behind the gate": (
        job().worker(3).resumed().queued_by_kueue(),
        [{"gated": True}],
        0,
    ),
}


@pytest.mark.parametrize(("builder", "states", "want"), LAPSED.values(), ids=LAPSED)
def test_a_lapsed_plan_claims_only_for_gated_pods(
    builder: JobBuilder, states: list[Mapping[str, Any]], want: int
) -> None:
    job = builder.build()
    present = [pod(job, "worker", index, **state) for index, state in enumerate(states)]
    assert len(plan_claims(job, ON_A, present)) == 3
    assert len(plan_claims(job, ON_A, present, lapsed=True)) == want


def test_a_planned_replica_claims_the_request_of_its_pod_else_of_its_template() -> None:
    job = THREE.build()
    larger = pod(
        job,
        "worker",
        0,
        gated=True,
        spec={"containers": [{"resources": {"requests": {"cpu": "5"}}}]},
    )
    claims = plan_claims(job, planned("a", "b"), [larger], priority=4)
    assert list(claims.values()) == [
        Claim("a", {"cpu": 5000, "pods": 1}, job="uid-1", priority=4),
        Claim("b", {"cpu": 1000, "pods": 1}, job="uid-1", priority=4),
    ]


# --- ports of the host network ----------------------------------------------------------------

PLAN = Plan(
    "uid-1",
    1,
    {ReplicaKey("ps", 0): "a", ReplicaKey("worker", 0): "a", ReplicaKey("worker", 1): "b"},
    port=20000,
)


def claims_with_ports(builder: JobBuilder, **state: object) -> int:
    job = builder.build()
    claims = plan_claims(job, PLAN, pods(job, bound="a", **state))
    return sum(bool(claim.host_ports) for claim in claims.values())


def test_a_planned_pod_holds_the_ports_that_it_declares_itself() -> None:
    container = {"name": "pytorch", "ports": [{"containerPort": 9090}]}
    training_job = job().master(spec={"containers": [container]}).build()
    plan = Plan("uid-1", 1, {ReplicaKey("master", 0): "a"}, port=20000)
    held_ports = {
        port for claim in plan_claims(training_job, plan, ()).values() for port in claim.host_ports
    }
    assert held_ports == {("TCP", 9090), ("TCP", 20000)}


def test_ports_are_free_again_when_the_last_pod_has_ended() -> None:
    running = job("TFJob").ps(1).worker(2)
    assert claims_with_ports(running) == 2
    ended = running.condition("Succeeded")
    assert claims_with_ports(ended, phase="Running") == 2
    assert claims_with_ports(ended, phase="Succeeded") == 0


# --- CPU that kfext moved -------------------------------------------------------------------------

MOVED = CpuState(
    requested={"worker": PodCpu(100, None)},
    written={"worker-0": (PodCpu(370, None), PodCpu(10, None))},
)
CLAIMED: dict[str, tuple[TrainerCpu, int, CpuState, int]] = {
    "as written while kfext changes nothing": (TrainerCpu(100, None), 150, MOVED, 150),
    "as written while kfext has raised it": (TrainerCpu(370, None), 420, MOVED, 150),
    "as written while kfext has lowered it": (TrainerCpu(10, None), 60, MOVED, 150),
    "as written until the kubelet has reverted a raise": (
        TrainerCpu(100, None, allocated=370), 420, MOVED, 150
    ),
    "the request of an init container": (TrainerCpu(370, None, beside=300), 370, MOVED, 300),
    "the request that another client wrote": (TrainerCpu(500, None), 550, MOVED, 550),
    "its own request without a record": (TrainerCpu(370, None), 420, CpuState(), 420),
}  # fmt: skip


@pytest.mark.parametrize(("cpu", "requests", "state", "want"), CLAIMED.values(), ids=CLAIMED)
def test_the_cpu_that_a_pod_with_a_sidecar_of_50m_claims(
    cpu: TrainerCpu, requests: int, state: CpuState, want: int
) -> None:
    worker = pod(THREE.build(), "worker", 0, bound="a")
    worker = replace(worker, trainer=cpu, requests={**worker.requests, "cpu": requests})
    claim = pod_claim(worker, state)
    assert claim is not None
    assert claim.requests["cpu"] == want
