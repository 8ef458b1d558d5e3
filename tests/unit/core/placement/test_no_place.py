"""The message that says why a gang has no place."""

import re
from dataclasses import replace

import pytest

from kfext.core.ledger.cards import as_sharing
from kfext.core.ledger.claim import Claim
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import Member, members_of
from kfext.core.placement.place import place
from kfext.model.gang_terms import GangTerm
from kfext.model.limit import Excluded
from kfext.model.node import Node
from kfext.model.verdict import Verdict
from kfext.names import GPU_SHARE, REASON_NO_ELIGIBLE_NODE, REASON_NO_ROOM, REASON_TOO_BIG
from tests.builders import JobBuilder, apart, job, ledger, limits, node
from tests.gpu_builders import plain_node, sharing, sharing_node
from tests.unit.core.placement.answers import GPU, verdict_of


def test_required_colocation_of_pods_with_one_host_port_has_no_place() -> None:
    capacity = ledger(node("a"), node("b"))
    verdict = verdict_of(
        place(job().worker(2, ports=[80]).members(), capacity, limits(max_nodes=1))
    )
    assert verdict.reason == REASON_TOO_BIG
    want = "2 of its pods want host port 80, which a node has only once"
    assert want in verdict.message
    # Also where pods may be spread, and other pods hold the port.
    capacity.claim("a", Claim("a", {}, host_ports=(("TCP", 80),)))
    verdict = verdict_of(place(job().worker(3, ports=[80]).members(), capacity, limits()))
    assert verdict.reason == REASON_TOO_BIG
    assert want.replace("2", "3") in verdict.message


TAKEN: dict[str, tuple[JobBuilder, str]] = {
    "the only port of its pods": (
        job().worker(2, ports=[80]),
        "host port 80 is taken on 2 of the eligible nodes",
    ),
    "one of several ports": (
        job().worker(2, ports=[80, 81]),
        "one of the host ports 80 and 81 is taken on 2 of the eligible nodes",
    ),
    "a missing resource is named first": (
        job().worker(2, cpu="7", ports=[80]),
        "12 cpu free, 2 cpu short",
    ),
}


@pytest.mark.parametrize(("builder", "why"), TAKEN.values(), ids=TAKEN)
def test_a_host_port_that_other_pods_hold_is_named(builder: JobBuilder, why: str) -> None:
    capacity = ledger(*(node(name, cpu="8") for name in "abc"))
    for name in "ab":
        capacity.claim(name, Claim(node=name, requests={"cpu": 6000}, host_ports=(("TCP", 80),)))
    verdict = verdict_of(place(builder.members(), capacity, limits()))
    assert verdict.reason == REASON_NO_ROOM
    assert verdict.message.split("; ")[1] == why


TRAIN = apart(GangTerm("train"))
EACH = "by its anti-affinity, 3 of its pods need a node each"


def test_required_colocation_of_pods_that_must_be_apart_has_no_place() -> None:
    capacity = ledger(node("a", cpu="1"), node("b"), node("c"))
    members = job().master(cpu="1", spec=TRAIN).worker(2, cpu="1", spec=TRAIN).members()
    verdict = verdict_of(place(members, capacity, limits(max_nodes=1)))
    assert verdict.reason == REASON_TOO_BIG
    assert EACH in verdict.message
    # Also while a resource is short; more of it would not help.
    capacity = ledger(node("a", cpu="2"))
    verdict = verdict_of(place(members, capacity, limits(max_nodes=1)))
    assert numbers(r"(\d) cpu short", verdict.message) == (1,)
    assert EACH in verdict.message


def test_the_number_of_pods_that_must_be_apart_is_named() -> None:
    members = job().worker(3, cpu="1", spec=TRAIN).members()
    verdict = verdict_of(place(members, ledger(node("a"), node("b")), limits()))
    assert verdict.reason == REASON_TOO_BIG
    assert numbers(r"(\d) of (\d) nodes are eligible", verdict.message) == (2, 2)
    assert EACH in verdict.message
    capacity = ledger(*(node(name) for name in "abc"), used={"c": {"cpu": "32"}})
    verdict = verdict_of(place(members, capacity, limits()))
    assert verdict.reason == REASON_NO_ROOM
    assert EACH in verdict.message


def test_the_message_about_anti_affinity_names_no_host_port() -> None:
    capacity = ledger(node("a"))
    claim = Claim("a", {}, gang_terms=(GangTerm("train", namespace="team"),))
    capacity.claim("before", claim)
    verdict = verdict_of(place(job().worker(1, cpu="1", spec=TRAIN).members(), capacity, limits()))
    assert verdict.reason == REASON_NO_ROOM
    assert "host port" not in verdict.message


