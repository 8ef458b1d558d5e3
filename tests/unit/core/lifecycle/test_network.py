"""The network of a job: the host network on request, or the pod network."""

import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext import names
from kfext.core.ledger.claim import Claim
from kfext.core.lifecycle.network import (
    MAX_COMPARED,
    MAX_NETWORK_POLICIES,
    agents_indistinguishable,
    bypassed,
    host_network_request,
    why_network,
)
from kfext.core.lifecycle.situation import HostNetworkRequest
from kfext.core.lifecycle.steps import Pin, Release, Replan, Step, Suspend, Unsuspend, Wait
from kfext.core.settings.table import Settings
from kfext.model.job import pod_labels
from kfext.model.job_state import JobState
from kfext.model.label_selector import LabelSelector
from kfext.model.network_policy import NetworkPolicy, parse_network_policy
from kfext.model.plan import Assignment, Plan
from kfext.model.pod import ReplicaKey
from kfext.names import REASON_HOST_NETWORK, REASON_NETWORK_POLICIES_BYPASSED, REASON_POD_NETWORK
from tests.builders import JobBuilder, Raw, job, ledger, node, pod
from tests.unit.core.lifecycle.cases import NOW
from tests.unit.core.lifecycle.hosted import (
    HOST,
    IN_QUEUE,
    ON_HOST,
    PORTS,
    gang,
    ledger_of,
    one_node,
    planned,
    started,
    step_of,
)


def test_a_job_starts_on_the_host_network_with_ports_of_its_own() -> None:
    step = step_of(IN_QUEUE, one_node())
    assert isinstance(step, Unsuspend)
    assert PORTS[0] <= step.plan.port <= PORTS[1]
    assert step.network is not None
    assert step.network.reason == REASON_HOST_NETWORK
    assert step.interfaces == ("ib0",)


def test_network_policies_that_stop_applying_are_named() -> None:
    host = HostNetworkRequest(PORTS, policies=(NetworkPolicy("team", "deny-all"),))
    step = step_of(IN_QUEUE, one_node(), host=host)
    assert isinstance(step, Unsuspend)
    assert step.plan.port
    assert step.network is not None
    assert step.network.reason == REASON_NETWORK_POLICIES_BYPASSED
    assert "deny-all" in step.network.message


def test_a_job_that_requests_no_host_network_gets_no_port() -> None:
    step = step_of(IN_QUEUE, one_node(), host=None)
    assert isinstance(step, Unsuspend)
    assert (step.plan.port, step.network, step.interfaces) == (0, None, ())


def reason(result: Step) -> str:
    """Return why the job starts on the pod network."""
    assert isinstance(result, Unsuspend)
    assert (result.plan.port, result.interfaces) == (0, ())
    assert result.network is not None
    assert result.network.reason == REASON_POD_NETWORK
    return result.network.message


def test_an_obstacle_keeps_a_job_off_the_host_network_but_not_off_its_nodes() -> None:
    assert (
        reason(step_of(IN_QUEUE, one_node(), host=HostNetworkRequest(PORTS, obstacle="no way")))
        == "no way"
    )


def test_a_job_that_the_host_network_refused_does_not_try_it_again() -> None:
    state = JobState(no_host_network="refused before")
    assert reason(step_of(IN_QUEUE, one_node(), state=state)) == "refused before"


def test_elastic_workers_use_the_host_network_only_on_a_node_each() -> None:
    builder = job().worker(2, cpu="2").held().elastic(rdzvBackend="c10d")
    assert "two agents" in reason(step_of(builder.build(), one_node()))
    step = step_of(builder.build(), ledger(node("a", cpu="2"), node("b", cpu="2")))
    assert isinstance(step, Unsuspend)
    assert step.plan.port


def test_a_job_does_not_wait_for_a_free_port() -> None:
    capacity = one_node()
    taken = tuple(("TCP", number) for number in range(PORTS[0], PORTS[1] + 1))
    capacity.claim("others", Claim(node="a", requests={}, host_ports=taken))
    assert "20000-20009" in reason(step_of(IN_QUEUE, capacity))


