"""Claims by key and by node, and a ledger without some tiers of claims."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kfext.core.ledger import ledger as ledger_module
from kfext.core.ledger.claim import Claim, Claims, Leaves, Tier, tier_of
from kfext.core.ledger.ledger import Ledger
from kfext.model.gang_terms import Exclusive, GangTerm
from tests.builders import node

HTTP, DNS = ("TCP", 80), ("UDP", 53)
TRAIN = GangTerm("train", namespace="team")
EARLIER = Claim("a", {"cpu": 2, "memory": 5}, (HTTP,))

COVERS: dict[str, tuple[Claim, bool]] = {
    "the same": (EARLIER, True),
    "more of everything": (Claim("a", {"cpu": 3, "memory": 9}, (HTTP, DNS)), True),
    "a resource besides": (Claim("a", {"cpu": 2, "memory": 5, "gpu": 1}, (HTTP,)), True),
    "another owner": (Claim("a", EARLIER.requests, (HTTP,), "job", 7), True),
    "less of one resource": (Claim("a", {"cpu": 2, "memory": 4}, (HTTP,)), False),
    "a resource is missing": (Claim("a", {"cpu": 2}, (HTTP,)), False),
    "a port is missing": (Claim("a", EARLIER.requests), False),
    "another port": (Claim("a", EARLIER.requests, (DNS,)), False),
    "another node": (Claim("b", EARLIER.requests, (HTTP,)), False),
}


@pytest.mark.parametrize(("claim", "want"), COVERS.values(), ids=COVERS)
def test_which_claim_covers_an_earlier_claim(claim: Claim, want: bool) -> None:
    assert claim.covers(EARLIER) is want


def test_a_claim_with_a_gang_term_covers_an_equal_claim_without_it_but_not_the_reverse() -> None:
    apart = Claim("a", EARLIER.requests, (HTTP,), gang_terms=(TRAIN,))
    assert (apart.covers(EARLIER), EARLIER.covers(apart)) == (True, False)


some_claims = st.builds(
    Claim,
    node=st.sampled_from("abc"),
    requests=st.just({"cpu": 1}),
    host_ports=st.lists(st.sampled_from([HTTP, DNS]), unique=True).map(tuple),
    job=st.sampled_from(["", "x", "y"]),
    gang_terms=st.sampled_from([(), (TRAIN,)]),
)
some_changes = st.lists(st.tuples(st.integers(0, 5), st.none() | some_claims), max_size=30)


def after(changes: list[tuple[int, Claim | None]]) -> tuple[Claims, dict[int, Claim]]:
    """Set claims by key, and remove them with None; return the claims and a plain table of them."""
    claims, table = Claims(), dict[int, Claim]()
    for key, claim in changes:
        if key in table:
            assert claims.remove(key) == table.pop(key)
        if claim is not None:
            claims.add(key, claim)
            table[key] = claim
    return claims, table


def agrees(claims: Claims, table: dict[int, Claim], ignoring: set[int]) -> bool:
    """Whether every lookup of claims agrees with a scan of the table."""

    def scan(exclusive: Exclusive | None = None, node: str = "") -> list[Claim]:
        return [
            claim
            for key, claim in table.items()
            if key not in ignoring
            and (exclusive is None or exclusive in (*claim.host_ports, *claim.gang_terms))
            and (not node or claim.node == node)
        ]

    def same(actual: list[Claim], want: list[Claim]) -> bool:
        return sorted(map(repr, actual)) == sorted(map(repr, want))

    return (
        len(claims) == len(table)
        and claims.all() == table
        and all(claims.get(key) == table.get(key) for key in range(6))
        and all(same(claims.on(node, ignoring=ignoring), scan(node=node)) for node in "abcd")
        and all(
            same(claims.with_any([term], ignoring=ignoring), scan(term))
            for term in (HTTP, DNS, TRAIN)
        )
    )


@given(changes=some_changes, ignoring=st.sets(st.integers(0, 5)))
def test_lookups_by_key_by_node_and_by_port_or_term_agree_with_a_scan(
    changes: list[tuple[int, Claim | None]], ignoring: set[int]
) -> None:
    claims, table = after(changes)
    assert agrees(claims, table, ignoring)


def test_a_claim_with_two_of_the_ports_is_found_once() -> None:
    claims = Claims()
    claims.add("both", Claim("a", {}, (HTTP, DNS)))
    assert len(claims.with_any([HTTP, DNS])) == 1


def test_an_absent_claim_cannot_be_removed() -> None:
    with pytest.raises(KeyError):
        Claims().remove("absent")


@pytest.mark.parametrize(
    "claim",
    [Claim("a", {}, gang_terms=(TRAIN, TRAIN)), Claim("a", {}, (HTTP, HTTP))],
    ids=["a term as affinity and as anti-affinity", "a port on two addresses of the node"],
)
def test_a_duplicate_term_of_a_pod_is_removed_once(claim: Claim) -> None:
    claims = Claims()
    claims.add("key", claim)
    assert claims.with_any(claim.exclusive) == [claim]
    assert claims.remove("key") == claim
    assert claims.with_any(claim.exclusive) == []


claims = st.builds(
    Claim,
    node=st.sampled_from("abc"),
    requests=st.dictionaries(st.sampled_from(["cpu", "memory", "x"]), st.integers(1, 9)),
    job=st.sampled_from(["", "one", "two"]),
    priority=st.sampled_from([None, 0, 5]),
)
events = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), st.integers(0, 5), claims),
        st.tuples(st.just("drop"), st.integers(0, 5)),
        st.tuples(st.just("come"), st.sampled_from("abc"), st.sampled_from(["", "x"])),
        st.tuples(st.just("go"), st.sampled_from("abc")),
    ),
    max_size=30,
)
LEAVES: dict[str, Leaves] = {
    "training jobs": lambda tier: tier.of_job,
    "pods of lower priority": lambda tier: tier.priority is not None and tier.priority < 5,
    "all pods": lambda tier: True,
    "no pod": lambda tier: False,
}


def test_the_tier_of_a_claim() -> None:
    assert tier_of(Claim("a", {})) == Tier(of_job=False, priority=None)
    assert tier_of(Claim("a", {}, job="uid", priority=7)) == Tier(of_job=True, priority=7)
    assert tier_of(Claim("a", {}, reserves=0, priority=9)) == Tier(of_job=True, priority=9)


@example(
    events=[("claim", 0, Claim("a", {"cpu": 1}, job="one")), ("go", "a"), ("come", "a", "")],
    leaves="training jobs",
)
@example(
    events=[("claim", 0, Claim("a", {"x": 1}, job="one")), ("come", "a", "x")],
    leaves="training jobs",
)
@given(events=events, leaves=st.sampled_from(sorted(LEAVES)))
def test_a_ledger_without_some_tiers_equals_a_ledger_that_never_had_them(
    events: Sequence[tuple[object, ...]], leaves: str
) -> None:
    capacity, leave = Ledger([node(name) for name in "abc"]), LEAVES[leaves]
    for event in events:
        match event:
            case ("claim", key, Claim() as claim):
                capacity.claim(key, claim)
            case ("drop", key):
                capacity.drop(key)
            case ("come", str(name), str(device)):
                capacity.set_node(node(name, **({device: "9"} if device else {})))
            case ("go", str(name)):
                capacity.remove_node(name)
    want = Ledger(known for known in capacity.nodes if known is not None)
    for key, claim in capacity.claims().items():
        if not leave(tier_of(claim)):
            want.claim(key, claim)
    reduced = capacity.without(leave)
    # A ledger still counts a resource that no node has any more; a new ledger does not know it.
    counted = sorted(
        {name for known in want.nodes if known is not None for name in known.allocatable}
    )
    assert capacity.would_free(leave) == (len(want) < len(capacity))
    for wanted in want.nodes:
        assert wanted is not None
        for result, expected in (
            (reduced.free(counted), want.free(counted)),
            (reduced.scored_load(), want.scored_load()),
        ):
            row, other = reduced.row(wanted.name), want.row(wanted.name)
            assert (result[:, row] == expected[:, other]).all()


@pytest.mark.parametrize("pods", [10, 1000])
def test_leaving_tiers_out_reads_no_claim(pods: int, monkeypatch: pytest.MonkeyPatch) -> None:
    capacity = Ledger([node(name) for name in "abc"])
    for number in range(pods):
        capacity.claim(
            number, Claim("abc"[number % 3], {"cpu": 1}, job="uid" if number % 2 else "")
        )
    read_claims: list[Claim] = []
    monkeypatch.setattr(ledger_module, "tier_of", read_claims.append)
    reduced = capacity.without(lambda tier: tier.of_job)
    assert reduced.free(["cpu"]).sum() < capacity.allocatable(["cpu"]).sum()
    assert capacity.would_free(lambda tier: tier.of_job)
    assert read_claims == []
