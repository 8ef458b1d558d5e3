"""The solver."""

import itertools
import random
import time
from collections.abc import Mapping
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.claims import pod_claim
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import Member, members_of
from kfext.core.placement.place import place, still_fits, why_more_nodes
from kfext.core.placement.score import FEWEST
from kfext.model.constraints import Constraints
from kfext.model.gang_terms import GangTerm
from kfext.model.node import Node
from kfext.model.plan import Assignment
from kfext.model.pod import ReplicaKey
from kfext.model.verdict import Verdict
from kfext.names import HOSTNAME, REASON_NO_ELIGIBLE_NODE, REASON_NO_ROOM, REASON_TOO_BIG
from tests.builders import apart, job, ledger, limits, node, pod, together
from tests.unit.core.placement.answers import gpus, nodes_of, placed, verdict_of
from tests.unit.core.placement.random_gangs import (
    APART,
    RESOURCES,
    bursts,
    node_limits,
    some_amounts,
    some_members,
    some_nodes,
)


def test_required_never_takes_a_second_node() -> None:
    capacity = ledger(node("a", gpus=4), node("b", gpus=4))
    verdict = verdict_of(place(job().worker(5, gpus=1).members(), capacity, limits(max_nodes=1)))
    assert verdict.reason == REASON_TOO_BIG


# --- unlike members on unlike nodes -----------------------------------------------------------


def test_a_small_first_rank_does_not_take_the_capacity_of_a_large_second() -> None:
    capacity = ledger(node("large", cpu="10"), node("small", cpu="4"))
    assert placed(job().master(cpu="4").worker(cpu="10"), capacity) == ["small", "large"]


def test_an_overcommitted_resource_does_not_affect_pods_that_do_not_request_it() -> None:
    capacity = ledger(
        node("a", gpus=4), node("b", gpus=4), used={"a": {"cpu": "99"}, "b": {"cpu": "99"}}
    )
    for pods in (4, 8):
        members = job().worker(pods, gpus=1).members()
        placement = place(members, capacity, limits())
        assert not isinstance(placement, Verdict)
        assert still_fits(members, capacity, limits(), assignment=placement)
    assert isinstance(
        place(job().worker(4, gpus=1, cpu="1").members(), capacity, limits()), Verdict
    )


# --- host ports -------------------------------------------------------------------------------


def test_pods_that_want_one_host_port_go_to_different_nodes() -> None:
    capacity = ledger(*(node(name) for name in "abc"))
    assert sorted(placed(job().worker(3, cpu="1", ports=[80]), capacity)) == ["a", "b", "c"]


def test_a_taken_host_port_is_missing_capacity_now_but_not_forever() -> None:
    capacity = ledger(node("a"))
    capacity.claim("other", Claim("a", {"pods": 1}, (("TCP", 80),)))
    asked = job().worker(ports=[80]).members()
    assert verdict_of(place(asked, capacity, limits())).reason == REASON_NO_ROOM
    assert nodes_of(place(asked, capacity, limits(), ignoring=["other"])) == ["a"]
    assert placed(job().worker(ports=[81]), capacity) == ["a"]


def test_a_planned_gang_with_host_ports_still_fits_where_its_own_plan_is() -> None:
    capacity = ledger(node("a"), node("b"))
    members = job().worker(2, ports=[80]).members()
    plan = place(members, capacity, limits())
    assert not isinstance(plan, Verdict)
    for member in members:
        claim = Claim(plan[member.key], member.requests, member.constraints.host_ports)
        capacity.claim(member.key, claim)
    own = [member.key for member in members]
    assert still_fits(members, capacity, limits(), assignment=plan, ignoring=own)
    assert not still_fits(members, capacity, limits(), assignment=plan)
    together = dict.fromkeys(plan, "a")
    assert not still_fits(members, capacity, limits(), assignment=together, ignoring=own)


# --- a plan that was made before --------------------------------------------------------------