def test_one_type_without_a_possible_node_is_named() -> None:
    capacity = ledger(node("a"), node("b"))
    builder = job().master(cpu="1").worker(3, cpu="1", spec={"nodeSelector": {"pool": "gpu"}})
    verdict = verdict_of(place(builder.members(), capacity, limits()))
    assert verdict.reason == REASON_NO_ELIGIBLE_NODE
    assert "none of 2 nodes" in verdict.message
    assert "3 of 4 pods" in verdict.message


def numbers(pattern: str, message: str) -> tuple[float, ...]:
    match = re.search(pattern, message)
    assert match, message
    return tuple(float(number) for number in match.groups())


def test_a_shortage_states_the_free_and_the_missing_amount() -> None:
    capacity = ledger(node("a", gpus=4), node("b", gpus=4), used={"a": {GPU: "3"}})
    verdict = verdict_of(place(job().worker(7, gpus=1).members(), capacity, limits()))
    assert verdict.reason == REASON_NO_ROOM
    assert numbers(r"(\d+) of (\d+) nodes are eligible", verdict.message) == (2, 2)
    assert numbers(r"(\d+) nvidia.com/gpu free, (\d+) nvidia.com/gpu short", verdict.message) == (
        5,
        2,
    )


def test_required_colocation_states_the_free_capacity_of_the_freest_node() -> None:
    capacity = ledger(node("a", gpus=4), node("b", gpus=8), used={"b": {GPU: "3"}})
    verdict = verdict_of(place(job().worker(7, gpus=1).members(), capacity, limits(max_nodes=1)))
    assert verdict.reason == REASON_NO_ROOM
    assert numbers(r"freest node has (\d+) nvidia.com/gpu, (\d+)", verdict.message) == (5, 2)


def test_a_limit_on_the_nodes_is_named_with_the_free_capacity_of_the_freest_nodes() -> None:
    capacity = ledger(*(node(name, gpus=3) for name in "abc"), used={"c": {GPU: "1"}})
    verdict = verdict_of(place(job().worker(7, gpus=1).members(), capacity, limits(max_nodes=2)))
    assert verdict.reason == REASON_TOO_BIG
    assert f"on at most 2 nodes; the freest 2 nodes have 6 {GPU}, 1 {GPU} short" in verdict.message
    verdict = verdict_of(place(job().worker(9, gpus=1).members(), capacity, limits(max_nodes=4)))
    assert f"on at most 4 nodes; 8 {GPU} free, 1 {GPU} short" in verdict.message


def test_a_pod_that_is_too_large_for_every_node_is_compared_with_the_freest() -> None:
    capacity = ledger(node("a", gpus=4), node("b", gpus=4))
    verdict = verdict_of(place(job().worker(gpus=6).members(), capacity, limits()))
    assert verdict.reason == REASON_TOO_BIG
    assert numbers(r"one pod needs (\d+) .* has (\d+)", verdict.message) == (6, 4)


def test_a_message_without_a_possible_node_counts_the_nodes_of_each_exclusion() -> None:
    taint = {"key": "team", "effect": "NoSchedule"}
    tainted = (node("a", taints=[taint]), node("b", taints=[taint]))
    capacity = ledger(*tainted, node("c", cordoned=True), node("d"))
    placement = place(job().worker(cpu="1").members(), capacity, limits(excluded=["d"]))
    verdict = verdict_of(placement)
    assert verdict.reason == REASON_NO_ELIGIBLE_NODE
    assert "none of 4 nodes" in verdict.message
    assert verdict.message.split("; ") == [
        "none of 4 nodes is eligible",
        "2 nodes have taint team:NoSchedule that the pods do not tolerate",
        "1 node is cordoned",
        "1 node left out after failed attempts",
    ]


def test_a_cluster_without_nodes_is_named() -> None:
    verdict = verdict_of(place(job().worker(cpu="1").members(), ledger(), limits()))
    assert verdict == Verdict(REASON_NO_ELIGIBLE_NODE, "the cluster has no nodes")


def test_the_exclusion_of_some_nodes_is_named_beside_eligible_nodes() -> None:
    fake = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
    tainted = (node(f"fake-{number}", taints=[fake]) for number in range(20))
    capacity = ledger(*tainted, node("a", cpu="2"), node("b", cpu="2"))
    message = verdict_of(place(job().worker(5, cpu="1").members(), capacity, limits())).message
    assert message.split("; ") == [
        "5 pods need 5 cpu together",
        "4 cpu free, 1 cpu short",
        "it would not fit even if the nodes were empty",
        "2 of 22 nodes are eligible",
        "20 nodes have taint kwok.x-k8s.io/node=fake:NoSchedule that the pods do not tolerate",
    ]


