import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.claims import plan_claims
from kfext.core.ledger.ports import block, free_base, port_claims
from kfext.core.ledger.slots import slots
from kfext.model.plan import Plan
from kfext.model.pod import ReplicaKey
from tests.builders import JobBuilder, job, ledger, node, pods

RANGE = (20000, 20099)
ELASTIC = {"rdzvBackend": "c10d"}


def elastic(made: JobBuilder, **policy: object) -> JobBuilder:
    made.raw["spec"]["elasticPolicy"] = policy
    return made


SLOTS = {
    "only the master of a PyTorchJob listens": (job().master().worker(3), {"master-0": 0}),
    "a master alone listens to itself": (job().master(), {"master-0": 0}),
    "elastic workers meet at the first, and none may share a node": (
        elastic(job().worker(3), **ELASTIC),
        {"worker-0": 0, "worker-1": 0, "worker-2": 0},
    ),
    "c10d is the default of an elastic job": (
        elastic(job().worker(2)),
        {"worker-0": 0, "worker-1": 0},
    ),
    "workers of neither kind meet nobody knows where": (job().worker(2), {}),
    "elastic workers that meet at a host outside": (
        elastic(job().worker(2), rdzvHost="etcd.example"),
        {"worker-0": 0, "worker-1": 0},
    ),
    "nobody listens if workers meet in etcd": (elastic(job().worker(2), rdzvBackend="etcd"), {}),
    "every replica of a TFJob listens": (
        job("TFJob").group("Chief").ps(2).worker(2).group("Evaluator"),
        {"chief-0": 0, "ps-0": 3, "ps-1": 4, "worker-0": 5, "worker-1": 6, "evaluator-0": 2},
    ),
    "a TFJob without servers": (job("TFJob").worker(2), {"worker-0": 3, "worker-1": 4}),
    "a single TensorFlow process listens to nobody": (job("TFJob").worker(1), {}),
}


@pytest.mark.parametrize(("made", "want"), SLOTS.values(), ids=SLOTS)
def test_who_declares_which_slot(made: JobBuilder, want: dict[str, int]) -> None:
    assert {f"{key.type}-{key.index}": slot for key, slot in slots(made.build()).items()} == want


@given(st.integers(0, 9), st.integers(1, 9), st.booleans())
def test_no_two_replicas_have_one_slot_and_more_workers_move_nobody(
    servers: int, workers: int, chief: bool
) -> None:
    def made(count: int) -> dict[ReplicaKey, int]:
        builder = job("TFJob").worker(count)
        if servers:
            builder.ps(servers)
        return dict(slots((builder.group("Chief") if chief else builder).build()))

    smaller, larger = made(workers), made(workers + 1)
    assert len(set(smaller.values())) == len(smaller)
    assert smaller.items() <= larger.items()


TFJOB = job("TFJob").ps(1).worker(2).build()  # slots 3, 4 and 5
APART = {ReplicaKey("ps", 0): "a", ReplicaKey("worker", 0): "a", ReplicaKey("worker", 1): "b"}


def test_a_block_holds_every_slot() -> None:
    assert block(TFJOB, 20000) == tuple(("TCP", 20000 + slot) for slot in (3, 4, 5))


def held(*numbers: int, on: str = "a") -> Claim:
    return Claim(node=on, requests={}, host_ports=tuple(("TCP", number) for number in numbers))


def test_a_port_is_not_given_again_on_the_node_of_who_listens_there() -> None:
    books = ledger(node("a"), node("b"))
    first = free_base(TFJOB, APART, books, ports=RANGE)
    assert first is not None
    books.claim("where nobody of the job listens", held(first + 3, on="b"))
    assert free_base(TFJOB, APART, books, ports=RANGE) == first
    books.claim("where a worker listens", held(first + 5, on="b"))
    assert free_base(TFJOB, APART, books, ports=RANGE) not in {None, first}


MASTER = {ReplicaKey("master", 0): "a", ReplicaKey("worker", 0): "a"}


def test_every_port_of_the_range_is_found_at_last_and_none_beyond() -> None:
    books, one = ledger(node("a")), job().master().worker(1)
    given_out = set()
    for number in range(5):
        base = free_base(one.build(), MASTER, books, ports=(20000, 20004))
        assert base is not None
        given_out.add(base)
        books.claim(number, held(base))
    assert given_out == set(range(20000, 20005))
    assert free_base(one.build(), MASTER, books, ports=(20000, 20004)) is None


def test_a_range_that_is_too_small_for_the_job_has_no_base() -> None:
    assert free_base(TFJOB, APART, ledger(node("a")), ports=(20000, 20004)) is None
    assert free_base(TFJOB, APART, ledger(node("a")), ports=(20000, 20005)) == 20000


def test_a_port_that_the_job_declares_itself_is_not_given_to_it() -> None:
    container = {"name": "pytorch", "ports": [{"containerPort": 20000}]}
    made = job().master(spec={"containers": [container]}).build()
    assert free_base(made, MASTER, ledger(node("a")), ports=(20000, 20000)) is None
    assert free_base(made, MASTER, ledger(node("a")), ports=(20000, 20001)) == 20001


def test_an_udp_port_of_the_same_number_is_another_port() -> None:
    books = ledger(node("a"))
    books.claim("dns", Claim(node="a", requests={}, host_ports=(("UDP", 20000),)))
    alone = job().master().build()
    assert free_base(alone, MASTER, books, ports=(20000, 20000)) == 20000


def test_two_jobs_begin_to_search_at_different_ports() -> None:
    books = ledger(node("a"))
    made = [job(uid=f"uid-{number}").master().build() for number in range(8)]
    assert len({free_base(one, MASTER, books, ports=(20000, 29999)) for one in made}) == 8


PLAN = Plan("uid-1", 1, APART, port=20000)


def test_a_plan_holds_each_port_where_it_is_listened_on() -> None:
    claims = port_claims(TFJOB, PLAN).values()
    assert {(claim.node, claim.host_ports) for claim in claims} == {
        ("a", (("TCP", 20003), ("TCP", 20004))),
        ("b", (("TCP", 20005),)),
    }


def test_a_plan_for_the_pod_network_holds_no_ports() -> None:
    assert port_claims(TFJOB, Plan("uid-1", 1, PLAN.assignment)) == {}


def ports_held(of: JobBuilder, **state: object) -> int:
    made = of.build()
    claims = plan_claims(made, PLAN, pods(made, bound="a", **state))
    return sum(bool(claim.host_ports) for claim in claims.values())


def test_a_planned_pod_holds_the_ports_that_it_declares_itself() -> None:
    container = {"name": "pytorch", "ports": [{"containerPort": 9090}]}
    made = job().master(spec={"containers": [container]}).build()
    plan = Plan("uid-1", 1, {ReplicaKey("master", 0): "a"}, port=20000)
    held_ports = {
        port for claim in plan_claims(made, plan, ()).values() for port in claim.host_ports
    }
    assert held_ports == {("TCP", 9090), ("TCP", 20000)}


def test_ports_alone_weigh_nothing_in_scores() -> None:
    books = ledger(node("a", cpu="4"))
    books.claim("ports", held(20000))
    assert not books.scored_load().any()


def test_ports_are_free_again_when_the_last_pod_has_ended() -> None:
    running = job("TFJob").ps(1).worker(2)
    assert ports_held(running) == 2
    ended = running.condition("Succeeded")
    assert ports_held(ended, phase="Running") == 2
    assert ports_held(ended, phase="Succeeded") == 0
