"""The solver. Names test_C… are testable statements of the reference (seeds §8)."""

import random
import re
import time
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.ledger import Ledger
from kfext.core.patches.pod import pin
from kfext.core.placement.gang import Member, members_of
from kfext.core.placement.place import place, still_fits
from kfext.model.constraints import Constraints
from kfext.model.node import Node
from kfext.model.plan import Assignment
from kfext.model.pod import ReplicaKey
from kfext.model.verdict import Verdict
from kfext.names import REASON_NO_ELIGIBLE_NODE, REASON_NO_ROOM, REASON_TOO_BIG
from tests.builders import JobBuilder, job, ledger, node, pod

GPU = "nvidia.com/gpu"


def nodes_of(found: Assignment | Verdict) -> list[str]:
    """The node of each member in rank order."""
    assert not isinstance(found, Verdict), found
    return list(found.values())


def verdict_of(found: Assignment | Verdict) -> Verdict:
    assert isinstance(found, Verdict), found
    return found


def placed(of: JobBuilder, on: Ledger, *, one_node: bool = False) -> list[str]:
    return nodes_of(place(of.members(), on, one_node=one_node))


# --- required ---------------------------------------------------------------------------------


def test_required_never_takes_a_second_node() -> None:
    on = ledger(node("a", gpus=4), node("b", gpus=4))
    verdict = verdict_of(place(job().worker(5, gpus=1).members(), on, one_node=True))
    assert verdict.reason == REASON_TOO_BIG


def test_required_with_pods_that_want_one_host_port_has_no_place() -> None:
    on = ledger(node("a"), node("b"))
    verdict = verdict_of(place(job().worker(2, ports=[80]).members(), on, one_node=True))
    assert verdict.reason == REASON_TOO_BIG
    assert "same host port" in verdict.message


# --- unlike members on unlike nodes -----------------------------------------------------------


def test_a_small_first_rank_does_not_take_the_room_of_a_large_second() -> None:
    on = ledger(node("large", cpu="10"), node("small", cpu="4"))
    assert placed(job().master(cpu="4").worker(cpu="10"), on) == ["small", "large"]


# --- C3, as DESIGN §9 overrides it: the pin ---------------------------------------------------


def test_C3_the_pin_is_the_only_hard_constraint() -> None:
    one = pod(job().worker(cpu="1").build(), "worker", 0, gated=True)
    paths = [operation["path"] for operation in pin(one, "a") if operation["op"] != "test"]
    assert paths == ["/spec/affinity", "/spec/schedulingGates/0"]


# --- which of several nodes -------------------------------------------------------------------

CHOICES: dict[str, tuple[JobBuilder, Mapping[str, Mapping[str, str]], str]] = {
    "GPUs: the tightest fit": (
        job().worker(2, gpus=1, cpu="1"),
        {"a": {GPU: "2"}, "b": {GPU: "6"}, "c": {GPU: "7"}},
        "b",
    ),
    "GPUs equal: the least CPU allocated": (
        job().worker(2, gpus=1, cpu="1"),
        {"a": {GPU: "4", "cpu": "9"}, "b": {GPU: "4", "cpu": "3"}, "c": {GPU: "4", "cpu": "6"}},
        "b",
    ),
    "CPU: the least allocated, since pods may burst": (
        job().worker(2, cpu="1"),
        {"a": {"cpu": "9"}, "b": {"cpu": "3"}, "c": {"cpu": "20"}},
        "b",
    ),
    "Guaranteed CPU: the tightest fit": (
        job().worker(2, cpu="1", memory="1Gi", guaranteed=True),
        {"a": {"cpu": "9"}, "b": {"cpu": "3"}, "c": {"cpu": "20"}},
        "c",
    ),
    "a pod that is not Guaranteed decides for all": (
        job().master(cpu="1", memory="1Gi").worker(2, cpu="1", memory="1Gi", guaranteed=True),
        {"a": {"cpu": "9"}, "b": {"cpu": "3"}, "c": {"cpu": "20"}},
        "b",
    ),
    "equal nodes: the first by name": (job().worker(2, cpu="1"), {}, "a"),
}