def test_a_job_with_a_port_that_is_taken_everywhere_uses_the_pod_network() -> None:
    container = {"name": "pytorch", "ports": [{"containerPort": 9090}]}
    training_job = job().master(spec={"containers": [container]}).held().build()
    assert isinstance(step := step_of(training_job, one_node()), Unsuspend)
    assert step.plan.port
    capacity = one_node()
    capacity.claim("other", Claim(node="a", requests={}, host_ports=(("TCP", 9090),)))
    assert "no place with its ports" in reason(step_of(training_job, capacity))


PORTS_SHOWN: dict[str, tuple[JobBuilder, str]] = {
    "a master": (job().master(cpu="1").worker(2, cpu="1"), r"where port \d+ is reserved for them"),
    "two workers of a TFJob": (
        job("TFJob").worker(2),
        r"where ports \d+ and \d+ are reserved for them",
    ),
}


@pytest.mark.parametrize(("builder", "want"), PORTS_SHOWN.values(), ids=PORTS_SHOWN)
def test_a_job_is_shown_its_ports(builder: JobBuilder, want: str) -> None:
    step = step_of(builder.held().build(), one_node())
    assert isinstance(step, Unsuspend)
    assert step.network is not None
    assert re.search(want, step.network.message)


def test_a_job_that_listens_nowhere_is_shown_no_port() -> None:
    step = step_of(job().worker(2).elastic(rdzvBackend="etcd").held().build(), one_node())
    assert isinstance(step, Unsuspend)
    assert step.network is not None
    assert step.network.reason == REASON_HOST_NETWORK
    assert "reserved for them" not in step.network.message


@pytest.mark.parametrize(
    ("builder", "host"),
    [
        (job("TFJob").worker(2, cpu="2"), HostNetworkRequest(PORTS)),
        (job().master().worker(2, cpu="2"), HOST),
    ],
    ids=["a TFJob does not use Gloo", "Gloo is told its interface"],
)
def test_a_job_that_needs_no_node_names_is_not_told_about_gloo(
    builder: JobBuilder, host: HostNetworkRequest
) -> None:
    capacity = ledger(node("a", cpu="2"), node("b", cpu="2"))
    step = step_of(builder.held().build(), capacity, host=host)
    assert isinstance(step, Unsuspend)
    assert len(step.plan.nodes) == 2
    assert step.network is not None
    assert "Gloo" not in step.network.message


def test_a_job_on_several_nodes_without_interfaces_is_told_the_requirement_of_gloo() -> None:
    two = ledger(node("a", cpu="2"), node("b", cpu="2"))
    for on, needs_names in ((one_node(), False), (two, True)):
        step = step_of(IN_QUEUE, on, host=HostNetworkRequest(PORTS))
        assert isinstance(step, Unsuspend)
        assert step.network is not None
        assert ("Gloo" in step.network.message) is needs_names


# --- back to the pod network ---


def test_a_job_released_while_it_waits_is_told_that_it_loses_the_host_network() -> None:
    released = step_of(IN_QUEUE, one_node(), colocation="off")
    assert isinstance(released, Release)
    assert "own network" in released.verdict.message


def test_a_job_that_could_not_use_the_host_network_loses_nothing() -> None:
    host = HostNetworkRequest(PORTS, obstacle="no way")
    released = step_of(IN_QUEUE, one_node(), host=host, colocation="off")
    assert isinstance(released, Release)
    assert "own network" not in released.verdict.message


def test_a_job_with_pods_that_are_never_created_on_the_host_network_tries_the_pod_network() -> None:
    job = started()
    step = step_of(job, one_node(), plan=planned(), waited=60.0, quiet=60.0)
    assert isinstance(step, Suspend)
    assert "0 of 3 pods exist" in step.state.no_host_network
    assert step.state.strikes == 1
    second = step_of(
        job, one_node(), plan=planned(port=0), state=step.state, waited=60.0, quiet=60.0
    )
    assert isinstance(second, Suspend)
    assert second.state.strikes == 2
    assert second.state.no_host_network == step.state.no_host_network


def test_a_tfjob_of_pods_with_different_addresses_is_recreated() -> None:
    job, plan = started("TFJob"), planned()
    step = step_of(job, ledger_of(job, plan), plan=plan, pods=gang(job, missed=1))
    assert isinstance(step, Suspend)
    assert "webhook" in step.state.no_host_network


def test_a_running_tfjob_with_a_replaced_pod_that_was_missed_is_recreated() -> None:
    job = started("TFJob")
    runs = tuple(pod(job, "worker", n, bound="a", spec=ON_HOST if n else None) for n in range(3))
    assert isinstance(step_of(job, one_node(), plan=planned(), pods=runs), Suspend)