MASTER, WORKER = ReplicaKey("master", 0), ReplicaKey("worker", 0)
FITS: dict[str, tuple[Assignment, bool]] = {
    "on a node with capacity": ({MASTER: "a", WORKER: "b"}, True),
    "together, where both want one port": ({MASTER: "a", WORKER: "a"}, False),
    "on a node that is full": ({MASTER: "a", WORKER: "full"}, False),
    "on a node that is cordoned": ({MASTER: "a", WORKER: "cordoned"}, False),
    "on a node that failed to bind it": ({MASTER: "a", WORKER: "shut"}, False),
}


@pytest.mark.parametrize(("assignment", "want"), FITS.values(), ids=FITS)
def test_whether_a_plan_still_fits(assignment: Assignment, want: bool) -> None:
    capacity = ledger(
        *map(node, ("a", "b", "full", "shut")),
        node("cordoned", cordoned=True),
        used={"full": {"cpu": "32"}},
    )
    members = job().master(cpu="2", ports=[80]).worker(cpu="1", ports=[80]).members()
    assert still_fits(members, capacity, limits(excluded=["shut"]), assignment=assignment) is want


def test_a_plan_with_a_removed_node_does_not_fit() -> None:
    capacity, members = ledger(node("a")), job().worker(2, cpu="1").members()
    plan = {members[0].key: "a", members[1].key: "gone"}
    assert not still_fits(members, capacity, limits(), assignment=plan)
    assert still_fits(members[:1], capacity, limits(), assignment=plan)


def test_an_empty_plan_still_fits() -> None:
    assert still_fits([], ledger(), limits(), assignment={})


# --- gangs of unlike pods ---------------------------------------------------------------------


def test_parameter_servers_and_workers_that_need_different_pools() -> None:
    capacity = ledger(
        *(node(f"cpu-{number}", labels={"pool": "cpu"}) for number in range(12)),
        *(node(f"gpu-{number}", gpus=4, labels={"pool": "gpu"}) for number in range(12)),
    )
    builder = (
        job("TFJob")
        .ps(2, cpu="1", spec={"nodeSelector": {"pool": "cpu"}})
        .worker(6, gpus=1, spec={"nodeSelector": {"pool": "gpu"}})
    )
    placement = placed(builder, capacity)
    assert all(where.startswith("cpu") for where in placement[:2])
    assert all(where.startswith("gpu") for where in placement[2:])
    assert len(set(placement)) == 3


def test_a_job_without_replicas_needs_no_node() -> None:
    assert place(job().worker(0).members(), ledger(), limits(max_nodes=1)) == {}


# --- nodes that may fail ------------------------------------------------------------------------

DOUBTED: dict[str, tuple[int, list[str], dict[str, str], list[str], list[str]]] = {
    # pods, doubted nodes, bound members, blamed nodes -> where they go
    "another node has capacity: it is used": (2, ["a"], {}, [], ["b", "b"]),
    "all nodes are doubted alike": (2, ["a", "b", "c"], {}, [], ["a", "a"]),
    "two other nodes together have capacity": (5, ["a"], {}, [], ["b", "b", "b", "c", "c"]),
    "the gang fits nowhere else": (9, ["a"], {}, [], [*"aaabbbccc"]),
    "a member runs there": (2, ["a"], {"0": "a"}, [], ["a", "a"]),
    "a member runs there, and the node is blamed": (2, ["a"], {"0": "a"}, ["a"], ["a", "b"]),
    "the same, and the gang fits nowhere else": (9, ["a"], {"0": "a"}, ["a"], [*"aaaabbbcc"]),
    "a node that is gone": (2, ["gone"], {}, [], ["a", "a"]),
}


@pytest.mark.parametrize(
    ("pods", "doubted", "bound", "blamed", "want"), DOUBTED.values(), ids=DOUBTED
)
def test_a_doubted_node_is_used_only_where_there_is_no_other_place(
    pods: int, doubted: list[str], bound: dict[str, str], blamed: list[str], want: list[str]
) -> None:
    capacity = ledger(*(node(name, cpu="3") for name in "abc"))
    members = job().worker(pods, cpu="1").members()
    homes = {members[int(at)].key: home for at, home in bound.items()}
    placement = place(members, capacity, limits(doubted=doubted), bound=homes, blamed=blamed)
    assert nodes_of(placement) == want


