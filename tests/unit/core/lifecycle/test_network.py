"""The network of a queued job that asks for that of its nodes."""

import re

import pytest

from kfext.core.ledger.claim import Claim
from kfext.core.lifecycle.steps import Step, Unsuspend
from kfext.core.network.eligibility import HostNetworkRequest
from kfext.model.job_state import JobState
from kfext.model.network_policy import NetworkPolicy
from kfext.names import (
    REASON_HOST_NETWORK,
    REASON_NETWORK_POLICIES_BYPASSED,
    REASON_POD_NETWORK,
)
from tests.builders import JobBuilder, job, ledger, node
from tests.unit.core.lifecycle.hosted import IN_QUEUE, PORTS, WISH, one_node, step_of


def test_a_job_starts_on_the_host_network_with_ports_of_its_own() -> None:
    found = step_of(IN_QUEUE, one_node())
    assert isinstance(found, Unsuspend)
    assert PORTS[0] <= found.plan.port <= PORTS[1]
    assert found.network is not None
    assert found.network.reason == REASON_HOST_NETWORK
    assert found.interfaces == ("ib0",)


def test_network_policies_that_stop_applying_are_named() -> None:
    wish = HostNetworkRequest(PORTS, policies=(NetworkPolicy("team", "deny-all"),))
    found = step_of(IN_QUEUE, one_node(), wish=wish)
    assert isinstance(found, Unsuspend)
    assert found.plan.port
    assert found.network is not None
    assert found.network.reason == REASON_NETWORK_POLICIES_BYPASSED
    assert "deny-all" in found.network.message


def test_who_does_not_ask_gets_no_port() -> None:
    found = step_of(IN_QUEUE, one_node(), wish=None)
    assert isinstance(found, Unsuspend)
    assert (found.plan.port, found.network, found.interfaces) == (0, None, ())


def refused(found: Step) -> str:
    """Return why a job that starts does so on the pod network."""
    assert isinstance(found, Unsuspend)
    assert (found.plan.port, found.interfaces) == (0, ())
    assert found.network is not None
    assert found.network.reason == REASON_POD_NETWORK
    return found.network.message


def test_an_obstacle_costs_a_job_the_host_network_but_not_its_place() -> None:
    assert (
        refused(step_of(IN_QUEUE, one_node(), wish=HostNetworkRequest(PORTS, obstacle="no way")))
        == "no way"
    )


def test_a_job_that_was_refused_there_is_not_tried_there_again() -> None:
    state = JobState(no_host_network="refused before")
    assert refused(step_of(IN_QUEUE, one_node(), state=state)) == "refused before"


def test_elastic_workers_have_the_host_network_only_with_a_node_each() -> None:
    made = job().worker(2, cpu="2").held().elastic(rdzvBackend="c10d")
    assert "two agents" in refused(step_of(made.build(), one_node()))
    found = step_of(made.build(), ledger(node("a", cpu="2"), node("b", cpu="2")))
    assert isinstance(found, Unsuspend)
    assert found.plan.port


def test_without_a_free_port_the_job_does_not_wait_for_one() -> None:
    books = one_node()
    taken = tuple(("TCP", number) for number in range(PORTS[0], PORTS[1] + 1))
    books.claim("others", Claim(node="a", requests={}, host_ports=taken))
    assert "20000-20009" in refused(step_of(IN_QUEUE, books))


def test_a_job_whose_own_port_is_taken_everywhere_has_its_own_network() -> None:
    container = {"name": "pytorch", "ports": [{"containerPort": 9090}]}
    made = job().master(spec={"containers": [container]}).held().build()
    assert isinstance(found := step_of(made, one_node()), Unsuspend)
    assert found.plan.port
    books = one_node()
    books.claim("other", Claim(node="a", requests={}, host_ports=(("TCP", 9090),)))
    assert "no place with its ports" in refused(step_of(made, books))


THEIRS: dict[str, tuple[JobBuilder, str]] = {
    "a master": (job().master(cpu="1").worker(2, cpu="1"), r"where port \d+ is reserved for them"),
    "two workers of a TFJob": (
        job("TFJob").worker(2),
        r"where ports \d+ and \d+ are reserved for them",
    ),
}


@pytest.mark.parametrize(("made", "want"), THEIRS.values(), ids=THEIRS)
def test_a_job_is_told_its_ports(made: JobBuilder, want: str) -> None:
    found = step_of(made.held().build(), one_node())
    assert isinstance(found, Unsuspend)
    assert found.network is not None
    assert re.search(want, found.network.message)


def test_a_job_that_listens_nowhere_is_told_of_no_port() -> None:
    found = step_of(job().worker(2).elastic(rdzvBackend="etcd").held().build(), one_node())
    assert isinstance(found, Unsuspend)
    assert found.network is not None
    assert found.network.reason == REASON_HOST_NETWORK
    assert "theirs" not in found.network.message


@pytest.mark.parametrize(
    ("made", "wish"),
    [
        (job("TFJob").worker(2, cpu="2"), HostNetworkRequest(PORTS)),
        (job().master().worker(2, cpu="2"), WISH),
    ],
    ids=["a TFJob does not use Gloo", "Gloo is told its interface"],
)
def test_who_does_not_need_the_names_of_nodes_is_not_told_so(
    made: JobBuilder, wish: HostNetworkRequest
) -> None:
    on = ledger(node("a", cpu="2"), node("b", cpu="2"))
    found = step_of(made.held().build(), on, wish=wish)
    assert isinstance(found, Unsuspend)
    assert len(found.plan.nodes) == 2
    assert found.network is not None
    assert "Gloo" not in found.network.message


def test_between_nodes_a_job_without_interfaces_is_told_what_gloo_needs() -> None:
    two = ledger(node("a", cpu="2"), node("b", cpu="2"))
    for on, needs_names in ((one_node(), False), (two, True)):
        found = step_of(IN_QUEUE, on, wish=HostNetworkRequest(PORTS))
        assert isinstance(found, Unsuspend)
        assert found.network is not None
        assert ("Gloo" in found.network.message) is needs_names
