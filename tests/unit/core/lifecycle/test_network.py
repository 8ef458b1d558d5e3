"""The path of a job that asks for the host network, where it differs from that of others."""

from typing import Any

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.claims import plan_claims, pod_claim, pod_key
from kfext.core.ledger.ledger import Ledger
from kfext.core.ledger.ports import block
from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.situation import Situation
from kfext.core.lifecycle.steps import Amend, Bind, Release, Start, Step, Stop
from kfext.core.network.eligibility import Wish
from kfext.model.job import TrainingJob
from kfext.model.plan import Plan
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.state import JobState
from kfext.names import (
    REASON_HOST_NETWORK,
    REASON_NETWORK_POLICIES_BYPASSED,
    REASON_POD_NETWORK,
)
from tests.builders import Raw, job, ledger, node, pod

NOW = 1000.0
PORTS = (20000, 20009)
WISH = Wish(ports=PORTS, interfaces=("ib0",))
ON_HOST: Raw = {"hostNetwork": True}


def step(of: TrainingJob, on: Ledger, *, wish: Wish | None = WISH, **more: Any) -> Step:
    fields = {"pods": (), "plan": None, "state": JobState(), "now": NOW, **more}
    return next_step(Situation(job=of, host_network=wish, **fields), on)


def one_node() -> Ledger:
    return ledger(node("a", cpu="4"))


QUEUED = job().master(cpu="1").worker(2, cpu="1").held().build()


def test_a_job_starts_on_the_host_network_with_ports_of_its_own() -> None:
    found = step(QUEUED, one_node())
    assert isinstance(found, Start)
    assert PORTS[0] <= found.plan.port <= PORTS[1]
    assert found.network is not None
    assert found.network.reason == REASON_HOST_NETWORK
    assert found.interfaces == ("ib0",)


def test_network_policies_that_stop_applying_are_named() -> None:
    wish = Wish(PORTS, bypassed=("deny-all",))
    found = step(QUEUED, one_node(), wish=wish)
    assert isinstance(found, Start)
    assert found.plan.port
    assert found.network is not None
    assert found.network.reason == REASON_NETWORK_POLICIES_BYPASSED
    assert "deny-all" in found.network.message


def test_who_does_not_ask_gets_no_port() -> None:
    found = step(QUEUED, one_node(), wish=None)
    assert isinstance(found, Start)
    assert (found.plan.port, found.network, found.interfaces) == (0, None, ())


def refused(found: Step) -> str:
    """Return why a job that starts does so on the pod network."""
    assert isinstance(found, Start)
    assert (found.plan.port, found.interfaces) == (0, ())
    assert found.network is not None
    assert found.network.reason == REASON_POD_NETWORK
    return found.network.message


def test_an_obstacle_costs_a_job_the_host_network_but_not_its_place() -> None:
    assert refused(step(QUEUED, one_node(), wish=Wish(PORTS, obstacle="no way"))) == "no way"


def test_a_job_that_was_refused_there_is_not_tried_there_again() -> None:
    state = JobState(no_host_network="refused before")
    assert refused(step(QUEUED, one_node(), state=state)) == "refused before"


def test_elastic_workers_have_the_host_network_only_with_a_node_each() -> None:
    made = job().worker(2, cpu="2").held()
    made.raw["spec"]["elasticPolicy"] = {"rdzvBackend": "c10d"}
    assert "apart" in refused(step(made.build(), one_node()))
    found = step(made.build(), ledger(node("a", cpu="2"), node("b", cpu="2")))
    assert isinstance(found, Start)
    assert found.plan.port


def agents(of: TrainingJob, *, bound: str = "") -> tuple[Pod, ...]:
    """Two workers on the host network, with the port that both declare; the first may run."""
    container = {"resources": {"requests": {"cpu": "2"}}, "ports": [{"containerPort": 20000}]}
    spec = {**ON_HOST, "containers": [container]}
    return (
        pod(of, "worker", 0, gated=not bound, bound=bound, spec=spec),
        pod(of, "worker", 1, gated=True, spec=spec),
    )