@settings(max_examples=300, deadline=None)
@given(nodes=some_nodes, gang=some_members, data=st.data(), max_nodes=node_limits, burst=bursts)
def test_a_doubted_node_is_avoided_where_possible_and_keeps_no_gang_waiting(
    nodes: list[Node],
    gang: list[Member],
    data: st.DataObject,
    max_nodes: int | None,
    burst: int | None,
) -> None:
    names = [node.name for node in nodes]
    doubted = data.draw(st.sets(st.sampled_from(names), max_size=3), label="doubted")
    capacity, within = Ledger(nodes), partial(limits, max_nodes=max_nodes, assumed_burst=burst)
    placement = place(gang, capacity, within(doubted=doubted))
    without, plain = (place(gang, capacity, within(excluded=each)) for each in (doubted, ()))
    assert placement == (plain if isinstance(without, Verdict) else without)


# --- odd amounts ------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ["8Ei", "4Ei", "1000Ei", "1e40"])
def test_amounts_near_64_bits_fit_nowhere(memory: str) -> None:
    builder = job().worker(2, memory=memory)
    two = [{"name": n, "resources": {"requests": {"memory": memory}}} for n in ("one", "two")]
    builder.raw["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"] = two
    verdict = verdict_of(place(builder.members(), ledger(node("a"), node("b")), limits()))
    assert verdict.reason == REASON_TOO_BIG


# --- invariants -------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    nodes=some_nodes,
    gang=some_members,
    others=st.lists(st.tuples(st.integers(0, 5), some_amounts, st.integers(0, 4)), max_size=6),
    data=st.data(),
)
def test_no_overcommit_and_no_broken_constraint(
    nodes: list[Node],
    gang: list[Member],
    others: list[tuple[int, dict[str, int], int]],
    data: st.DataObject,
) -> None:
    capacity = Ledger(nodes)
    names = [node.name for node in nodes]
    for number, (at, amounts, kind) in enumerate(others):
        claim = Claim(
            names[at % len(names)],
            amounts,
            (("TCP", 80),) if kind < 2 else (),
            gang_terms=(APART,) if kind == 2 else (),
        )
        capacity.claim(("other", number), claim)
    bound = data.draw(
        st.dictionaries(st.sampled_from([each.key for each in gang]), st.sampled_from(names))
    )
    for each in gang:
        if each.key in bound:
            terms = each.constraints.gang_terms
            capacity.claim(
                ("pod", each.key), Claim(bound[each.key], each.requests, gang_terms=terms)
            )
    excluded = data.draw(st.sets(st.sampled_from(names), max_size=2))
    ignoring = data.draw(st.sets(st.sampled_from([("other", n) for n in range(6)]), max_size=2))
    before = capacity.free(RESOURCES, ignoring=ignoring)
    max_nodes, burst = data.draw(node_limits), data.draw(bursts)
    within = limits(max_nodes=max_nodes, excluded=excluded, assumed_burst=burst)
    placement = place(gang, capacity, within, bound=bound, ignoring=ignoring)
    if isinstance(placement, Verdict):
        return
    assert placement.keys() == {each.key for each in gang}
    assert bound.items() <= placement.items()
    moving = [each for each in gang if each.key not in bound]
    for number, where in enumerate(nodes):
        here = [member for member in moving if placement[member.key] == where.name]
        assert not here or where.name not in excluded
        for line, resource in enumerate(RESOURCES):
            wanted = sum(member.requests.get(resource, 0) for member in here)
            assert wanted == 0 or wanted <= before[line, number]
        for member in here:
            assert all(where.labels[k] == v for k, v in member.constraints.node_selector)
        taken: list[object] = [port for member in here for port in member.constraints.host_ports]
        taken += [term for member in here for term in member.constraints.apart]
        assert len(taken) == len(set(taken))
        assert not set(taken) & {
            port
            for k, claim in capacity.claims().items()
            if claim.node == where.name and k not in ignoring
            for port in (*claim.host_ports, *claim.gang_terms)
        }
    homes = set(bound.values())
    assert within.allow(set(placement.values())) or set(placement.values()) == homes
    rest = {member.key: placement[member.key] for member in moving}
    assert still_fits(
        moving, capacity, limits(excluded=excluded), assignment=rest, ignoring=ignoring
    )


