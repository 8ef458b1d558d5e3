"""Members go near bound members, and to nodes where they can use more CPU."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.claims import pod_claim
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement import nodeset
from kfext.core.placement import solve as solving
from kfext.core.placement.gang import Member, members_of
from kfext.core.placement.place import place
from kfext.core.placement.solve import Use, can_burst, in_words, usable_cpu
from kfext.model.constraints import Constraints
from kfext.model.node import Node
from kfext.model.plan import Assignment
from kfext.model.pod import ReplicaKey
from kfext.model.verdict import Verdict
from kfext.names import REASON_NO_ROOM
from tests.builders import JobBuilder, job, ledger, limits, node, pod
from tests.unit.core.placement.answers import nodes_of, placed, verdict_of
from tests.unit.core.placement.racks import KEYS, Where, cluster
from tests.unit.core.placement.random_gangs import node_limits, some_members, some_nodes


def key(index: int) -> ReplicaKey:
    return ReplicaKey("worker", index)


BESIDE: dict[str, tuple[Mapping[str, str], Mapping[ReplicaKey, str], dict[int, str]]] = {
    "one home with capacity": ({"a": "20"}, {key(0): "a"}, {1: "a", 2: "a"}),
    "one home without capacity": ({"a": "32"}, {key(0): "a"}, {1: "b", 2: "b"}),
    "two homes, capacity on the fuller": (
        {"a": "30", "b": "32"},
        {key(0): "a", key(1): "b"},
        {2: "a"},
    ),
    "a home that was removed": ({}, {key(0): "gone"}, {1: "a", 2: "a"}),
}


@pytest.mark.parametrize(("used", "bound", "want"), BESIDE.values(), ids=BESIDE.keys())
def test_unbound_members_go_to_the_nodes_of_bound_members(
    used: Mapping[str, str], bound: Mapping[ReplicaKey, str], want: dict[int, str]
) -> None:
    capacity = ledger(*map(node, "abc"), used={name: {"cpu": cpu} for name, cpu in used.items()})
    placement = place(job().worker(3, cpu="1").members(), capacity, limits(), bound=bound)
    assert placement == {**bound, **{key(index): where for index, where in want.items()}}


def test_a_gang_on_a_required_single_node_stays_with_its_bound_members_or_waits() -> None:
    capacity = ledger(node("a"), node("b"), used={"a": {"cpu": "32"}})
    members = job().worker(2, cpu="1").members()
    placement = place(members, capacity, limits(max_nodes=1), bound={key(0): "a"})
    assert verdict_of(placement).reason == REASON_NO_ROOM
    capacity.drop(("other", "a"))
    placement = place(members, capacity, limits(max_nodes=1), bound={key(0): "a"})
    assert nodes_of(placement) == ["a", "a"]


NEAR: dict[str, tuple[Mapping[str, Where], Mapping[int, str], int, str]] = {
    "the same node": ({"a": ("z", "1", 2), "b": ("z", "1", 8)}, {0: "a"}, 3, "aa"),
    "the same rack": (
        {"a": ("z", "1", 0), "b": ("z", "2", 8), "c": ("z", "1", 8)}, {0: "a"}, 3, "cc"),
    "the same zone": (
        {"a": ("z", "1", 0), "b": ("y", "2", 8), "c": ("z", "3", 8)}, {0: "a"}, 3, "cc"),
    "anywhere": ({"a": ("z", "1", 0), "b": ("y", "2", 8)}, {0: "a"}, 3, "bb"),
    "the rack of any bound member": (
        {"a": ("z", "1", 0), "b": ("y", "2", 0), "c": ("z", "9", 8), "d": ("y", "2", 2)},
        {0: "a", 1: "b"}, 4, "dd"),
    "as many as fit on the home, not all on another node": (
        {"a": ("z", "1", 2), "b": ("z", "1", 3)}, {0: "a"}, 4, "aab"),
    "all on another node, if the job is more even then": (
        {"a": ("z", "1", 3), "b": ("z", "1", 4)}, {0: "a", 1: "a", 2: "a", 3: "a"}, 8, "bbbb"),
    "a home without labels is near no pod": (
        {"a": ("", "", 0), "b": ("", "", 8), "c": ("z", "1", 4)}, {0: "a"}, 3, "cc"),
    "a removed home attracts no pod": (
        {"b": ("z", "1", 8), "c": ("z", "1", 9)}, {0: "gone"}, 3, "bb"),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "bound", "pods", "want"), NEAR.values(), ids=NEAR.keys())
def test_members_go_as_near_to_bound_members_as_possible(
    nodes: Mapping[str, Where], bound: Mapping[int, str], pods: int, want: str
) -> None:
    homes = {key(index): where for index, where in bound.items()}
    placement = place(
        job().worker(pods, gpus=1).members(),
        cluster(nodes),
        limits(topology_keys=KEYS),
        bound=homes,
    )
    assert not isinstance(placement, Verdict), placement
    assert "".join(where for member, where in placement.items() if member not in homes) == want


def test_unlike_members_fill_a_home_that_cannot_hold_all_of_them() -> None:
    capacity = cluster({"a": ("z", "1", 3), "b": ("z", "1", 8)})
    members = job("TFJob").ps(2, gpus=2).worker(2, gpus=1).members()
    bound = {ReplicaKey("ps", 0): "a"}
    placement = place(members, capacity, limits(topology_keys=KEYS), bound=bound)
    assert not isinstance(placement, Verdict)
    assert placement[ReplicaKey("ps", 1)] == "a"
    assert placement[key(0)] == "a"
    assert placement[key(1)] == "b"


def test_if_a_single_node_is_required_members_join_bound_members_even_on_two_nodes() -> None:
    capacity = ledger(node("a", gpus=1), node("b", gpus=1), node("c", gpus=8))
    members = job().worker(4, gpus=1).members()
    placement = place(members, capacity, limits(max_nodes=1), bound={key(0): "a", key(1): "b"})
    assert nodes_of(placement) == ["a", "b", "a", "b"]


LIMITED: dict[str, tuple[Mapping[str, Where], str, int, str]] = {
    "on a home and one other node": (
        {"a": ("z", "1", 1), "b": ("z", "1", 2), "c": ("z", "1", 2), "d": ("z", "1", 4)}, "a", 5,
        "aaddd"),
    "on the homes, if there are as many as the job may use": (
        {"a": ("z", "1", 2), "b": ("z", "1", 2), "c": ("z", "1", 8)}, "ab", 4, "abaa"),
    "further away, if too many nodes nearby would be needed": (
        {"a": ("z", "1", 0), "b": ("z", "1", 2), "c": ("z", "1", 2), "d": ("y", "2", 4)}, "a", 5,
        "adddd"),
    "nowhere, if too many nodes would be needed": (
        {"a": ("z", "1", 0), "b": ("z", "1", 2), "c": ("z", "1", 2)}, "a", 5, ""),
    "on the homes, if they are more than the job may use": (
        {"a": ("z", "1", 0), "b": ("z", "1", 1), "c": ("z", "1", 1), "d": ("z", "1", 8)}, "abc", 5,
        "abcbc"),
    "on the homes with the most members before other homes": (
        {"a": ("z", "1", 8), "b": ("z", "1", 1), "c": ("z", "1", 1), "d": ("z", "1", 8)}, "abbcc",
        7, "abbccbc"),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "homes", "pods", "want"), LIMITED.values(), ids=LIMITED)
def test_where_members_go_if_the_job_may_use_two_nodes(
    nodes: Mapping[str, Where], homes: str, pods: int, want: str
) -> None:
    bound = {key(index): name for index, name in enumerate(homes)}
    within = limits(max_nodes=2, topology_keys=KEYS)
    placement = place(job().worker(pods, gpus=1).members(), cluster(nodes), within, bound=bound)
    assert ("" if isinstance(placement, Verdict) else "".join(nodes_of(placement))) == want


def test_members_with_the_same_host_port_go_to_different_nodes() -> None:
    capacity = ledger(node("a", cpu="9"), node("b", cpu="1"))
    assert sorted(placed(job().worker(2, cpu="1", ports=[80]), capacity)) == ["a", "b"]


@pytest.mark.parametrize(
    ("cpu", "to"),
    [
        pytest.param("9", "a", id="the node of most members"),
        pytest.param("7", "b", id="the node of some members, if that is full"),
    ],
)
def test_where_a_new_member_goes_if_a_single_node_is_required(cpu: str, to: str) -> None:
    training_job = job().worker(4, cpu="3").build()
    bound = {ReplicaKey("worker", index): name for index, name in enumerate("aab")}
    capacity = ledger(node("a", cpu=cpu), node("b", cpu="6"), node("c", cpu="30"))
    for key, name in bound.items():
        claim = pod_claim(pod(training_job, "worker", key.index, bound=name))
        assert claim is not None
        capacity.claim(key, claim)
    placement = place(members_of(training_job), capacity, limits(max_nodes=1), bound=bound)
    assert placement == {**bound, ReplicaKey("worker", 3): to}


CASES: dict[str, tuple[JobBuilder, list[int]]] = {
    "its limit": (job().worker(cpu="1", cpu_limit="3"), [3000]),
    "without a limit, the assumed burst": (job().worker(cpu="1", cpu_limit=""), [4000]),
    "without requests, the assumed burst": (job().worker(), [4000]),
    "its request, if that is more": (job().worker(cpu="6", cpu_limit=""), [6000]),
    "its request, if that is the limit": (job().worker(cpu="1"), [1000]),
    "each pod for itself": (
        job().master(cpu="1").worker(2, cpu="1", cpu_limit=""),
        [1000, 4000, 4000],
    ),
    "GPUs: its request": (job().worker(cpu="1", gpus=1, cpu_limit=""), [1000]),
    "GPUs of another pod of the job: its request": (
        job().master(cpu="1", cpu_limit="").worker(cpu="2", gpus=1, cpu_limit="3"),
        [1000, 2000],
    ),
}


@pytest.mark.parametrize(("builder", "want"), CASES.values(), ids=CASES)
def test_how_much_cpu_a_pod_can_use(builder: JobBuilder, want: list[int]) -> None:
    members = builder.members()
    assert usable_cpu(members, assumed=4000) == want
    assert can_burst(members, assumed=4000) is (
        want != [member.requests.get("cpu", 0) for member in members]
    )


BURST = limits(assumed_burst=4000)


def pair(cpu: str = "300m", *, cpu_limit: str = "") -> JobBuilder:
    return job().worker(2, cpu=cpu, cpu_limit=cpu_limit)


# --- which nodes ------------------------------------------------------------------------------

CHOICES: dict[str, tuple[JobBuilder, Mapping[str, str], str]] = {
    "one node has all the CPU that the pods can use": (pair(), {"a": "7", "b": "8"}, "bb"),
    "no node has enough: a node for each": (pair(), {"a": "7", "b": "7"}, "ab"),
    "a limit below the assumed burst": (pair(cpu_limit="3"), {"a": "7", "b": "7"}, "aa"),
    "a limit above the assumed burst": (pair(cpu_limit="6"), {"a": "10", "b": "10"}, "ab"),
    "requests that are the limits": (pair("2", cpu_limit="2"), {"a": "4", "b": "4"}, "aa"),
    "requests above the assumed burst": (pair("5"), {"a": "10", "b": "9"}, "aa"),
    "no node has all that a pod can use: a node for each": (
        pair(),
        {"a": "700m", "b": "700m"},
        "ab",
    ),
    "nodes far smaller than its limit": (pair(cpu_limit="64"), {"a": "700m", "b": "700m"}, "ab"),
    "the two nodes with the most CPU": (pair(), {"a": "1", "b": "3", "c": "2"}, "bc"),
    "as few on each node as possible": (
        job().worker(5, cpu="100m", cpu_limit=""),
        {"a": "7", "b": "7", "c": "7"},
        "aabbc",
    ),
    "no more nodes than needed": (
        job().worker(4, cpu="100m", cpu_limit=""),
        {"a": "9", "b": "9", "c": "9", "d": "9"},
        "aabb",
    ),
    "there is only one node": (pair(), {"a": "1"}, "aa"),
    "a master with a limit beside workers without": (
        job().master(cpu="1").worker(2, cpu="1", cpu_limit=""),
        {"a": "9", "b": "9"},
        "aaa",
    ),
    "a pod without any requests": (job().worker(2), {"a": "7", "b": "7"}, "ab"),
    "GPUs: where the GPUs are": (
        job().worker(2, cpu="1", gpus=1, cpu_limit=""),
        {"a": "4", "b": "4"},
        "aa",
    ),
}


@pytest.mark.parametrize(("builder", "cpu", "want"), CHOICES.values(), ids=CHOICES)
def test_which_nodes_burstable_pods_get(
    builder: JobBuilder, cpu: Mapping[str, str], want: str
) -> None:
    capacity = ledger(*(node(name, cpu=amount, gpus=8) for name, amount in cpu.items()))
    assert sorted(nodes_of(place(builder.members(), capacity, BURST))) == list(want)


def test_a_single_pod_goes_to_the_node_with_the_most_cpu_for_it() -> None:
    """The small node has the smaller fraction of its CPU allocated."""
    capacity = ledger(node("small", cpu="2"), node("large", cpu="8"), used={"large": {"cpu": "5"}})
    members = job().worker(1, cpu="1", cpu_limit="").members()
    assert nodes_of(place(members, capacity, limits())) == ["small"]
    assert nodes_of(place(members, capacity, BURST)) == ["large"]


def test_pods_with_equal_requests_count_with_their_own_limits() -> None:
    capacity = ledger(node("a", cpu="8"), node("b", cpu="18"), used={"b": {"cpu": "9"}})
    members = job().master(cpu="1").worker(2, cpu="1", cpu_limit="").members()
    assert nodes_of(place(members, capacity, limits())) == ["a", "a", "a"]
    assert nodes_of(place(members, capacity, BURST)) == ["b", "b", "b"]


def test_a_placement_with_all_the_cpu_that_pods_can_use_is_not_compared_with_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    solved = []
    monkeypatch.setattr(solving, "solve", lambda task, free: solved.append(task))
    capacity = ledger(node("a", cpu="8"), node("b", cpu="7"))
    assert nodes_of(place(pair().members(), capacity, BURST)) == ["a", "a"]
    assert solved == []
    capacity.claim("other", Claim("a", {"cpu": 1000}))
    place(pair().members(), capacity, BURST)
    assert len(solved) > 0


def test_no_search_is_made_for_cpu_beyond_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = []
    monkeypatch.setattr(nodeset, "searched", lambda *task, **_: searches.append(task))
    capacity = ledger(node("a", cpu="5"), node("b", cpu="5"))
    members = job("TFJob").ps(2, cpu="2").worker(2, cpu="1", cpu_limit="").members()
    assert len(set(nodes_of(place(members, capacity, BURST)))) == 2
    assert searches == []


LEVELS: dict[str, tuple[int, list[int]]] = {
    "less than any pod requests": (500, [1000, 3000, 1000]),
    "more than some request": (2000, [2000, 3000, 1000]),
    "more than any pod can use": (9000, [4000, 3000, 1000]),
}


@pytest.mark.parametrize(("level", "want"), LEVELS.values(), ids=LEVELS)
def test_the_cpu_of_each_pod_at_a_level(level: int, want: list[int]) -> None:
    use = Use(requested=np.array([1000, 3000, 1000]), usable=np.array([4000, 3000, 1000]))
    assert use.at(level).tolist() == want


def test_cpu_that_other_pods_request_is_not_free() -> None:
    capacity = ledger(node("a", cpu="9"), node("b", cpu="9"), used={"a": {"cpu": "2"}})
    assert nodes_of(place(pair().members(), capacity, BURST)) == ["b", "b"]
    capacity.claim("more", Claim("b", {"cpu": 2000}))
    assert sorted(nodes_of(place(pair().members(), capacity, BURST))) == ["a", "b"]


def test_other_resources_must_suffice_where_pods_can_use_more_cpu() -> None:
    capacity = ledger(node("a", cpu="8", memory="1Gi"), node("b", cpu="4"))
    members = job().worker(2, cpu="100m", memory="1Gi", cpu_limit="").members()
    assert sorted(nodes_of(place(members, capacity, BURST))) == ["a", "b"]


def test_a_required_single_node_is_the_node_with_the_most_free_cpu() -> None:
    capacity = ledger(node("a", cpu="3"), node("b", cpu="16"), used={"b": {"cpu": "11"}})
    required = limits(max_nodes=1, assumed_burst=4000)
    assert nodes_of(place(pair().members(), capacity, limits(max_nodes=1))) == ["a", "a"]
    assert nodes_of(place(pair().members(), capacity, required)) == ["b", "b"]


BOUND: dict[str, tuple[Mapping[str, str], str]] = {
    "enough for both": ({"a": "8", "b": "9"}, "a"),
    "not enough for both": ({"a": "7", "b": "7"}, "b"),
    "not enough, but no node has more": ({"a": "7", "b": "1"}, "a"),
}


@pytest.mark.parametrize(("cpu", "want"), BOUND.values(), ids=BOUND)
def test_the_cpu_that_a_bound_member_can_use_is_not_free(cpu: Mapping[str, str], want: str) -> None:
    capacity = ledger(*(node(name, cpu=amount) for name, amount in cpu.items()))
    first, second = pair().members()
    capacity.claim("first", Claim("a", first.requests))
    placement = place([first, second], capacity, BURST, bound={first.key: "a"})
    assert nodes_of(placement) == ["a", want]


def test_cpu_beyond_requests_does_not_count_beside_a_bound_member_with_a_gpu() -> None:
    capacity = ledger(node("a", cpu="2", gpus=1), node("b", cpu="8"))
    first, second = job().master(cpu="1", gpus=1).worker(1, cpu="1", cpu_limit="").members()
    assert nodes_of(place([first, second], capacity, BURST, bound={first.key: "a"})) == ["a", "a"]


def test_absurd_amounts_of_cpu_do_no_harm() -> None:
    capacity = ledger(*(node(name, cpu="4Pi", pods=9999) for name in "ab"))
    for cpu_limit in ("1000Ei", ""):
        members = job().worker(5000, cpu="1", cpu_limit=cpu_limit).members()
        result = nodes_of(place(members, capacity, limits(assumed_burst=2**80)))
        assert set(result) == {"a", "b"}


# --- always -----------------------------------------------------------------------------------


def least_cpu(
    result: Assignment, members: Sequence[Member], capacity: Ledger, *, assumed: int
) -> int:
    """The largest level at which every member has its CPU on its node, see `Use.at`."""
    usable = usable_cpu(members, assumed=assumed)

    def fits(level: int) -> bool:
        taken = dict.fromkeys(result.values(), 0)
        for member, most in zip(members, usable, strict=True):
            taken[result[member.key]] += max(member.requests.get("cpu", 0), min(most, level))
        free = capacity.free(["cpu"])[0]
        return all(amount <= free[capacity.row(name)] for name, amount in taken.items() if amount)

    return max(level for level in range(max(usable) + 1) if level == 0 or fits(level))


@settings(max_examples=300, deadline=None)
@given(nodes=some_nodes, gang=some_members, assumed=st.integers(0, 8), max_nodes=node_limits)
def test_no_gang_is_refused_or_gets_less_cpu_because_it_can_use_more(
    nodes: list[Node], gang: list[Member], assumed: int, max_nodes: int | None
) -> None:
    capacity = Ledger(nodes)
    by_requests = place(gang, capacity, limits(max_nodes=max_nodes))
    placement = place(gang, capacity, limits(max_nodes=max_nodes, assumed_burst=assumed))
    if isinstance(by_requests, Verdict) or not can_burst(gang, assumed=assumed):
        assert placement == by_requests
        return
    assert not isinstance(placement, Verdict)
    event("other nodes" if placement != by_requests else "the same nodes")
    before = least_cpu(by_requests, gang, capacity, assumed=assumed)
    assert least_cpu(placement, gang, capacity, assumed=assumed) >= before


@settings(max_examples=300, deadline=None)
@given(
    free=st.lists(st.integers(0, 12), min_size=1, max_size=6),
    pods=st.integers(1, 8),
    requested=st.integers(0, 3),
    usable=st.integers(1, 8),
)
def test_equal_pods_get_as_much_cpu_as_possible(
    free: list[int], pods: int, requested: int, usable: int
) -> None:
    capacity = Ledger(
        Node(f"n{number}", {"cpu": cpu, "pods": 9}) for number, cpu in enumerate(free)
    )
    requests = {"cpu": requested, "pods": 1} if requested else {"pods": 1}
    gang = [
        Member(ReplicaKey("worker", index), requests, Constraints(), False, usable)
        for index in range(pods)
    ]
    placement = place(gang, capacity, limits(assumed_burst=0))
    if isinstance(placement, Verdict):
        return

    def capacity_at(level: int) -> int:
        amount = max(requested, min(usable, level))
        return sum(min(cpu // amount, 9) if amount else 9 for cpu in free)

    most = max(level for level in range(usable + 1) if level == 0 or capacity_at(level) >= pods)
    assert least_cpu(placement, gang, capacity, assumed=0) == max(most, requested)
    if any(cpu >= pods * max(requested, usable) for cpu in free):
        assert len(set(placement.values())) == 1


# --- in words ---------------------------------------------------------------------------------

WORDS: dict[str, tuple[JobBuilder, bool, str]] = {
    "one node would suffice": (
        pair(),
        True,
        "each pod can use 4 CPUs and no node has 8 free for them",
    ),
    "several nodes would suffice": (pair(), False, "each pod can use 4 CPUs"),
    "unlike pods": (
        job().master(cpu="500m").worker(2, cpu="1", cpu_limit="2"),
        True,
        "each pod can use 0.5 to 2 CPUs and no node has 4.5 free for them",
    ),
}


@pytest.mark.parametrize(("builder", "one_node", "want"), WORDS.values(), ids=WORDS)
def test_the_words_on_why_pods_are_spread(builder: JobBuilder, one_node: bool, want: str) -> None:
    assert in_words(builder.members(), assumed=4000, one_node=one_node) == want
