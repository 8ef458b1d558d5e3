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
from tests.unit.core.placement.answers import gpu_nodes, nodes_of, placed, verdict_of
from tests.unit.core.placement.random_gangs import (
    APART,
    RESOURCES,
    bursts,
    node_limits,
    some_amounts,
    some_members,
    some_nodes,
)


def test_a_required_single_node_excludes_a_division() -> None:
    capacity = ledger(node("a", gpus=4), node("b", gpus=4))
    verdict = verdict_of(place(job().worker(5, gpus=1).members(), capacity, limits(max_nodes=1)))
    assert verdict.reason == REASON_TOO_BIG


# --- unlike members on unlike nodes -----------------------------------------------------------


def test_a_small_first_rank_does_not_use_the_node_that_a_large_second_rank_needs() -> None:
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


def test_pods_with_the_same_host_port_go_to_different_nodes() -> None:
    capacity = ledger(*(node(name) for name in "abc"))
    assert sorted(placed(job().worker(3, cpu="1", ports=[80]), capacity)) == ["a", "b", "c"]


def test_a_taken_host_port_is_missing_capacity_now_but_not_forever() -> None:
    capacity = ledger(node("a"))
    capacity.claim("other", Claim("a", {"pods": 1}, (("TCP", 80),)))
    members = job().worker(ports=[80]).members()
    assert verdict_of(place(members, capacity, limits())).reason == REASON_NO_ROOM
    assert nodes_of(place(members, capacity, limits(), ignoring=["other"])) == ["a"]
    assert placed(job().worker(ports=[81]), capacity) == ["a"]


def test_a_planned_gang_with_host_ports_still_fits_where_its_own_plan_is() -> None:
    capacity = ledger(node("a"), node("b"))
    members = job().worker(2, ports=[80]).members()
    plan = place(members, capacity, limits())
    assert not isinstance(plan, Verdict)
    for member in members:
        claim = Claim(plan[member.key], member.requests, member.constraints.host_ports)
        capacity.claim(member.key, claim)
    keys = [member.key for member in members]
    assert still_fits(members, capacity, limits(), assignment=plan, ignoring=keys)
    assert not still_fits(members, capacity, limits(), assignment=plan)
    together = dict.fromkeys(plan, "a")
    assert not still_fits(members, capacity, limits(), assignment=together, ignoring=keys)


# --- an existing plan -------------------------------------------------------------------------

MASTER, WORKER = ReplicaKey("master", 0), ReplicaKey("worker", 0)
FITS: dict[str, tuple[Assignment, bool]] = {
    "on a node with capacity": ({MASTER: "a", WORKER: "b"}, True),
    "together, although both want the same port": ({MASTER: "a", WORKER: "a"}, False),
    "on a node that is full": ({MASTER: "a", WORKER: "full"}, False),
    "on a node that is cordoned": ({MASTER: "a", WORKER: "cordoned"}, False),
    "on an excluded node": ({MASTER: "a", WORKER: "shut"}, False),
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
    "another node has capacity": (2, ["a"], {}, [], ["b", "b"]),
    "all nodes are doubted": (2, ["a", "b", "c"], {}, [], ["a", "a"]),
    "two other nodes together have capacity": (5, ["a"], {}, [], ["b", "b", "b", "c", "c"]),
    "the gang fits nowhere else": (9, ["a"], {}, [], [*"aaabbbccc"]),
    "a member runs there": (2, ["a"], {"0": "a"}, [], ["a", "a"]),
    "a member runs there, and the node is blamed": (2, ["a"], {"0": "a"}, ["a"], ["a", "b"]),
    "a blamed node, and no other place": (9, ["a"], {"0": "a"}, ["a"], [*"aaaabbbcc"]),
    "a node that is gone": (2, ["gone"], {}, [], ["a", "a"]),
}