@settings(max_examples=300, deadline=None)
@given(nodes=some_nodes, gang=some_members)
def test_a_placement_within_a_limit_exists_under_that_limit(
    nodes: list[Node], gang: list[Member]
) -> None:
    placement = place(gang, Ledger(nodes), limits())
    if not isinstance(placement, Verdict):
        within = limits(max_nodes=len(set(placement.values())))
        assert not isinstance(place(gang, Ledger(nodes), within), Verdict)


@settings(max_examples=200, deadline=None)
@given(
    nodes=some_nodes,
    gang=some_members,
    seed=st.integers(0, 99),
    max_nodes=node_limits,
    burst=bursts,
)
def test_the_order_in_which_nodes_were_seen_does_not_matter(
    nodes: list[Node],
    gang: list[Member],
    seed: int,
    max_nodes: int | None,
    burst: int | None,
) -> None:
    shuffled = random.Random(seed).sample(nodes, len(nodes))
    come_back = Ledger([*nodes, Node("passing")])
    for domain in ("passing", nodes[0].name):
        come_back.remove_node(domain)
    come_back.set_node(nodes[0])
    within = limits(max_nodes=max_nodes, assumed_burst=burst)
    want = place(gang, Ledger(nodes), within)
    assert place(gang, Ledger(shuffled), within) == want
    assert place(gang, come_back, within) == want


# --- pods that must be apart ------------------------------------------------------------------

APART_SPEC = apart(GangTerm("train"))


def test_pods_with_anti_affinity_go_to_a_node_each_though_one_would_hold_them() -> None:
    capacity = ledger(*(node(name) for name in "abcd"))
    builder = job().master(cpu="1", spec=APART_SPEC).worker(2, cpu="1", spec=APART_SPEC)
    assert len(set(placed(builder, capacity))) == 3


def test_pods_of_a_type_without_anti_affinity_share_nodes_with_the_others() -> None:
    capacity = ledger(*(node(name) for name in "abc"))
    spec = apart(GangTerm("train", ("worker",)))
    builder = job("TFJob").ps(2, cpu="1").worker(2, cpu="1", spec=spec)
    nodes = placed(builder, capacity)
    assert len(set(nodes)) == 2
    assert nodes[2] != nodes[3]


def test_a_lost_member_does_not_go_where_another_member_is() -> None:
    capacity = ledger(*(node(name) for name in "abc"))
    training_job = job().worker(3, cpu="1", spec=APART_SPEC).build()
    for index, name in enumerate("ab"):
        claim = pod_claim(pod(training_job, "worker", index, bound=name))
        assert claim is not None
        capacity.claim(index, claim)
    bound = {ReplicaKey("worker", index): name for index, name in enumerate("ab")}
    placement = place(members_of(training_job), capacity, limits(), bound=bound)
    assert nodes_of(placement) == ["a", "b", "c"]
    (lost,) = [member for member in members_of(training_job) if member.key not in bound]
    assert [
        still_fits([lost], capacity, limits(), assignment={lost.key: name}) for name in "abc"
    ] == [
        False,
        False,
        True,
    ]


def test_a_plan_does_not_fit_if_two_pods_that_must_be_apart_are_on_one_node() -> None:
    capacity = ledger(node("a"), node("b"))
    members = job().worker(2, cpu="1", spec=APART_SPEC).members()
    keys = [member.key for member in members]
    fits = [
        still_fits(members, capacity, limits(), assignment=dict(zip(keys, nodes, strict=True)))
        for nodes in ("ab", "aa")
    ]
    assert fits == [True, False]


NAMESAKES = {
    "of the same name in the same namespace": ("train", "team", True),
    "of another name": ("other", "team", False),
    "in another namespace": ("train", "other", False),
}