def test_a_pod_that_ended_on_the_other_network_causes_no_restart() -> None:
    job = started("TFJob")
    ended = pod(job, "worker", 0, bound="a", phase="Succeeded")
    run = [pod(job, "worker", n, bound="a", spec=ON_HOST) for n in (1, 2)]
    assert isinstance(step_of(job, one_node(), plan=planned(), pods=(ended, *run)), Wait)


def test_pods_with_different_addresses_are_recreated_at_once() -> None:
    job, plan = started("TFJob"), planned()
    state = JobState(strikes=1, retry_at=NOW + 60)
    step = step_of(job, ledger_of(job, plan), plan=plan, pods=gang(job, missed=1), state=state)
    assert isinstance(step, Suspend)
    assert (step.state.retry_at, step.state.strikes) == (0.0, 1)


def test_a_tfjob_with_a_users_host_network_in_one_part_is_left_alone() -> None:
    job, plan = started("TFJob"), planned(port=0)
    step = step_of(job, ledger_of(job, plan), host=None, plan=plan, pods=gang(job, missed=1))
    assert isinstance(step, Pin)


def test_a_job_that_kueue_starts_is_told_once_why_it_uses_the_pod_network() -> None:
    training_job = job().worker(3, cpu="1").resumed().queued_by_kueue().build()
    waiting = tuple(pod(training_job, "worker", n, gated=True) for n in range(3))
    host = HostNetworkRequest(PORTS, obstacle="Kueue decides")
    first = step_of(training_job, one_node(), host=host, pods=waiting)
    assert isinstance(first, Replan)
    assert first.network is not None
    assert first.network.reason == REASON_POD_NETWORK
    assert "Kueue decides" in first.network.message
    capacity = one_node()
    capacity.claim("thief", Claim(node="a", requests={"cpu": 4000}))
    capacity.set_node(node("b", cpu="4"))
    second = step_of(training_job, capacity, host=host, plan=first.plan, pods=waiting)
    assert isinstance(second, Replan)
    assert second.network is None


def test_a_pytorchjob_with_pods_on_two_networks_continues() -> None:
    job, plan = started(), planned()
    capacity = ledger_of(job, plan)
    assert isinstance(step_of(job, capacity, plan=plan, pods=gang(job, missed=1)), Pin)


# --- messages about the network ---


ITS_PLAN = Plan("u", 1, port=20007)
WAITS, GONE = job().master().held(), job().master().annotated(names.RELEASED, "NoRoom")
SHOWN = {
    "not requested": (None, WAITS, None, JobState(), ""),
    "no obstacle yet": (HOST, WAITS, None, JobState(), ""),
    "in use": (HOST, WAITS, ITS_PLAN, JobState(), "ports from 20007 on"),
    "an obstacle": (
        HostNetworkRequest((1, 2), obstacle="no way"),
        WAITS,
        None,
        JobState(),
        "network: no way",
    ),
    "refused before": (HOST, WAITS, None, JobState(no_host_network="tried"), "network: tried"),
    "no host network": (HOST, WAITS, Plan("u", 1), JobState(), "without ports on the host"),
    "released while the job waited": (HOST, GONE, None, JobState(), "released it"),
}


@pytest.mark.parametrize(("host", "builder", "plan", "state", "want"), SHOWN.values(), ids=SHOWN)
def test_the_message_about_the_network(
    host: HostNetworkRequest | None,
    builder: JobBuilder,
    plan: Plan | None,
    state: JobState,
    want: str,
) -> None:
    message = why_network(host, builder.build(), plan, state)
    assert want in message
    assert bool(want) == bool(message)


def test_pods_that_the_webhook_missed_are_counted() -> None:
    training_job = job().worker(2).resumed().build()
    pods = [
        pod(training_job, "worker", 0, spec={"hostNetwork": True}),
        pod(training_job, "worker", 1),
    ]
    assert "1 of 2 pods have their own network" in why_network(
        HOST, training_job, ITS_PLAN, JobState(), pods
    )