@pytest.mark.parametrize(
    ("pods", "doubted", "bound", "blamed", "want"), DOUBTED.values(), ids=DOUBTED
)
def test_a_doubted_node_is_used_only_if_there_is_no_other_place(
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
    avoiding, anywhere = (place(gang, capacity, within(excluded=names)) for names in (doubted, ()))
    assert placement == (anywhere if isinstance(avoiding, Verdict) else avoiding)


# --- odd amounts ------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ["8Ei", "4Ei", "1000Ei", "1e40"])
def test_requests_near_64_bits_fit_nowhere(memory: str) -> None:
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
def test_a_placement_overcommits_no_node_and_breaks_no_constraint(
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
    keys = [member.key for member in gang]
    bound = data.draw(st.dictionaries(st.sampled_from(keys), st.sampled_from(names)))
    for member in gang:
        if home := bound.get(member.key):
            claim = Claim(home, member.requests, gang_terms=member.constraints.gang_terms)
            capacity.claim(("pod", member.key), claim)
    excluded = data.draw(st.sets(st.sampled_from(names), max_size=2))
    ignoring = data.draw(st.sets(st.sampled_from([("other", n) for n in range(6)]), max_size=2))
    before = capacity.free(RESOURCES, ignoring=ignoring)
    max_nodes, burst = data.draw(node_limits), data.draw(bursts)
    within = limits(max_nodes=max_nodes, excluded=excluded, assumed_burst=burst)
    placement = place(gang, capacity, within, bound=bound, ignoring=ignoring)
    if isinstance(placement, Verdict):
        return
    assert placement.keys() == set(keys)
    assert bound.items() <= placement.items()
    unbound = [member for member in gang if member.key not in bound]
    for number, where in enumerate(nodes):
        here = [member for member in unbound if placement[member.key] == where.name]
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
    plan = {member.key: placement[member.key] for member in unbound}
    assert still_fits(
        unbound, capacity, limits(excluded=excluded), assignment=plan, ignoring=ignoring
    )


@settings(max_examples=300, deadline=None)
@given(nodes=some_nodes, gang=some_members)
def test_a_gang_placed_on_some_nodes_can_be_placed_if_limited_to_their_number(
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
def test_a_placement_does_not_depend_on_the_order_of_the_nodes(
    nodes: list[Node], gang: list[Member], seed: int, max_nodes: int | None, burst: int | None
) -> None:
    shuffled = random.Random(seed).sample(nodes, len(nodes))
    readded = Ledger([*nodes, Node("passing")])
    for name in ("passing", nodes[0].name):
        readded.remove_node(name)
    readded.set_node(nodes[0])
    within = limits(max_nodes=max_nodes, assumed_burst=burst)
    want = place(gang, Ledger(nodes), within)
    assert place(gang, Ledger(shuffled), within) == want
    assert place(gang, readded, within) == want


# --- pods that must be apart ------------------------------------------------------------------

APART_SPEC = apart(GangTerm("train"))


def test_pods_with_anti_affinity_go_to_different_nodes_although_one_node_would_hold_them() -> None:
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
    fits = [still_fits([lost], capacity, limits(), assignment={lost.key: name}) for name in "abc"]
    assert fits == [False, False, True]


def test_a_plan_does_not_fit_if_two_pods_that_must_be_apart_are_on_one_node() -> None:
    capacity = ledger(node("a"), node("b"))
    members = job().worker(2, cpu="1", spec=APART_SPEC).members()
    keys = [member.key for member in members]
    fits = [
        still_fits(members, capacity, limits(), assignment=dict(zip(keys, nodes, strict=True)))
        for nodes in ("ab", "aa")
    ]
    assert fits == [True, False]


OTHER_JOBS = {
    "the same name in the same namespace": ("train", "team", True),
    "another name": ("other", "team", False),
    "in another namespace": ("train", "other", False),
}


@pytest.mark.parametrize(("name", "namespace", "apart_"), OTHER_JOBS.values(), ids=OTHER_JOBS)
def test_a_pod_of_another_job_is_kept_apart_only_if_its_labels_match_this_job(
    name: str, namespace: str, *, apart_: bool
) -> None:
    capacity = ledger(node("a"))
    other = job(name=name, uid="other").worker(1, cpu="1", spec=apart(GangTerm(name)))
    other.raw["metadata"]["namespace"] = namespace
    claim = pod_claim(pod(other.build(), "worker", 0, bound="a", deleting=True))
    assert claim is not None
    capacity.claim("other", claim)
    placement = place(job().worker(1, cpu="1", spec=APART_SPEC).members(), capacity, limits())
    assert isinstance(placement, Verdict) is apart_


def test_nodes_that_share_a_host_name_are_not_used_for_pods_that_must_be_apart() -> None:
    labels = {"a": "one", "b": "one", "c": "two", "d": "three"}
    capacity = ledger(*(node(name, labels={HOSTNAME: to}) for name, to in labels.items()))
    assert sorted(placed(job().worker(2, cpu="1", spec=APART_SPEC), capacity)) == ["c", "d"]
    capacity.set_node(node("b", labels={HOSTNAME: "four"}))
    assert sorted(placed(job().worker(4, cpu="1", spec=APART_SPEC), capacity)) == [*"abcd"]


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
    members = job().worker(2, cpu="1", spec=TOGETHER_SPEC).members()
    assert verdict_of(place(members, capacity, limits())).reason == REASON_NO_ELIGIBLE_NODE
    capacity.set_node(node("b"))
    assert nodes_of(place(members, capacity, limits())) == ["b", "b"]


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


def test_pods_with_affinity_go_to_the_node_of_a_terminating_pod_with_their_labels() -> None:
    capacity = ledger(node("a", cpu="4"), node("b"))
    before = job(uid="before").worker(1, cpu="1", spec=TOGETHER_SPEC).build()
    claim = pod_claim(pod(before, "worker", 0, bound="a", deleting=True))
    assert claim is not None
    capacity.claim("before", claim)
    assert placed(job().worker(2, cpu="1", spec=TOGETHER_SPEC), capacity) == ["a", "a"]
    members = job().worker(2, cpu="2", spec=TOGETHER_SPEC).members()
    assert verdict_of(place(members, capacity, limits())).reason == REASON_NO_ROOM
    capacity.drop("before")
    assert len(set(nodes_of(place(members, capacity, limits())))) == 1


some_units = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@settings(max_examples=200, deadline=None)
@given(nodes=some_units, members=some_units, beside=st.lists(st.integers(1, 4), max_size=2))
def test_pods_that_must_be_apart_are_placed_if_and_only_if_some_assignment_fits(
    nodes: list[int], members: list[int], beside: list[int]
) -> None:
    """All assignments are tried. The pods `beside` need not be apart."""
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
        must_differ = where[: len(members)]
        return len(set(must_differ)) == len(must_differ) and min(free) >= 0

    possible = any(map(fits, itertools.product(range(len(nodes)), repeat=len(gang))))
    placement = place(gang, capacity, limits())
    assert isinstance(placement, Verdict) is not possible


# --- speed, as a ratio in the same run --------------------------------------------------------


def test_a_gang_of_500_is_placed_in_less_than_50_times_the_time_of_a_gang_of_10() -> None:
    capacity = ledger(*(node(f"n{number:04}", gpus=8) for number in range(1000)))

    def cpu_seconds(pods: int) -> float:
        members = job().master(gpus=1, cpu="1").worker(pods - 1, gpus=1).members()
        seconds = []
        for _ in range(5):
            began = time.process_time()
            nodes_of(place(members, capacity, limits()))
            seconds.append(time.process_time() - began)
        return min(seconds)

    # 50 times the pods; more time per pod would show a loop in a loop.
    assert cpu_seconds(500) < 50 * cpu_seconds(10)


# --- why more nodes than needed ---------------------------------------------------------------

REASONS: dict[str, tuple[Mapping[str, int], int, str]] = {
    "one node": ({"a": 4}, 4, ""),
    "the fewest": ({"a": 2, "b": 2}, 4, ""),
    "balanced over more nodes": (
        {"a": 7, "b": 5, "c": 4, "d": 4},
        12,
        "3 nodes with 4 pods each instead of 2 with 5 to 7 pods each, "
        "because the fullest node sets the pace of the job",
    ),
}


@pytest.mark.parametrize(("capacity", "pods", "want"), REASONS.values(), ids=REASONS.keys())
def test_C2_the_reason_for_more_nodes(capacity: Mapping[str, int], pods: int, want: str) -> None:
    members, nodes = job().worker(pods, gpus=1).members(), gpu_nodes(capacity)
    placement = place(members, nodes, limits())
    assert not isinstance(placement, Verdict)
    assert why_more_nodes(placement, place(members, nodes, limits(), weights=FEWEST)) == want


def test_C2_no_reason_is_given_if_the_gang_does_not_fit_fewer_nodes() -> None:
    result = {ReplicaKey("worker", n): name for n, name in enumerate("abc")}
    assert why_more_nodes(result, Verdict(REASON_NO_ROOM, "")) == ""
