"""The members of a gang, and the limits within which it is placed."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.ledger.columns import LARGEST
from kfext.core.placement.gang import Limits, gang, limits_of, members_of
from kfext.core.settings.resolve import resolve
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Colocation
from kfext.model.gang_terms import GangTerm
from kfext.model.limit import Excluded, MaxNodes
from kfext.model.parameters import Placement
from kfext.model.policy import TrainingPolicy
from kfext.names import COLOCATION
from tests.builders import JobBuilder, apart, job, limits, pod
from tests.unit.core.placement.answers import members_in

BATCHES: dict[str, tuple[JobBuilder, list[int]]] = {
    "no pod": (job().worker(0), []),
    "equal pods": (job().worker(3, cpu="1"), [3]),
    "equal pods of two types": (
        job().master(cpu="1", memory="1Gi").worker(2, cpu="1", memory="1Gi"),
        [3],
    ),
    "a larger master": (job().master(cpu="2").worker(2, cpu="1"), [1, 2]),
    "a master elsewhere": (
        job().master(cpu="1", spec={"nodeName": "a"}).worker(2, cpu="1"),
        [1, 2],
    ),
    "a master with a port": (job().master(ports=[80]).worker(2), [1, 2]),
    "a master that may not burst": (
        job().master(cpu="1", memory="1Gi", guaranteed=True).worker(2, cpu="1", memory="1Gi"),
        [3],
    ),
    "equal pods that are not adjacent": (
        job("TFJob").group("Chief", cpu="1").ps(2, cpu="2").worker(2, cpu="1"),
        [1, 2, 2],
    ),
}


@pytest.mark.parametrize(("builder", "want"), BATCHES.values(), ids=BATCHES)
def test_adjacent_equal_members_are_one_batch(builder: JobBuilder, want: list[int]) -> None:
    assert [batch.count for batch in gang(builder.members()).batches] == want


requests = st.dictionaries(st.sampled_from(["cpu", "gpu", "pods"]), st.integers(0, 3))


@given(st.lists(st.tuples(requests, st.just(()), st.integers(1, 3)), max_size=4))
def test_batches_and_totals_agree_with_the_members(
    groups: list[tuple[dict[str, int], tuple[()], int]],
) -> None:
    members = members_in(groups)
    whole = gang(members)
    each = [dict(zip(whole.resources, batch.requests, strict=True)) for batch in whole.batches]
    flat = [
        amounts
        for amounts, batch in zip(each, whole.batches, strict=True)
        for _ in range(batch.count)
    ]
    assert list(whole.members) == members
    assert flat == [
        {name: member.requests.get(name, 0) for name in whole.resources} for member in members
    ]
    assert whole.total.tolist() == [
        sum(amounts[name] for amounts in flat) for name in whole.resources
    ]
    if flat:
        assert whole.largest.tolist() == [
            max(amounts[name] for amounts in flat) for name in whole.resources
        ]


def test_sums_of_requests_are_capped_within_64_bits() -> None:
    whole = gang(members_in([({"memory": 2**70}, (), 3000)]))
    assert whole.batches[0].requests.tolist() == [LARGEST]
    assert whole.total[0] > 1000 * LARGEST


PORTS: dict[str, tuple[JobBuilder, bool]] = {
    "no ports": (job().worker(2), False),
    "one pod with a port": (job().worker(1, ports=[80]), False),
    "two pods with one port": (job().worker(2, ports=[80]), True),
    "two types with different ports": (job().master(ports=[80]).worker(1, ports=[81]), False),
    "two types with one port": (job().master(ports=[80]).worker(1, ports=[81, 80]), True),
}


@pytest.mark.parametrize(("builder", "want"), PORTS.values(), ids=PORTS)
def test_members_with_the_same_host_port_are_apart(builder: JobBuilder, want: bool) -> None:
    assert gang(builder.members()).apart is want


ONE_EACH: dict[str, tuple[JobBuilder, int]] = {
    "no term": (job().worker(3), 0),
    "one pod": (job().worker(1, spec=apart(GangTerm("train"))), 1),
    "all pods": (
        job().master(spec=apart(GangTerm("train"))).worker(3, spec=apart(GangTerm("train"))),
        4,
    ),
    "two types, each with its own term": (
        job("TFJob")
        .ps(2, spec=apart(GangTerm("train", ("ps",))))
        .worker(3, spec=apart(GangTerm("train", ("worker",)))),
        3,
    ),
}


@pytest.mark.parametrize(("builder", "want"), ONE_EACH.values(), ids=ONE_EACH)
def test_pods_with_a_common_anti_affinity_need_a_node_each(builder: JobBuilder, want: int) -> None:
    assert gang(builder.members()).max_anti_affine == want
    assert gang(builder.members()).apart is (want > 1)


def test_a_gang_may_burst_if_one_member_may() -> None:
    limited = job().worker(2, cpu="1", memory="1Gi", guaranteed=True)
    assert gang(limited.members()).guaranteed
    assert not gang(limited.master(cpu="1", memory="1Gi").members()).guaranteed


LARGER = {"containers": [{"resources": {"requests": {"cpu": "5"}}}], "nodeSelector": {"zone": "a"}}
REQUESTS: dict[str, tuple[list[Mapping[str, Any]], list[int]]] = {
    "no pod: the request of the template": ([], [1000, 1000]),
    "a gated pod: its own request": ([{"gated": True, "spec": LARGER}], [5000, 1000]),
    "an ungated pod: the request of the template": ([{"spec": LARGER}], [1000, 1000]),
    "a pod beyond the replicas: nothing": ([{"gated": True}] * 3, [1000, 1000]),
}


@pytest.mark.parametrize(("pods", "want"), REQUESTS.values(), ids=REQUESTS)
def test_the_request_of_each_member(pods: list[Mapping[str, Any]], want: list[int]) -> None:
    training_job = job().worker(2, cpu="1").build()
    existing = [pod(training_job, "worker", index, **state) for index, state in enumerate(pods)]
    members = members_of(training_job, existing)
    assert [member.key for member in members] == [key for key, _ in training_job.replicas()]
    assert [member.requests["cpu"] for member in members] == want
    limits = [None if cpus == 5000 else cpus for cpus in want]
    assert [member.cpu_limit for member in members] == limits
    selects = [bool(member.constraints.node_selector) for member in members]
    assert selects == [cpus == 5000 for cpus in want]


NOTHING = limits_of(Settings(), excluded=())
LIMITS: dict[str, tuple[Limits, object]] = {
    "on_nodes": (
        limits_of(Settings(colocation=Colocation.REQUIRED), excluded=["b", "a"]),
        (MaxNodes(1), Excluded(frozenset("ab"))),
    ),
    "doubted": (limits_of(Settings(), excluded=(), doubted=frozenset("a")), frozenset("a")),
    "closed": (limits_of(Settings(), excluded=(), closed=[("a", 0)]), (("a", 0),)),
    "topology_keys": (
        limits_of(Settings(placement=Placement(topology_keys=("zone", "rack"))), excluded=()),
        ("zone", "rack"),
    ),
    "assumed_burst": (
        limits_of(Settings(placement=Placement(assumed_burst=500)), excluded=()),
        500,
    ),
}


@pytest.mark.parametrize("name", [field.name for field in fields(Limits)])
def test_each_field_of_the_limits_is_set_and_changes_their_hash(name: str) -> None:
    limits, want = LIMITS[name]
    assert getattr(limits, name) == want
    assert limits != NOTHING
    assert hash(limits) != hash(NOTHING)


STATED = {COLOCATION: "preferred"}
COLOCATION_SET: dict[str, tuple[Settings, int | None]] = {
    "nowhere": (resolve({}, {}, TrainingPolicy()), 4000),
    "on the job": (resolve(STATED, {}, TrainingPolicy()), None),
    "on its namespace": (resolve({}, STATED, TrainingPolicy()), 4000),
    "in its policy": (resolve({}, {}, TrainingPolicy(settings=STATED)), 4000),
}


@pytest.mark.parametrize(("settings", "want"), COLOCATION_SET.values(), ids=COLOCATION_SET)
def test_cpu_beyond_requests_counts_unless_colocation_is_set_on_the_job(
    settings: Settings, want: int | None
) -> None:
    assert limits_of(settings, excluded=()).assumed_burst == want


REQUIRED = limits_of(Settings(colocation=Colocation.REQUIRED), excluded=())
ALLOWED: dict[str, tuple[Limits, list[str], bool]] = {
    "anywhere": (NOTHING, ["a", "b"], True),
    "one node, if required": (REQUIRED, ["a", "a"], True),
    "not two nodes, if a single node is required": (REQUIRED, ["a", "b"], False),
    "as many nodes as allowed": (limits(max_nodes=2), ["a", "b", "a"], True),
    "not more nodes than allowed": (limits(max_nodes=2), ["a", "b", "c"], False),
}


@pytest.mark.parametrize(("limits", "nodes", "want"), ALLOWED.values(), ids=ALLOWED)
def test_how_many_nodes_a_gang_may_use(limits: Limits, nodes: list[str], want: bool) -> None:
    assert limits.allow(nodes) is want