@pytest.mark.parametrize(("made", "used", "want_node"), CHOICES.values(), ids=CHOICES.keys())
def test_which_node(
    made: JobBuilder, used: Mapping[str, Mapping[str, str]], want_node: str
) -> None:
    on = ledger(*(node(name, gpus=8) for name in "cab"), used=used)
    assert set(placed(made, on)) == {want_node}


def test_jobs_without_requests_do_not_crowd_one_node() -> None:
    on = ledger(*(node(name, cpu="4", memory="8Gi") for name in "abcde"))
    for number in range(10):
        for key, where in place(job().worker(3).members(), on, one_node=False).items():
            on.claim((number, key), Claim(where, {"pods": 1}))
    assert Counter(claim.node for claim in on.claims().values()) == dict.fromkeys("abcde", 6)


def test_what_others_overcommit_is_no_matter_to_pods_that_do_not_request_it() -> None:
    on = ledger(node("a", gpus=4), node("b", gpus=4), used={"a": {"cpu": "99"}, "b": {"cpu": "99"}})
    for pods in (4, 8):
        members = job().worker(pods, gpus=1).members()
        found = place(members, on, one_node=False)
        assert not isinstance(found, Verdict)
        assert still_fits(members, on, assignment=found)
    assert isinstance(
        place(job().worker(4, gpus=1, cpu="1").members(), on, one_node=False), Verdict
    )


# --- host ports -------------------------------------------------------------------------------


def test_what_an_administrator_assumes_of_pods_without_requests_decides_between_nodes() -> None:
    on = ledger(
        node("little", cpu="4", memory="1Ti"),
        node("large", cpu="64", memory="1Ti"),
        used={"little": {"cpu": "1"}, "large": {"cpu": "20"}},
    )
    (member,) = members_of(job().worker(1).build())

    by_default = place([member], on, one_node=False)
    with_much = place([member], on, one_node=False, assumed={"cpu": 4000})

    assert nodes_of(by_default) == ["little"]
    assert nodes_of(with_much) == ["large"]


def test_pods_that_want_one_host_port_go_to_different_nodes() -> None:
    on = ledger(*(node(name) for name in "abc"))
    assert sorted(placed(job().worker(3, cpu="1", ports=[80]), on)) == ["a", "b", "c"]


def test_a_host_port_that_is_taken_is_no_room_now_but_room_later() -> None:
    on = ledger(node("a"))
    on.claim("other", Claim("a", {"pods": 1}, (("TCP", 80),)))
    asked = job().worker(ports=[80]).members()
    assert verdict_of(place(asked, on, one_node=False)).reason == REASON_NO_ROOM
    assert nodes_of(place(asked, on, one_node=False, ignoring=["other"])) == ["a"]
    assert placed(job().worker(ports=[81]), on) == ["a"]


def test_a_planned_gang_with_host_ports_still_fits_where_its_own_plan_is() -> None:
    on = ledger(node("a"), node("b"))
    members = job().worker(2, ports=[80]).members()
    plan = place(members, on, one_node=False)
    assert not isinstance(plan, Verdict)
    for member in members:
        claim = Claim(plan[member.key], member.requests, member.constraints.host_ports)
        on.claim(member.key, claim)
    own = [member.key for member in members]
    assert still_fits(members, on, assignment=plan, ignoring=own)
    assert not still_fits(members, on, assignment=plan)
    together = dict.fromkeys(plan, "a")
    assert not still_fits(members, on, assignment=together, ignoring=own)


# --- bound members draw the others ------------------------------------------------------------


def key(index: int) -> ReplicaKey:
    return ReplicaKey("worker", index)


