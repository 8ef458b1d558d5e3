"""Bound members draw the others."""

from collections.abc import Mapping

import pytest

from kfext.core.ledger.claims import pod_claim
from kfext.core.placement.gang import members_of
from kfext.core.placement.place import place
from kfext.model.pod import ReplicaKey
from kfext.model.verdict import Verdict
from kfext.names import REASON_NO_ROOM
from tests.builders import job, ledger, limits, node, pod
from tests.unit.core.placement.answers import nodes_of, placed, verdict_of
from tests.unit.core.placement.racks import KEYS, Where, cluster


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
    found = place(job().worker(3, cpu="1").members(), on, limits(), bound=bound)
    assert found == {**bound, **{key(index): where for index, where in want.items()}}


def test_required_stays_with_its_bound_members_or_waits() -> None:
    on = ledger(node("a"), node("b"), used={"a": {"cpu": "32"}})
    members = job().worker(2, cpu="1").members()
    found = place(members, on, limits(one_node=True), bound={key(0): "a"})
    assert verdict_of(found).reason == REASON_NO_ROOM
    on.drop(("other", "a"))
    assert nodes_of(place(members, on, limits(one_node=True), bound={key(0): "a"})) == ["a", "a"]


NEAR: dict[str, tuple[Mapping[str, Where], Mapping[int, str], int, str]] = {
    "the same node": ({"a": ("z", "1", 2), "b": ("z", "1", 8)}, {0: "a"}, 3, "aa"),
    "the same rack": (
        {"a": ("z", "1", 0), "b": ("z", "2", 8), "c": ("z", "1", 8)}, {0: "a"}, 3, "cc"),
    "the same zone": (
        {"a": ("z", "1", 0), "b": ("y", "2", 8), "c": ("z", "3", 8)}, {0: "a"}, 3, "cc"),
    "anywhere": ({"a": ("z", "1", 0), "b": ("y", "2", 8)}, {0: "a"}, 3, "bb"),
    "a rack of any of them": (
        {"a": ("z", "1", 0), "b": ("y", "2", 0), "c": ("z", "9", 8), "d": ("y", "2", 2)},
        {0: "a", 1: "b"}, 4, "dd"),
    "as many as fit the same node, not all on another": (
        {"a": ("z", "1", 2), "b": ("z", "1", 3)}, {0: "a"}, 4, "aab"),
    "together beside them if that is more even": (
        {"a": ("z", "1", 3), "b": ("z", "1", 4)}, {0: "a", 1: "a", 2: "a", 3: "a"}, 8, "bbbb"),
    "a home without labels is near nobody": (
        {"a": ("", "", 0), "b": ("", "", 8), "c": ("z", "1", 4)}, {0: "a"}, 3, "cc"),
    "a home that is gone draws nobody": (
        {"b": ("z", "1", 8), "c": ("z", "1", 9)}, {0: "gone"}, 3, "bb"),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "bound", "pods", "want"), NEAR.values(), ids=NEAR.keys())
def test_others_go_as_near_to_bound_members_as_can_be(
    nodes: Mapping[str, Where], bound: Mapping[int, str], pods: int, want: str
) -> None:
    homes = {key(index): where for index, where in bound.items()}
    found = place(
        job().worker(pods, gpus=1).members(),
        cluster(nodes),
        limits(topology_keys=KEYS),
        bound=homes,
    )
    assert not isinstance(found, Verdict), found
    assert "".join(where for one, where in found.items() if one not in homes) == want


def test_unlike_members_that_no_home_holds_in_whole_share_it() -> None:
    on = cluster({"a": ("z", "1", 3), "b": ("z", "1", 8)})
    members = job("TFJob").ps(2, gpus=2).worker(2, gpus=1).members()
    bound = {ReplicaKey("ps", 0): "a"}
    found = place(members, on, limits(topology_keys=KEYS), bound=bound)
    assert not isinstance(found, Verdict)
    assert found[ReplicaKey("ps", 1)] == "a"
    assert found[key(0)] == "a"
    assert found[key(1)] == "b"


def test_required_whose_bound_members_are_apart_already_fills_their_nodes() -> None:
    on = ledger(node("a", gpus=1), node("b", gpus=1), node("c", gpus=8))
    members = job().worker(4, gpus=1).members()
    bound = {key(0): "a", key(1): "b"}
    assert nodes_of(place(members, on, limits(one_node=True), bound=bound)) == ["a", "b", "a", "b"]


def test_members_that_want_one_host_port_are_not_put_on_one_node_that_has_room() -> None:
    on = ledger(node("a", cpu="9"), node("b", cpu="1"))
    assert sorted(placed(job().worker(2, cpu="1", ports=[80]), on)) == ["a", "b"]


@pytest.mark.parametrize(
    ("cpu", "to"),
    [
        pytest.param("9", "a", id="where most of it is"),
        pytest.param("7", "b", id="where some of it is, if there is no room"),
    ],
)
def test_a_member_of_a_job_that_is_to_be_on_one_node_goes(cpu: str, to: str) -> None:
    made = job().worker(4, cpu="3").build()
    bound = {ReplicaKey("worker", index): on for index, on in enumerate("aab")}
    on = ledger(node("a", cpu=cpu), node("b", cpu="6"), node("c", cpu="30"))
    for key, name in bound.items():
        claim = pod_claim(pod(made, "worker", key.index, bound=name))
        assert claim is not None
        on.claim(key, claim)
    found = place(members_of(made), on, limits(one_node=True), bound=bound)
    assert found == {**bound, ReplicaKey("worker", 3): to}
