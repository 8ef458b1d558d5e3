"""Back to the pod network."""

from kfext.core.ledger.claim import Claim
from kfext.core.lifecycle.steps import Pin, Release, Replan, Suspend, Wait
from kfext.core.network.eligibility import HostNetworkRequest
from kfext.model.job_state import JobState
from kfext.names import REASON_POD_NETWORK
from tests.builders import job, node, pod
from tests.unit.core.lifecycle.cases import NOW
from tests.unit.core.lifecycle.hosted import (
    IN_QUEUE,
    ON_HOST,
    PORTS,
    books_of,
    gang,
    one_node,
    planned,
    started,
    step_of,
)


def test_a_job_that_is_let_go_while_it_waits_is_told_that_it_loses_the_host_network() -> None:
    released = step_of(IN_QUEUE, one_node(), colocation="off")
    assert isinstance(released, Release)
    assert "own network" in released.verdict.message


def test_who_could_not_have_had_it_loses_nothing() -> None:
    wish = HostNetworkRequest(PORTS, obstacle="no way")
    released = step_of(IN_QUEUE, one_node(), wish=wish, colocation="off")
    assert isinstance(released, Release)
    assert "own network" not in released.verdict.message


def test_pods_that_are_never_created_on_the_host_network_are_tried_on_the_pod_network() -> None:
    of = started()
    found = step_of(of, one_node(), plan=planned(), waited=60.0, quiet=60.0)
    assert isinstance(found, Suspend)
    assert "0 of 3 pods exist" in found.state.no_host_network
    assert found.state.strikes == 1
    after = step_of(
        of, one_node(), plan=planned(port=0), state=found.state, waited=60.0, quiet=60.0
    )
    assert isinstance(after, Suspend)
    assert after.state.strikes == 2
    assert after.state.no_host_network == found.state.no_host_network


def test_a_tfjob_whose_pods_were_told_different_addresses_is_made_again() -> None:
    of, plan = started("TFJob"), planned()
    found = step_of(of, books_of(of, plan), plan=plan, pods=gang(of, missed=1))
    assert isinstance(found, Suspend)
    assert "webhook" in found.state.no_host_network


def test_so_is_one_that_runs_and_of_which_a_replaced_pod_was_missed() -> None:
    of = started("TFJob")
    runs = tuple(pod(of, "worker", n, bound="a", spec=ON_HOST if n else None) for n in range(3))
    assert isinstance(step_of(of, one_node(), plan=planned(), pods=runs), Suspend)


def test_a_pod_that_has_ended_on_the_other_network_is_no_reason_to_begin_anew() -> None:
    of = started("TFJob")
    ended = pod(of, "worker", 0, bound="a", phase="Succeeded")
    run = [pod(of, "worker", n, bound="a", spec=ON_HOST) for n in (1, 2)]
    assert isinstance(step_of(of, one_node(), plan=planned(), pods=(ended, *run)), Wait)


def test_what_was_told_different_addresses_is_made_again_at_once() -> None:
    of, plan = started("TFJob"), planned()
    state = JobState(strikes=1, retry_at=NOW + 60)
    found = step_of(of, books_of(of, plan), plan=plan, pods=gang(of, missed=1), state=state)
    assert isinstance(found, Suspend)
    assert (found.state.retry_at, found.state.strikes) == (0.0, 1)


def test_a_tfjob_of_which_the_user_put_a_part_on_the_host_network_is_none_of_ours() -> None:
    of, plan = started("TFJob"), planned(port=0)
    found = step_of(of, books_of(of, plan), wish=None, plan=plan, pods=gang(of, missed=1))
    assert isinstance(found, Pin)


def test_a_job_that_kueue_starts_is_told_once_why_it_has_its_own_network() -> None:
    of = job().worker(3, cpu="1").resumed().queued_by_kueue().build()
    waiting = tuple(pod(of, "worker", n, gated=True) for n in range(3))
    wish = HostNetworkRequest(PORTS, obstacle="Kueue decides")
    first = step_of(of, one_node(), wish=wish, pods=waiting)
    assert isinstance(first, Replan)
    assert first.network is not None
    assert first.network.reason == REASON_POD_NETWORK
    assert "Kueue decides" in first.network.message
    books = one_node()
    books.claim("thief", Claim(node="a", requests={"cpu": 4000}))
    books.set_node(node("b", cpu="4"))
    again = step_of(of, books, wish=wish, plan=first.plan, pods=waiting)
    assert isinstance(again, Replan)
    assert again.network is None


def test_a_pytorchjob_whose_pods_are_on_two_networks_goes_on() -> None:
    of, plan = started(), planned()
    books = books_of(of, plan)
    assert isinstance(step_of(of, books, plan=plan, pods=gang(of, missed=1)), Pin)