BESIDE: dict[str, tuple[Mapping[str, str], Mapping[ReplicaKey, str], dict[int, str]]] = {
    "one home with room": ({"a": "20"}, {key(0): "a"}, {1: "a", 2: "a"}),
    "one home without room": ({"a": "32"}, {key(0): "a"}, {1: "b", 2: "b"}),
    "two homes, room on the fuller": (
        {"a": "30", "b": "32"},
        {key(0): "a", key(1): "b"},
        {2: "a"},
    ),
    "a home that is gone": ({}, {key(0): "gone"}, {1: "a", 2: "a"}),
}


@pytest.mark.parametrize(("used", "bound", "want"), BESIDE.values(), ids=BESIDE.keys())
def test_others_go_beside_bound_members(
    used: Mapping[str, str], bound: Mapping[ReplicaKey, str], want: dict[int, str]
) -> None:
    on = ledger(*map(node, "abc"), used={name: {"cpu": cpu} for name, cpu in used.items()})
    found = place(job().worker(3, cpu="1").members(), on, one_node=False, bound=bound)
    assert found == {**bound, **{key(index): where for index, where in want.items()}}


def test_required_stays_with_its_bound_members_or_waits() -> None:
    on = ledger(node("a"), node("b"), used={"a": {"cpu": "32"}})
    members = job().worker(2, cpu="1").members()
    found = place(members, on, one_node=True, bound={key(0): "a"})
    assert verdict_of(found).reason == REASON_NO_ROOM
    on.drop(("other", "a"))
    assert nodes_of(place(members, on, one_node=True, bound={key(0): "a"})) == ["a", "a"]


# --- gangs of unlike pods ---------------------------------------------------------------------


def test_parameter_servers_and_workers_that_need_different_pools() -> None:
    on = ledger(
        *(node(f"cpu-{number}", labels={"pool": "cpu"}) for number in range(12)),
        *(node(f"gpu-{number}", gpus=4, labels={"pool": "gpu"}) for number in range(12)),
    )
    made = (
        job("TFJob")
        .ps(2, cpu="1", spec={"nodeSelector": {"pool": "cpu"}})
        .worker(6, gpus=1, spec={"nodeSelector": {"pool": "gpu"}})
    )
    found = placed(made, on)
    assert all(where.startswith("cpu") for where in found[:2])
    assert all(where.startswith("gpu") for where in found[2:])
    assert len(set(found)) == 3


def test_one_type_without_a_possible_node_is_named() -> None:
    on = ledger(node("a"), node("b"))
    made = job().master(cpu="1").worker(3, cpu="1", spec={"nodeSelector": {"pool": "gpu"}})
    verdict = verdict_of(place(made.members(), on, one_node=False))
    assert verdict.reason == REASON_NO_ELIGIBLE_NODE
    assert "none of 2 nodes" in verdict.message
    assert "3 of 4 pods" in verdict.message


# --- messages ---------------------------------------------------------------------------------


def numbers(pattern: str, message: str) -> tuple[float, ...]:
    found = re.search(pattern, message)
    assert found, message
    return tuple(float(number) for number in found.groups())


def test_a_shortage_says_how_much_is_free_and_how_much_is_short() -> None:
    on = ledger(node("a", gpus=4), node("b", gpus=4), used={"a": {GPU: "3"}})
    verdict = verdict_of(place(job().worker(7, gpus=1).members(), on, one_node=False))
    assert verdict.reason == REASON_NO_ROOM
    assert numbers(r"(\d+) of (\d+) nodes are possible", verdict.message) == (2, 2)
    assert numbers(r"(\d+) nvidia.com/gpu free, (\d+) nvidia.com/gpu short", verdict.message) == (
        5,
        2,
    )


def test_required_says_what_the_freest_node_has() -> None:
    on = ledger(node("a", gpus=4), node("b", gpus=8), used={"b": {GPU: "3"}})
    verdict = verdict_of(place(job().worker(7, gpus=1).members(), on, one_node=True))
    assert verdict.reason == REASON_NO_ROOM
    assert numbers(r"freest has (\d+) nvidia.com/gpu, (\d+)", verdict.message) == (5, 2)