APART = {ReplicaKey("worker", n): node for n, node in enumerate("ab")}
AGENTS: dict[str, tuple[JobBuilder, Assignment, bool]] = {
    "two agents on one node": (job().worker(2).elastic(), dict.fromkeys(APART, "a"), True),
    "two agents on two nodes": (job().worker(2).elastic(), APART, False),
    "two workers that are not agents": (job().master().worker(2), dict.fromkeys(APART, "a"), False),
}


@pytest.mark.parametrize(("builder", "places", "alike"), AGENTS.values(), ids=AGENTS)
def test_agents_of_torchrun_on_one_node_mistake_each_other_for_themselves(
    builder: JobBuilder, places: Assignment, alike: bool
) -> None:
    assert bool(agents_indistinguishable(builder.build(), places)) is alike


SELECTORS = {
    "an empty selector": ({}, True),
    "a label of the template": ({"matchLabels": {"team": "vision"}}, True),
    "a label of the operator": ({"matchLabels": {names.REPLICA_TYPE: "worker"}}, True),
    "the role that the first worker has without a master": (
        {"matchLabels": {names.JOB_ROLE: "master"}}, True
    ),
    "a later worker": ({"matchLabels": {names.REPLICA_INDEX: "1"}}, True),
    "a worker that the job does not have": ({"matchLabels": {names.REPLICA_INDEX: "9"}}, False),
    "a label of other pods only": ({"matchLabels": {"app": "web"}}, False),
    "a requirement that excludes it": (
        {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, False
    )
}  # fmt: skip


@pytest.mark.parametrize(("selector", "selects"), SELECTORS.values(), ids=SELECTORS)
def test_which_network_policies_select_the_pods(selector: Raw, selects: bool) -> None:
    builder = job().worker(2)
    template = builder.raw["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    template["metadata"] = {"labels": {"team": "vision"}}
    raw = {"metadata": {"namespace": "team", "name": "deny"}, "spec": {"podSelector": selector}}
    result = bypassed(builder.build(), [parse_network_policy(raw)])
    assert result == (["deny"] if selects else [])


def policies(*selectors: Raw) -> list[NetworkPolicy]:
    return [
        parse_network_policy(
            {
                "metadata": {"namespace": "team", "name": f"p{number}"},
                "spec": {"podSelector": selector},
            }
        )
        for number, selector in enumerate(selectors)
    ]


def of_label(key: str, operator: str, *values: str) -> Raw:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


selectors = st.one_of(
    st.builds(
        of_label,
        st.sampled_from([names.REPLICA_INDEX, names.REPLICA_TYPE, names.JOB_ROLE, "mine"]),
        st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
        st.sampled_from(["0", "1", "2", "3", "7", "07", "x", "master", "worker"]),
    ),
    st.builds(
        lambda value: {"matchLabels": {names.REPLICA_INDEX: value}},
        st.sampled_from(["0", "2", "9", "x"]),
    ),
)


@given(chosen=st.lists(selectors, min_size=1, max_size=3), workers=st.integers(0, 5))
def test_a_policy_that_selects_any_pod_of_a_job_is_bypassed(
    chosen: list[Raw], workers: int
) -> None:
    training_job = job().master().worker(workers).build()
    want = [
        policy.name
        for policy in policies(*chosen)
        if any(
            policy.pods.matches(pod_labels(training_job, key)) for key, _ in training_job.replicas()
        )
    ]
    assert bypassed(training_job, policies(*chosen)) == sorted(want)


@pytest.mark.parametrize(
    ("selector", "most"),
    [
        pytest.param({"matchLabels": {"app": "db"}}, 3 * MAX_NETWORK_POLICIES, id="alike"),
        pytest.param(
            of_label(names.REPLICA_INDEX, "In", *map(str, range(100))), MAX_COMPARED, id="each"
        ),
    ],
)
def test_a_large_job_with_many_policies_is_compared_a_bounded_number_of_times_when_it_starts(
    selector: Raw, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = 0
    matches = LabelSelector.matches

    def count_and_match(self: LabelSelector, labels: Mapping[str, str]) -> bool:
        nonlocal compared
        compared += 1
        return matches(self, labels)

    monkeypatch.setattr(LabelSelector, "matches", count_and_match)
    training_job = job().master().worker(9_999).build()
    result = host_network_request(
        training_job,
        Settings(network="host"),
        namespace_labels={},
        network_policies=policies(*[selector] * 1000),
    )
    assert result is not None
    assert compared == 0
    bypassed(training_job, result.policies)
    assert 0 < compared <= most