ELASTIC = job().worker(2, cpu="2").resumed()
ELASTIC.raw["spec"]["elasticPolicy"] = {"rdzvBackend": "c10d"}
APART = Plan("uid-1", 1, {ReplicaKey("worker", n): on for n, on in enumerate("ab")}, port=20000)


def with_agents(books: Ledger, of: TrainingJob, pods: tuple[Pod, ...]) -> Ledger:
    """The books once these pods and the plan are in them."""
    for key, claim in plan_claims(of, APART, pods).items():
        books.claim(key, claim)
    for one in pods:
        if claim := pod_claim(one):
            books.claim(pod_key(one.uid), claim)
    return books


def test_nor_are_they_brought_together_once_they_have_started_there() -> None:
    of = ELASTIC.build()
    books = with_agents(ledger(node("a", cpu="4"), node("b", cpu="2")), of, agents(of))
    books.claim("thief", Claim(node="b", requests={"cpu": 2000}))
    assert isinstance(step(of, books, plan=APART, pods=agents(of)), Stop)


def test_a_replaced_elastic_worker_goes_to_a_node_of_its_own() -> None:
    of = ELASTIC.build()
    pods = agents(of, bound="a")
    nodes = ledger(node("a", cpu="8"), node("b", cpu="2"), node("c", cpu="2"))
    books = with_agents(nodes, of, pods)
    books.claim("thief", Claim(node="b", requests={"cpu": 2000}))
    found = step(of, books, plan=APART, pods=pods)
    assert isinstance(found, Amend)
    assert found.plan.assignment[ReplicaKey("worker", 1)] == "c"


def test_a_job_that_is_let_go_while_it_waits_is_told_that_it_loses_the_host_network() -> None:
    released = step(QUEUED, one_node(), colocation="off")
    assert isinstance(released, Release)
    assert "own network" in released.verdict.message


def test_without_a_free_port_the_job_does_not_wait_for_one() -> None:
    books = one_node()
    taken = tuple(("TCP", number) for number in range(PORTS[0], PORTS[1] + 1))
    books.claim("others", Claim(node="a", requests={}, host_ports=taken))
    assert "20000-20009" in refused(step(QUEUED, books))


def test_a_job_whose_own_port_is_taken_everywhere_has_its_own_network() -> None:
    container = {"name": "pytorch", "ports": [{"containerPort": 9090}]}
    made = job().master(spec={"containers": [container]}).held().build()
    assert isinstance(found := step(made, one_node()), Start)
    assert found.plan.port
    books = one_node()
    books.claim("other", Claim(node="a", requests={}, host_ports=(("TCP", 9090),)))
    assert "not with its ports" in refused(step(made, books))


def started(kind: str = "PyTorchJob") -> TrainingJob:
    return job(kind).worker(3, cpu="1").resumed().build()


def planned(port: int = 20000, on: str = "a") -> Plan:
    return Plan("uid-1", 1, {ReplicaKey("worker", n): on for n in range(3)}, port=port)


def gang(of: TrainingJob, *, missed: int = 0) -> tuple[Pod, ...]:
    """Three pods behind the gate, on the host network; the last `missed` came past the webhook."""
    return tuple(
        pod(of, "worker", n, gated=n < 3 - missed, bound="" if n < 3 - missed else "a",
            spec=ON_HOST if n < 3 - missed else None)
        for n in range(3)
    )  # fmt: skip


def test_pods_that_are_never_created_there_are_tried_on_the_pod_network() -> None:
    of = started()
    found = step(of, one_node(), plan=planned(), waited=60.0, quiet=60.0)
    assert isinstance(found, Stop)
    assert "0 of 3 pods exist" in found.state.no_host_network
    assert found.state.strikes == 1
    after = step(of, one_node(), plan=planned(port=0), state=found.state, waited=60.0, quiet=60.0)
    assert isinstance(after, Stop)
    assert after.state.strikes == 2
    assert after.state.no_host_network == found.state.no_host_network