def test_an_exclusion_for_some_of_the_pods_names_these_pods() -> None:
    capacity = ledger(node("a", cpu="1"), node("b", cpu="1", labels={"pool": "gpu"}))
    builder = job().master(cpu="1").worker(3, cpu="1", spec={"nodeSelector": {"pool": "gpu"}})
    message = verdict_of(place(builder.members(), capacity, limits())).message
    assert message.split("; ")[-2:] == [
        "1 of 2 nodes is eligible for 3 of 4 pods",
        "1 node does not have label pool=gpu, which nodeSelector requires",
    ]


def test_pods_that_must_be_apart_need_hosts_with_different_names() -> None:
    capacity = ledger(node("a"), node("b", labels={"kubernetes.io/hostname": "a"}))
    message = verdict_of(place(job().worker(2, spec=TRAIN).members(), capacity, limits())).message
    assert "none of 2 nodes is eligible; 2 nodes without a kubernetes.io/hostname label" in message


def test_no_more_than_three_causes_are_named_the_most_frequent_first() -> None:
    taints = {"a": 1, "b": 2, "c": 3, "d": 4}
    capacity = ledger(
        *(
            node(f"{key}{number}", taints=[{"key": key, "effect": "NoSchedule"}])
            for key, count in taints.items()
            for number in range(count)
        )
    )
    message = verdict_of(place(job().worker().members(), capacity, limits())).message
    assert re.findall(r"(\d) nodes have taint (\w)", message) == [
        ("4", "d"),
        ("3", "c"),
        ("2", "b"),
    ]
    assert message.endswith("; 1 more node is excluded")
    avoid = replace(limits(), on_nodes=(Excluded(frozenset({"free"})),))
    capacity.set_node(node("free"))
    message = verdict_of(place(job().worker().members(), capacity, avoid)).message
    assert "1 node left out after failed attempts" in message


IN_PIECES: dict[str, tuple[JobBuilder, int | None, str]] = {
    "two pods that no single node holds": (job().worker(2, cpu="3", gpus=1), 1, "no single node"),
    "one of two pods fits": (job().worker(2, cpu="3", gpus=1), None, "over the eligible nodes"),
    "on at most two nodes": (
        job().worker(2, cpu="3", gpus=1),
        2,
        "over 2 of the eligible nodes fits",
    ),
}


@pytest.mark.parametrize(("builder", "max_nodes", "why"), IN_PIECES.values(), ids=IN_PIECES)
def test_the_message_if_there_is_enough_of_each_resource_alone(
    builder: JobBuilder, max_nodes: int | None, why: str
) -> None:
    capacity = ledger(node("a", cpu="7", gpus=1), node("b", cpu="2", gpus=3))
    verdict = verdict_of(place(builder.members(), capacity, limits(max_nodes=max_nodes)))
    assert why in verdict.message


EMPTY: dict[str, tuple[int, str]] = {
    "used capacity will be free later": (8, REASON_NO_ROOM),
    "capacity that no node has is never free": (9, REASON_TOO_BIG),
}


@pytest.mark.parametrize(("pods", "want"), EMPTY.values(), ids=EMPTY)
def test_the_message_says_whether_an_empty_cluster_would_suffice(pods: int, want: str) -> None:
    capacity = ledger(node("a", gpus=8), used={"a": {GPU: "1"}})
    verdict = verdict_of(place(job().worker(pods, gpus=1).members(), capacity, limits()))
    assert verdict.reason == want
    assert ("even if the nodes were empty" in verdict.message) is (want == REASON_TOO_BIG)


def test_the_message_of_a_single_pod_states_its_request_and_the_nodes() -> None:
    capacity = ledger(node("a", gpus=8), node("b", gpus=1, labels={"pool": "x"}))
    builder = job().worker(1, gpus=2, cpu="1", spec={"nodeSelector": {"pool": "x"}})
    message = verdict_of(place(builder.members(), capacity, limits())).message
    assert message.startswith("1 pod needs 1 cpu, 2 nvidia.com/gpu; ")
    assert numbers(r"(\d) of (\d) nodes is eligible", message) == (1, 2)
    assert numbers(r"(\d) nvidia.com/gpu free, (\d)", message) == (1, 1)


FIRST = "PyTorchJob team/first"
KEPT: dict[str, tuple[int, int, int | None, str]] = {
    "all free GPUs": (6, 8, None, f"6 {GPU} (kept for {FIRST}) free, 8 {GPU} short"),
    "some free GPUs": (4, 8, None, f"6 {GPU} (4 {GPU} kept for {FIRST}) free, 6 {GPU} short"),
    "the free GPUs of one node": (
        6,
        8,
        1,
        f"the freest node has 4 {GPU} (kept for {FIRST}), 8 {GPU} short",
    ),
    "no GPUs": (0, 8, None, f"; 6 {GPU} free, 2 {GPU} short"),
}