def test_a_pod_that_is_too_large_for_every_node() -> None:
    on = ledger(node("a", gpus=4), node("b", gpus=4))
    verdict = verdict_of(place(job().worker(gpus=6).members(), on, one_node=False))
    assert verdict.reason == REASON_TOO_BIG
    assert numbers(r"one pod needs (\d+) .* has (\d+)", verdict.message) == (6, 4)


def test_no_possible_node_says_what_excludes_how_many() -> None:
    taint = {"key": "team", "effect": "NoSchedule"}
    on = ledger(node("a", taints=[taint]), node("b", taints=[taint]), node("c", cordoned=True),
                node("d"))  # fmt: skip
    found = place(job().worker(cpu="1").members(), on, one_node=False, excluded=["d"])
    verdict = verdict_of(found)
    assert verdict.reason == REASON_NO_ELIGIBLE_NODE
    assert "none of 4 nodes" in verdict.message
    assert numbers(r"taint team \((\d)\)", verdict.message) == (2,)
    assert numbers(r"cordon \((\d)\)", verdict.message) == (1,)
    assert numbers(r"failed attempts \((\d)\)", verdict.message) == (1,)


def test_an_empty_cluster() -> None:
    verdict = verdict_of(place(job().worker(cpu="1").members(), ledger(), one_node=False))
    assert verdict == Verdict(REASON_NO_ELIGIBLE_NODE, "the cluster has no node")


def test_a_job_without_replicas_needs_no_node() -> None:
    assert place(job().worker(0).members(), ledger(), one_node=True) == {}


# --- odd amounts ------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ["8Ei", "4Ei", "1000Ei", "1e40"])
def test_amounts_near_64_bits_fit_nowhere(memory: str) -> None:
    made = job().worker(2, memory=memory)
    two = [{"name": n, "resources": {"requests": {"memory": memory}}} for n in ("one", "two")]
    made.raw["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"] = two
    verdict = verdict_of(place(made.members(), ledger(node("a"), node("b")), one_node=False))
    assert verdict.reason == REASON_TOO_BIG


# --- invariants -------------------------------------------------------------------------------

RESOURCES = ("cpu", "memory", "pods", GPU)
some_amounts = st.fixed_dictionaries(
    {"pods": st.just(1)},
    optional={"cpu": st.integers(1, 6), "memory": st.integers(1, 6), GPU: st.integers(1, 3)},
)
some_constraints = st.builds(
    Constraints,
    node_selector=st.sampled_from([(), (), (("zone", "a"),)]),
    host_ports=st.sampled_from([(), (), (), (("TCP", 80),)]),
)
some_nodes = st.lists(
    st.builds(
        lambda cpu, memory, gpus, pods, zone: (
            {"cpu": cpu, "memory": memory, GPU: gpus, "pods": pods},
            {"zone": zone},
        ),
        st.integers(0, 12),
        st.integers(0, 12),
        st.integers(0, 6),
        st.integers(0, 8),
        st.sampled_from("ab"),
    ),
    min_size=1,
    max_size=6,
)
some_members = st.lists(
    st.tuples(some_amounts, some_constraints, st.integers(1, 5), st.booleans()),
    min_size=1,
    max_size=3,
)


def members(drawn: list[tuple[dict[str, int], Constraints, int, bool]]) -> list[Member]:
    return [
        Member(ReplicaKey(f"type{kind}", index), amounts, constraints, guaranteed)
        for kind, (amounts, constraints, count, guaranteed) in enumerate(drawn)
        for index in range(count)
    ]


def cluster(drawn: list[tuple[dict[str, int], dict[str, str]]]) -> list[Node]:
    return [Node(f"n{number}", *fields) for number, fields in enumerate(drawn)]