def books_of(of: TrainingJob, plan: Plan) -> Ledger:
    books = ledger(node("a", cpu="4"), node("b", cpu="4"))
    for key, claim in plan_claims(of, plan, ()).items():
        books.claim(key, claim)
    return books


def test_a_gang_is_not_kept_out_by_its_own_ports() -> None:
    of, plan = started("TFJob"), planned()
    listening = [
        pod(of, "worker", n, gated=True, spec={
            **ON_HOST,
            "containers": [{"resources": {"requests": {"cpu": "1"}},
                            "ports": [{"containerPort": number}]}],
        })
        for n, (_, number) in enumerate(block(of, plan.port))
    ]  # fmt: skip
    found = step(of, books_of(of, plan), plan=plan, pods=tuple(listening))
    assert isinstance(found, Bind)


def test_a_gang_that_goes_elsewhere_keeps_its_ports() -> None:
    of, plan = started(), planned()
    books = books_of(of, plan)
    books.claim("thief", Claim(node="a", requests={"cpu": 4000}))
    found = step(of, books, plan=plan, pods=gang(of))
    assert isinstance(found, Amend)
    assert found.plan.nodes == ("b",)
    assert found.plan.port == plan.port


def test_a_tfjob_whose_pods_were_told_different_addresses_is_made_again() -> None:
    of, plan = started("TFJob"), planned()
    found = step(of, books_of(of, plan), plan=plan, pods=gang(of, missed=1))
    assert isinstance(found, Stop)
    assert "webhook" in found.state.no_host_network


def test_so_is_one_that_runs_and_of_which_a_replaced_pod_was_missed() -> None:
    of = started("TFJob")
    runs = tuple(pod(of, "worker", n, bound="a", spec=ON_HOST if n else None) for n in range(3))
    assert isinstance(step(of, one_node(), plan=planned(), pods=runs), Stop)


def test_a_tfjob_of_which_the_user_put_a_part_on_the_host_network_is_none_of_ours() -> None:
    of, plan = started("TFJob"), planned(port=0)
    found = step(of, books_of(of, plan), wish=None, plan=plan, pods=gang(of, missed=1))
    assert isinstance(found, Bind)


def test_between_nodes_a_job_without_interfaces_is_told_what_gloo_needs() -> None:
    two = ledger(node("a", cpu="2"), node("b", cpu="2"))
    said = [step(QUEUED, on, wish=Wish(PORTS)) for on in (one_node(), two)]
    assert ["Gloo" in one.network.message for one in said] == [False, True]  # type: ignore[union-attr]


def test_a_job_that_kueue_starts_is_told_once_why_it_has_its_own_network() -> None:
    of = job().worker(3, cpu="1").resumed().queued_by_kueue().build()
    waiting = tuple(pod(of, "worker", n, gated=True) for n in range(3))
    wish = Wish(PORTS, obstacle="Kueue decides")
    first = step(of, one_node(), wish=wish, pods=waiting)
    assert isinstance(first, Amend)
    assert first.network is not None
    assert first.network.reason == REASON_POD_NETWORK
    assert "Kueue decides" in first.network.message
    books = one_node()
    books.claim("thief", Claim(node="a", requests={"cpu": 4000}))
    books.set_node(node("b", cpu="4"))
    again = step(of, books, wish=wish, plan=first.plan, pods=waiting)
    assert isinstance(again, Amend)
    assert again.network is None


def test_a_pytorchjob_with_such_pods_goes_on() -> None:
    of, plan = started(), planned()
    books = books_of(of, plan)
    assert isinstance(step(of, books, plan=plan, pods=gang(of, missed=1)), Bind)
