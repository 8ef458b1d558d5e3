"""Ports for the host network: offsets of replicas, and free blocks."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.claims import plan_claims
from kfext.core.ledger.ports import (
    block,
    free_base,
    offsets,
    port_claims,
    ports_available,
    with_host_ports,
)
from kfext.model.plan import Plan
from kfext.model.pod import ReplicaKey
from tests.builders import JobBuilder, job, ledger, node

RANGE = (20000, 20099)


TFJOB = job("TFJob").ps(1).worker(2).build()  # offsets 3, 4 and 5
APART = {ReplicaKey("ps", 0): "a", ReplicaKey("worker", 0): "a", ReplicaKey("worker", 1): "b"}


OFFSETS = {
    "only the master of a PyTorchJob listens": (job().master().worker(3), {"master-0": 0}),
    "a master alone listens to itself": (job().master(), {"master-0": 0}),
    "elastic workers meet at the first, and each needs a node of its own": (
        job().worker(3).elastic(rdzvBackend="c10d"),
        {"worker-0": 0, "worker-1": 0, "worker-2": 0},
    ),
    "c10d is the default of an elastic job": (
        job().worker(2).elastic(),
        {"worker-0": 0, "worker-1": 0},
    ),
    "workers without a master or an elastic policy meet elsewhere": (job().worker(2), {}),
    "elastic workers that meet at a host outside": (
        job().worker(2).elastic(rdzvHost="etcd.example"),
        {"worker-0": 0, "worker-1": 0},
    ),
    "no worker listens if workers meet in etcd": (job().worker(2).elastic(rdzvBackend="etcd"), {}),
    "every replica of a TFJob listens": (
        job("TFJob").group("Chief").ps(2).worker(2).group("Evaluator"),
        {"chief-0": 0, "ps-0": 3, "ps-1": 4, "worker-0": 5, "worker-1": 6, "evaluator-0": 2},
    ),
    "a TFJob without servers": (job("TFJob").worker(2), {"worker-0": 3, "worker-1": 4}),
    "a single TensorFlow process does not listen": (job("TFJob").worker(1), {}),
}


@pytest.mark.parametrize(("builder", "want"), OFFSETS.values(), ids=OFFSETS)
def test_which_replica_declares_which_offset(builder: JobBuilder, want: dict[str, int]) -> None:
    assert {
        f"{key.type}-{key.index}": offset for key, offset in offsets(builder.build()).items()
    } == want


@given(st.integers(0, 9), st.integers(1, 9), st.booleans())
def test_each_replica_has_its_own_offset_and_keeps_it_beside_more_workers(
    servers: int, workers: int, chief: bool
) -> None:
    def offsets_with(count: int) -> dict[ReplicaKey, int]:
        builder = job("TFJob").worker(count)
        if servers:
            builder.ps(servers)
        return dict(offsets((builder.group("Chief") if chief else builder).build()))

    smaller, larger = offsets_with(workers), offsets_with(workers + 1)
    assert len(set(smaller.values())) == len(smaller)
    assert smaller.items() <= larger.items()


def test_a_block_has_a_port_for_each_offset() -> None:
    assert block(TFJOB, 20000) == tuple(("TCP", 20000 + offset) for offset in (3, 4, 5))


def port_claim(*numbers: int, where: str = "a") -> Claim:
    return Claim(node=where, requests={}, host_ports=tuple(("TCP", number) for number in numbers))


def test_a_port_is_not_allocated_again_on_a_node_with_a_listener() -> None:
    capacity = ledger(node("a"), node("b"))
    first = free_base(TFJOB, APART, capacity, ports=RANGE)
    assert first is not None
    capacity.claim("where no pod of the job listens", port_claim(first + 3, where="b"))
    assert free_base(TFJOB, APART, capacity, ports=RANGE) == first
    capacity.claim("where a worker listens", port_claim(first + 5, where="b"))
    assert free_base(TFJOB, APART, capacity, ports=RANGE) not in {None, first}


MASTER = {ReplicaKey("master", 0): "a", ReplicaKey("worker", 0): "a"}


def test_every_port_of_the_range_is_found_and_none_beyond() -> None:
    capacity, builder = ledger(node("a")), job().master().worker(1)
    bases = set()
    for number in range(5):
        base = free_base(builder.build(), MASTER, capacity, ports=(20000, 20004))
        assert base is not None
        bases.add(base)
        capacity.claim(number, port_claim(base))
    assert bases == set(range(20000, 20005))
    assert free_base(builder.build(), MASTER, capacity, ports=(20000, 20004)) is None


def test_a_range_that_is_too_small_for_the_job_has_no_base() -> None:
    assert free_base(TFJOB, APART, ledger(node("a")), ports=(20000, 20004)) is None
    assert free_base(TFJOB, APART, ledger(node("a")), ports=(20000, 20005)) == 20000


def test_a_port_that_the_job_declares_itself_is_not_allocated_to_it() -> None:
    container = {"name": "pytorch", "ports": [{"containerPort": 20000}]}
    training_job = job().master(spec={"containers": [container]}).build()
    assert free_base(training_job, MASTER, ledger(node("a")), ports=(20000, 20000)) is None
    assert free_base(training_job, MASTER, ledger(node("a")), ports=(20000, 20001)) == 20001


def test_a_udp_port_does_not_block_the_tcp_port_of_its_number() -> None:
    capacity = ledger(node("a"))
    capacity.claim("dns", Claim(node="a", requests={}, host_ports=(("UDP", 20000),)))
    alone = job().master().build()
    assert free_base(alone, MASTER, capacity, ports=(20000, 20000)) == 20000


def test_eight_jobs_begin_their_searches_at_different_ports() -> None:
    capacity = ledger(node("a"))
    jobs = [job(uid=f"uid-{number}").master().build() for number in range(8)]
    bases = {free_base(each, MASTER, capacity, ports=(20000, 29999)) for each in jobs}
    assert len(bases) == 8


PLAN = Plan("uid-1", 1, APART, port=20000)


def test_a_plan_claims_each_port_where_a_replica_listens_on_it() -> None:
    claims = port_claims(TFJOB, PLAN).values()
    assert {(claim.node, claim.host_ports) for claim in claims} == {
        ("a", (("TCP", 20003), ("TCP", 20004))),
        ("b", (("TCP", 20005),)),
    }


def test_only_planned_replicas_claim_ports_for_any_number_of_replicas_of_the_job() -> None:
    edited = job("TFJob").ps(1).worker(2**31 - 1).build()
    assert port_claims(edited, PLAN) == port_claims(TFJOB, PLAN)


def test_a_replica_that_was_scaled_down_has_no_port() -> None:
    edited = job("TFJob").ps(1).worker(1).build()
    claims = port_claims(edited, PLAN).values()
    assert {(claim.node, claim.host_ports) for claim in claims} == {
        ("a", (("TCP", 20003), ("TCP", 20004)))
    }


def test_a_plan_for_the_pod_network_holds_no_ports() -> None:
    claims = plan_claims(TFJOB, Plan("uid-1", 1, PLAN.assignment), ()).values()
    assert claims
    assert not any(claim.host_ports for claim in claims)


LARGER = job("TFJob").ps(1).worker(3)  # the new worker has offset 6, after the block
GROWN = {**APART, ReplicaKey("worker", 2): "b"}
JOINS: dict[str, tuple[JobBuilder, dict[str, Claim], bool]] = {
    "the new port, after the block, is free": (LARGER, {}, True),
    "another pod has it on its node": (LARGER, {"x": port_claim(20006, where="b")}, False),
    "another pod has it on another node": (LARGER, {"x": port_claim(20006)}, True),
    "the job still has it from a larger size": (
        LARGER,
        {"x": replace(port_claim(20006, where="b"), job="uid-1")},
        True,
    ),
    "another server would change the ports of the workers": (
        job("TFJob").ps(2).worker(3),
        {},
        False,
    ),
}


@pytest.mark.parametrize(("larger", "others", "fits"), JOINS.values(), ids=JOINS)
def test_whether_a_job_can_scale_up_within_its_block_of_ports(
    larger: JobBuilder, others: dict[str, Claim], *, fits: bool
) -> None:
    capacity = ledger(node("a"), node("b"))
    capacity.claim_all(port_claims(TFJOB, PLAN))
    for key, claim in others.items():
        capacity.claim(key, claim)
    assert ports_available(TFJOB, larger.build(), PLAN, places=GROWN, ledger=capacity) is fits


def test_an_added_torchrun_worker_needs_the_first_port_on_its_node() -> None:
    (two, three) = (job().worker(n).elastic(rdzvBackend="c10d").build() for n in (2, 3))
    places = {ReplicaKey("worker", index): name for index, name in enumerate("abc")}
    plan = replace(PLAN, assignment={key: places[key] for key, _ in two.replicas()})
    capacity = ledger(*map(node, "abc"))
    assert ports_available(two, three, plan, places=places, ledger=capacity)
    capacity.claim("another", port_claim(20000, where="c"))
    assert not ports_available(two, three, plan, places=places, ledger=capacity)


def test_on_the_host_network_a_declared_port_is_a_port_of_the_node() -> None:
    ports = [
        {"name": "metrics", "containerPort": 9090},
        {"name": "pytorchjob-port", "containerPort": 23456},
    ]
    builder = job().master().worker(spec={"containers": [{"name": "pytorch", "ports": ports}]})
    _, group = with_host_ports(builder.build()).groups
    assert group.constraints.host_ports == (("TCP", 9090),)


def test_a_host_port_of_the_template_is_kept_beside_declared_ports() -> None:
    builder = job().worker(
        spec={"containers": [{"name": "pytorch", "ports": [{"containerPort": 80}]}]}
    )
    (group,) = builder.build().groups
    with_port = replace(group, constraints=replace(group.constraints, host_ports=(("TCP", 9100),)))
    (group,) = with_host_ports(replace(builder.build(), groups=(with_port,))).groups
    assert group.constraints.host_ports == (("TCP", 80), ("TCP", 9100))


def test_a_job_without_other_ports_is_placed_unchanged() -> None:
    training_job = job().master().worker(2).build()
    assert with_host_ports(training_job) == training_job