@pytest.mark.parametrize(("name", "namespace", "shuns"), NAMESAKES.values(), ids=NAMESAKES)
def test_a_pod_of_another_job_is_kept_apart_only_if_its_labels_match_this_job(
    name: str, namespace: str, *, shuns: bool
) -> None:
    capacity = ledger(node("a"))
    other = job(name=name, uid="other").worker(1, cpu="1", spec=apart(GangTerm(name)))
    other.raw["metadata"]["namespace"] = namespace
    claim = pod_claim(pod(other.build(), "worker", 0, bound="a", deleting=True))
    assert claim is not None
    capacity.claim("other", claim)
    placement = place(job().worker(1, cpu="1", spec=APART_SPEC).members(), capacity, limits())
    assert isinstance(placement, Verdict) is shuns


def test_nodes_that_share_a_host_name_are_not_used_for_pods_that_must_be_apart() -> None:
    labels = {"a": "one", "b": "one", "c": "two", "d": "three"}
    capacity = ledger(*(node(name, labels={HOSTNAME: to}) for name, to in labels.items()))
    assert sorted(placed(job().worker(2, cpu="1", spec=APART_SPEC), capacity)) == ["c", "d"]
    capacity.set_node(node("b", labels={HOSTNAME: "four"}))
    assert sorted(placed(job().worker(4, cpu="1", spec=APART_SPEC), capacity)) == [
        "a",
        "b",
        "c",
        "d",
    ]


# --- pods that must be together ---------------------------------------------------------------

TOGETHER_SPEC = together(GangTerm("train"))


def test_pods_with_affinity_go_to_one_node_or_wait_although_several_would_fit_them() -> None:
    capacity = ledger(node("a", cpu="4"), node("b", cpu="4"), node("c", cpu="8"))
    builder = job().master(cpu="2", spec=TOGETHER_SPEC).worker(3, cpu="2", spec=TOGETHER_SPEC)
    assert placed(builder, capacity) == ["c"] * 4
    capacity.claim("other", Claim("c", {"cpu": 1000}))
    verdict = verdict_of(place(builder.members(), capacity, limits()))
    assert verdict.reason == REASON_NO_ROOM
    assert "on one node" in verdict.message


def test_pods_with_affinity_stay_on_one_node_though_they_could_use_more_cpu_on_two() -> None:
    capacity = ledger(node("a", cpu="4"), node("b", cpu="4"))
    builder = job().worker(2, cpu="1", cpu_limit="4", spec=TOGETHER_SPEC)
    nodes = nodes_of(place(builder.members(), capacity, limits(assumed_burst=4000)))
    assert len(set(nodes)) == 1


def test_pods_with_affinity_use_no_node_without_a_host_name() -> None:
    capacity = Ledger([Node("a", {"cpu": 9000, "pods": 9})])
    asked = job().worker(2, cpu="1", spec=TOGETHER_SPEC).members()
    assert verdict_of(place(asked, capacity, limits())).reason == REASON_NO_ELIGIBLE_NODE
    capacity.set_node(node("b"))
    assert nodes_of(place(asked, capacity, limits())) == ["b", "b"]


def test_a_lost_member_with_affinity_goes_where_the_others_are_or_waits() -> None:
    capacity = ledger(node("a", cpu="4"), node("b"))
    training_job = job().worker(2, cpu="2", spec=TOGETHER_SPEC).build()
    claim = pod_claim(pod(training_job, "worker", 0, bound="a"))
    assert claim is not None
    capacity.claim("bound", claim)
    bound = {ReplicaKey("worker", 0): "a"}
    assert nodes_of(place(members_of(training_job), capacity, limits(), bound=bound)) == ["a", "a"]
    (lost,) = [member for member in members_of(training_job) if member.key not in bound]
    fits = [still_fits([lost], capacity, limits(), assignment={lost.key: name}) for name in "ab"]
    assert fits == [True, False]
    capacity.claim("other", Claim("a", {"cpu": 1000}))
    assert isinstance(place(members_of(training_job), capacity, limits(), bound=bound), Verdict)


