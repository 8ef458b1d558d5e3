from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext import names
from kfext.core.network.eligibility import (
    MOST_COMPARED,
    MOST_NETWORK_POLICIES,
    HostNetworkRequest,
    agents_alike,
    bypassed,
    host_network_request,
    obstacle,
    why_network,
)
from kfext.core.settings.table import Settings
from kfext.model.job import pod_labels
from kfext.model.job_state import JobState
from kfext.model.label_selector import LabelSelector
from kfext.model.network_policy import NetworkPolicy, parse_network_policy
from kfext.model.plan import Assignment, Plan
from kfext.model.pod import ReplicaKey
from tests.builders import JobBuilder, Raw, job, pod

PSS = "pod-security.kubernetes.io/enforce"


def ported(replicas: int, *ports: Raw, **spec: object) -> JobBuilder:
    container = {"name": "pytorch", "ports": list(ports)}
    return job().master().worker(replicas, spec={"containers": [container], **spec})


def commanded(*words: str) -> JobBuilder:
    container = {"name": "pytorch", "command": list(words)}
    return job().master().worker(2, spec={"containers": [container]})


def meshed(at: str, value: str, key: str = names.ISTIO_INJECT, **more: Raw) -> JobBuilder:
    made = job().master().worker(2)
    template = made.raw["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    template["metadata"] = {at: {key: value}, **more}
    return made


DECLINED = {names.ISTIO_INJECT: "false"}


METRICS = {"name": "metrics", "containerPort": 9090}
OPERATORS = {"name": "pytorchjob-port", "containerPort": 23456}

FREE = {
    "an ordinary job": (job().master().worker(3), {}),
    "a single worker meets nobody": (job().worker(1), {}),
    "the operator's own port": (ported(3, OPERATORS), {}),
    "another port, of one pod": (ported(1, METRICS), {}),
    "Pod Security privileged": (job().master(), {PSS: "privileged"}),
    "Istio is told to stay away": (meshed("annotations", "false"), {}),
    "by label, which Istio prefers": (meshed("annotations", "true", labels=DECLINED), {}),
    "of all revisions": (
        meshed("labels", "canary", "istio.io/rev", annotations=DECLINED),
        {},
    ),
    "Linkerd too": (meshed("annotations", "disabled", "linkerd.io/inject"), {}),
    "the ambient mesh too": (meshed("labels", "none", "istio.io/dataplane-mode"), {}),
    "torchrun without an address": (commanded("torchrun", "--nproc_per_node=2", "train.py"), {}),
}


@pytest.mark.parametrize(("made", "labels"), FREE.values(), ids=FREE)
def test_nothing_speaks_against_the_host_network(
    made: JobBuilder, labels: Mapping[str, str]
) -> None:
    assert obstacle(made.build(), labels) == ""


REFUSED = {
    "torchrun's agents in a Master and in workers": (
        job().master().worker(2).elastic(rdzvBackend="c10d"), {}, "both a Master and an elastic",
    ),
    "one port in two templates": (
        ported(1, METRICS).master(spec={"containers": [{"name": "pytorch", "ports": [METRICS]}]}),
        {}, "2 pods declare port 9090",
    ),
    "a meeting point in the environment": (
        job().master(spec={"containers": [{"name": "pytorch", "env": [
            {"name": "MASTER_PORT", "value": "29500"}]}]}),
        {}, "itself sets",
    ),
    "workers that nobody tells where to meet": (job().worker(2), {}, "neither a Master"),
    "Pod Security baseline": (job().worker(2), {PSS: "baseline"}, "Pod Security baseline"),
    "Pod Security restricted": (job().worker(2), {PSS: "restricted"}, "Pod Security restricted"),
    "Kueue": (job().worker(2).queued_by_kueue(), {}, "Kueue"),
    "a host network of the user": (job().master(spec={"hostNetwork": True}), {}, "itself"),
    "a node that the user has named": (job().master(spec={"nodeName": "a"}), {}, "names its node"),
    "a host port of the user": (ported(1, {**METRICS, "hostPort": 9090}), {}, "itself"),
    "a port that two pods declare": (ported(2, METRICS), {}, "2 pods declare port 9090"),
    "Istio by label": (meshed("labels", "true"), {}, "Istio"),
    "Istio by annotation": (meshed("annotations", "true"), {}, "Istio"),
    "Istio in another of its words": (meshed("annotations", "Yes"), {}, "Istio"),
    "Istio by revision": (meshed("labels", "canary", "istio.io/rev"), {}, "Istio"),
    "Istio's ambient mesh": (
        meshed("labels", "ambient", "istio.io/dataplane-mode"), {}, "Istio",
    ),
    "Linkerd": (meshed("annotations", "enabled", "linkerd.io/inject"), {}, "Linkerd"),
    "a port on the command line": (
        commanded("torchrun", "--master_port=29500", "train.py"), {}, "itself sets",
    ),
    "an endpoint in a shell line": (
        commanded("sh", "-c", "torchrun --rdzv-endpoint=$HOST:29400 train.py"), {}, "itself sets",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("made", "labels", "why"), REFUSED.values(), ids=REFUSED)
def test_what_keeps_a_job_from_the_host_network(
    made: JobBuilder, labels: Mapping[str, str], why: str
) -> None:
    assert why in obstacle(made.build(), labels)


def test_a_sidecars_port_counts_and_an_init_containers_does_not() -> None:
    sidecar = {"name": "logs", "restartPolicy": "Always", "ports": [METRICS]}
    first = {"name": "fetch", "ports": [METRICS]}
    made = job().master().worker(2, spec={"initContainers": [sidecar]})
    assert "9090" in obstacle(made.build(), {})
    made = job().master().worker(2, spec={"initContainers": [first]})
    assert obstacle(made.build(), {}) == ""


WISH = HostNetworkRequest(ports=(20000, 29999))
HOSTED = Plan("u", 1, port=20007)
WAITS, GONE = job().master().held(), job().master().annotated(names.RELEASED, "NoRoom")
TOLD = {
    "nobody asked": (None, WAITS, None, JobState(), ""),
    "nothing speaks against it yet": (WISH, WAITS, None, JobState(), ""),
    "it is so": (WISH, WAITS, HOSTED, JobState(), "ports from 20007 on"),
    "an obstacle": (
        HostNetworkRequest((1, 2), obstacle="no way"),
        WAITS,
        None,
        JobState(),
        "network: no way",
    ),
    "refused before": (WISH, WAITS, None, JobState(no_host_network="tried"), "network: tried"),
    "it has none": (WISH, WAITS, Plan("u", 1), JobState(), "without ports on the host"),
    "it was released while it waited": (WISH, GONE, None, JobState(), "released it"),
}


@pytest.mark.parametrize(("wish", "made", "plan", "state", "want"), TOLD.values(), ids=TOLD)
def test_a_job_is_told_its_network(
    wish: HostNetworkRequest | None,
    made: JobBuilder,
    plan: Plan | None,
    state: JobState,
    want: str,
) -> None:
    said = why_network(wish, made.build(), plan, state)
    assert want in said
    assert bool(want) == bool(said)


def test_pods_that_the_webhook_missed_are_counted() -> None:
    of = job().worker(2).resumed().build()
    pods = [pod(of, "worker", 0, spec={"hostNetwork": True}), pod(of, "worker", 1)]
    assert "1 of 2 pods have their own network" in why_network(WISH, of, HOSTED, JobState(), pods)


APART = {ReplicaKey("worker", n): node for n, node in enumerate("ab")}
AGENTS: dict[str, tuple[JobBuilder, Assignment, bool]] = {
    "two agents on one node": (job().worker(2).elastic(), dict.fromkeys(APART, "a"), True),
    "two agents on two nodes": (job().worker(2).elastic(), APART, False),
    "two workers that are no agents": (job().master().worker(2), dict.fromkeys(APART, "a"), False),
}


@pytest.mark.parametrize(("made", "places", "alike"), AGENTS.values(), ids=AGENTS)
def test_agents_of_torchrun_on_one_node_take_each_other_for_themselves(
    made: JobBuilder, places: Assignment, alike: bool
) -> None:
    assert bool(agents_alike(made.build(), places)) is alike


POLICIES = {
    "an empty selector": ({}, True),
    "a label of the template": ({"matchLabels": {"team": "vision"}}, True),
    "a label of the operator": ({"matchLabels": {names.REPLICA_TYPE: "worker"}}, True),
    "the role that the first worker has without a master": (
        {"matchLabels": {names.JOB_ROLE: "master"}}, True,
    ),
    "a later worker": ({"matchLabels": {names.REPLICA_INDEX: "1"}}, True),
    "a worker that the job does not have": ({"matchLabels": {names.REPLICA_INDEX: "9"}}, False),
    "a label that only other pods have": ({"matchLabels": {"app": "web"}}, False),
    "a line that excludes it": (
        {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("selector", "selects"), POLICIES.values(), ids=POLICIES)
def test_network_policies_that_select_the_pods_are_known(selector: Raw, selects: bool) -> None:
    made = job().worker(2)
    template = made.raw["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    template["metadata"] = {"labels": {"team": "vision"}}
    raw = {"metadata": {"namespace": "team", "name": "deny"}, "spec": {"podSelector": selector}}
    found = bypassed(made.build(), [parse_network_policy(raw)])
    assert found == (["deny"] if selects else [])


def test_who_does_not_ask_wishes_nothing() -> None:
    made = job().worker(2).build()
    assert host_network_request(made, Settings(), namespace_labels={}) is None


def policies(*selectors: Raw) -> list[NetworkPolicy]:
    return [
        parse_network_policy(
            {
                "metadata": {"namespace": "team", "name": f"p{at}"},
                "spec": {"podSelector": selector},
            }
        )
        for at, selector in enumerate(selectors)
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
def test_the_policies_that_select_a_pod_are_those_that_select_one_of_all(
    chosen: list[Raw], workers: int
) -> None:
    of = job().master().worker(workers).build()
    want = [
        one.name
        for one in policies(*chosen)
        if any(one.pods.matches(pod_labels(of, key)) for key, _ in of.replicas())
    ]
    assert bypassed(of, policies(*chosen)) == sorted(want)


@pytest.mark.parametrize(
    ("selector", "most"),
    [
        pytest.param({"matchLabels": {"app": "db"}}, 3 * MOST_NETWORK_POLICIES, id="alike"),
        pytest.param(
            of_label(names.REPLICA_INDEX, "In", *map(str, range(100))), MOST_COMPARED, id="each"
        ),
    ],
)
def test_a_large_job_with_many_policies_is_compared_a_bounded_number_of_times_and_once_it_starts(
    selector: Raw, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = 0
    matches = LabelSelector.matches

    def counted(self: LabelSelector, labels: Mapping[str, str]) -> bool:
        nonlocal compared
        compared += 1
        return matches(self, labels)

    monkeypatch.setattr(LabelSelector, "matches", counted)
    of = job().master().worker(9_999).build()
    found = host_network_request(
        of,
        Settings(network="host"),
        namespace_labels={},
        network_policies=policies(*[selector] * 1000),
    )
    assert found is not None
    assert compared == 0
    bypassed(of, found.policies)
    assert 0 < compared <= most


def test_a_job_beyond_a_bound_has_its_own_network() -> None:
    assert "pods, more than the 10000" in obstacle(job().master().worker(2**31 - 1).build(), {})