@pytest.mark.parametrize(("to_reserve", "pods", "max_nodes", "want"), KEPT.values(), ids=KEPT)
def test_reserved_capacity_is_named_as_kept_for_its_job(
    to_reserve: int, pods: int, max_nodes: int | None, want: str
) -> None:
    capacity = ledger(node("a", gpus=4), node("b", gpus=4), used={"b": {GPU: "2"}})
    for name, free in (("a", 4), ("b", 2)):
        if reserved := min(to_reserve, free):
            capacity.claim(("reserved", name), Claim(name, {GPU: reserved}, job="first", kept=True))
        to_reserve -= reserved
    placement = place(
        *(job().worker(pods, gpus=1).members(), capacity, limits(max_nodes=max_nodes)),
        reserved=([("reserved", "a"), ("reserved", "b")], FIRST),
    )
    assert want in verdict_of(placement).message


def test_the_message_of_pods_that_fit_only_reserved_capacity_names_it() -> None:
    capacity = ledger(node("a", gpus=4), node("b", gpus=2))
    capacity.claim("reserved", Claim("a", {GPU: 3}, job="first", kept=True))
    placement = place(
        job().worker(2, gpus=3).members(), capacity, limits(), reserved=(["reserved"], FIRST)
    )
    assert f"6 {GPU} (3 {GPU} kept for {FIRST}) free" in verdict_of(placement).message
    placement = place(
        job().worker(1, gpus=3).members(), capacity, limits(), reserved=(["reserved"], FIRST)
    )
    has = f"the freest node has 4 {GPU} (2 {GPU} kept for {FIRST})"
    assert f"one pod needs 3 {GPU}, {has}" in verdict_of(placement).message


MIG, SEVERAL = "it is split by MIG", "NVIDIA's device plugin allocates it to several pods at once"
UNSHAREABLE = replace(plain_node("a", cards=3), troubles=(SEVERAL, MIG, SEVERAL))


def as_shared(builder: JobBuilder) -> list[Member]:
    return members_of(as_sharing(builder.suspended().build(), None))


SHARES: dict[str, tuple[JobBuilder, str]] = {
    "one card, with memory": (
        sharing("0.3", memory="16Gi"),
        "1 pod needs 1 GPU share of 0.3 (16Gi, 0.2 beside high priority); "
        "0 GPU shares of 0.3 (16Gi, 0.2 beside high priority) free, "
        "1 GPU share of 0.3 (16Gi, 0.2 beside high priority) short",
    ),
    "several": (
        sharing("0.25", replicas=2, priority="high"),
        "2 pods need 2 GPU shares of 0.25 (high priority) together; "
        "0 GPU shares of 0.25 (high priority) free",
    ),
}


@pytest.mark.parametrize(("builder", "want"), SHARES.values(), ids=SHARES)
def test_the_message_names_the_terms_of_a_share(builder: JobBuilder, want: str) -> None:
    full = Ledger([sharing_node("b", cards=1)])
    full.claim("whole", Claim("b", {GPU: 1}))
    assert verdict_of(place(as_shared(builder), full, limits())).message.startswith(want)


def test_a_shortage_of_cards_names_why_cards_cannot_be_shared() -> None:
    members = as_shared(sharing("0.5"))
    verdict = verdict_of(place(members, Ledger([UNSHAREABLE]), limits()))
    want = f"2 slots cannot be shared: {SEVERAL}; 1 slot cannot be shared: {MIG}"
    assert want in verdict.message


def test_nodes_with_gpus_by_dra_alone_are_named_as_such_but_full_nodes_are_not() -> None:
    bare = {name: n for name, n in sharing_node("b").allocatable.items() if name != GPU}
    members = as_shared(sharing("0.5"))
    verdict = verdict_of(place(members, Ledger([Node("b", bare), node("c")]), limits()))
    assert verdict.reason == REASON_TOO_BIG
    want = f"1 of the eligible nodes has slots but no {GPU}, which reserves a GPU"
    assert want in verdict.message
    full = Ledger([sharing_node("b", cards=1)])
    full.claim("whole", Claim("b", {GPU: 1}))
    verdict = verdict_of(place(members, full, limits()))
    assert verdict.reason == REASON_NO_ROOM
    assert "DRA" not in verdict.message


NOT_SHARING: dict[str, JobBuilder] = {
    "it shares no GPUs": job().worker(1, gpus=9),
    "their node is not eligible": job()
    .worker(1, gpus=1, spec={"nodeSelector": {"x": "y"}})
    .annotated(GPU_SHARE, "0.5"),
}


@pytest.mark.parametrize("builder", NOT_SHARING.values(), ids=NOT_SHARING)
def test_other_jobs_are_not_told_why_cards_cannot_be_shared(builder: JobBuilder) -> None:
    verdict = verdict_of(place(as_shared(builder), Ledger([UNSHAREABLE]), limits()))
    assert "cannot be shared" not in verdict.message