def test_pods_with_affinity_start_where_a_pod_of_the_same_labels_still_ends() -> None:
    capacity = ledger(node("a", cpu="4"), node("b"))
    before = job(uid="before").worker(1, cpu="1", spec=TOGETHER_SPEC).build()
    claim = pod_claim(pod(before, "worker", 0, bound="a", deleting=True))
    assert claim is not None
    capacity.claim("before", claim)
    assert placed(job().worker(2, cpu="1", spec=TOGETHER_SPEC), capacity) == ["a", "a"]
    asked = job().worker(2, cpu="2", spec=TOGETHER_SPEC).members()
    assert verdict_of(place(asked, capacity, limits())).reason == REASON_NO_ROOM
    capacity.drop("before")
    assert len(set(nodes_of(place(asked, capacity, limits())))) == 1


some_units = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@settings(max_examples=200, deadline=None)
@given(nodes=some_units, members=some_units, beside=st.lists(st.integers(1, 4), max_size=2))
def test_pods_that_must_be_apart_are_placed_exactly_if_some_order_of_nodes_fits_them(
    nodes: list[int], members: list[int], beside: list[int]
) -> None:
    """Each pod is tried on each node, as kube-scheduler would; some pods need not be apart."""
    gang = [
        Member(
            ReplicaKey("worker", index),
            {"cpu": cpu},
            Constraints(apart=(APART,) if index < len(members) else ()),
            True,
            cpu,
        )
        for index, cpu in enumerate([*members, *beside])
    ]
    capacity = Ledger([Node(f"n{number}", {"cpu": cpu}) for number, cpu in enumerate(nodes)])

    def fits(where: tuple[int, ...]) -> bool:
        free = list(nodes)
        for member, at in zip(gang, where, strict=True):
            free[at] -= member.requests["cpu"]
        own = where[: len(members)]
        return len(set(own)) == len(own) and min(free) >= 0

    possible = any(map(fits, itertools.product(range(len(nodes)), repeat=len(gang))))
    placement = place(gang, capacity, limits())
    assert isinstance(placement, Verdict) is not possible


# --- speed, as a ratio in the same run --------------------------------------------------------


def test_a_gang_of_500_takes_no_more_than_in_proportion() -> None:
    capacity = ledger(*(node(f"n{number:04}", gpus=8) for number in range(1000)))

    def cost(pods: int) -> float:
        asked = job().master(gpus=1, cpu="1").worker(pods - 1, gpus=1).members()
        costs = []
        for _ in range(5):
            began = time.process_time()
            nodes_of(place(asked, capacity, limits()))
            costs.append(time.process_time() - began)
        return min(costs)

    # 50 times the pods; ten times as long per pod would show a loop in a loop.
    assert cost(500) < 50 * cost(10)


# --- why more nodes than needed ---------------------------------------------------------------

REASONS: dict[str, tuple[Mapping[str, int], int, str]] = {
    "one node": ({"a": 4}, 4, ""),
    "the fewest": ({"a": 2, "b": 2}, 4, ""),
    "balanced over more": (
        {"a": 7, "b": 5, "c": 4, "d": 4},
        12,
        "3 nodes with 4 pods each instead of 2 with 5 to 7 pods each, "
        "because the fullest node sets the pace of the job",
    ),
}


@pytest.mark.parametrize(("capacity", "pods", "want"), REASONS.values(), ids=REASONS.keys())
def test_C2_the_reason_for_more_nodes(capacity: Mapping[str, int], pods: int, want: str) -> None:
    members, nodes = job().worker(pods, gpus=1).members(), gpus(capacity)
    placement = place(members, nodes, limits())
    assert not isinstance(placement, Verdict)
    assert why_more_nodes(placement, place(members, nodes, limits(), weights=FEWEST)) == want


def test_C2_no_reason_is_given_where_no_fewer_nodes_are_found() -> None:
    result = {ReplicaKey("worker", n): name for n, name in enumerate("abc")}
    assert why_more_nodes(result, Verdict(REASON_NO_ROOM, "")) == ""