@settings(max_examples=200, deadline=None)
@given(
    nodes=some_nodes,
    gang=some_members,
    others=st.lists(st.tuples(st.integers(0, 5), some_amounts, st.booleans()), max_size=6),
    data=st.data(),
)
def test_no_overcommit_and_no_broken_constraint(
    nodes: list[tuple[dict[str, int], dict[str, str]]],
    gang: list[tuple[dict[str, int], Constraints, int, bool]],
    others: list[tuple[int, dict[str, int], bool]],
    data: st.DataObject,
) -> None:
    made, asked = cluster(nodes), members(gang)
    on = Ledger(made)
    names = [one.name for one in made]
    for number, (at, amounts, port) in enumerate(others):
        claim = Claim(names[at % len(names)], amounts, (("TCP", 80),) if port else ())
        on.claim(("other", number), claim)
    bound = data.draw(
        st.dictionaries(st.sampled_from([one.key for one in asked]), st.sampled_from(names))
    )
    for one in asked:
        if one.key in bound:
            on.claim(("pod", one.key), Claim(bound[one.key], one.requests))
    excluded = data.draw(st.sets(st.sampled_from(names), max_size=2))
    ignoring = data.draw(st.sets(st.sampled_from([("other", n) for n in range(6)]), max_size=2))
    before = on.free(RESOURCES, ignoring=ignoring)
    one_node = data.draw(st.booleans())
    found = place(asked, on, one_node=one_node, bound=bound, excluded=excluded, ignoring=ignoring)
    if isinstance(found, Verdict):
        return
    assert found.keys() == {one.key for one in asked}
    assert bound.items() <= found.items()
    moving = [one for one in asked if one.key not in bound]
    for number, one in enumerate(made):
        here = [member for member in moving if found[member.key] == one.name]
        assert not here or one.name not in excluded
        for line, resource in enumerate(RESOURCES):
            wanted = sum(member.requests.get(resource, 0) for member in here)
            assert wanted == 0 or wanted <= before[line, number]
        for member in here:
            assert all(one.labels[k] == v for k, v in member.constraints.node_selector)
        taken = [port for member in here for port in member.constraints.host_ports]
        assert len(taken) == len(set(taken))
        assert not set(taken) & {
            port
            for k, claim in on.claims().items()
            if claim.node == one.name and k not in ignoring
            for port in claim.host_ports
        }
    if one_node and len(set(bound.values())) <= 1:
        assert len(set(found.values())) == 1
    rest = {member.key: found[member.key] for member in moving}
    assert still_fits(moving, on, assignment=rest, excluded=excluded, ignoring=ignoring)


@settings(max_examples=200, deadline=None)
@given(nodes=some_nodes, gang=some_members, seed=st.integers(0, 99), one_node=st.booleans())
def test_the_order_in_which_nodes_were_seen_does_not_matter(
    nodes: list[tuple[dict[str, int], dict[str, str]]],
    gang: list[tuple[dict[str, int], Constraints, int, bool]],
    seed: int,
    one_node: bool,
) -> None:
    made, asked = cluster(nodes), members(gang)
    shuffled = random.Random(seed).sample(made, len(made))
    come_back = Ledger([*made, Node("passing")])
    for one in ("passing", made[0].name):
        come_back.remove_node(one)
    come_back.set_node(made[0])
    want = place(asked, Ledger(made), one_node=one_node)
    assert place(asked, Ledger(shuffled), one_node=one_node) == want
    assert place(asked, come_back, one_node=one_node) == want


# --- speed, as a ratio in the same run --------------------------------------------------------


def test_a_gang_of_500_takes_no_more_than_in_proportion() -> None:
    on = ledger(*(node(f"n{number:04}", gpus=8) for number in range(1000)))

    def cost(pods: int) -> float:
        asked = job().master(gpus=1, cpu="1").worker(pods - 1, gpus=1).members()
        costs = []
        for _ in range(5):
            began = time.process_time()
            nodes_of(place(asked, on, one_node=False))
            costs.append(time.process_time() - began)
        return min(costs)

    # 50 times the pods; ten times as long per pod would show a loop in a loop.
    assert cost(500) < 50 * cost(10)
