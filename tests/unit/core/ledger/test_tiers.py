"""What claims take by tier equals what they take one by one."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kfext.core.ledger import ledger as ledger_module
from kfext.core.ledger.claim import Claim
from kfext.core.ledger.ledger import Ledger
from kfext.core.ledger.tiers import Leaves, Tier, tier_of
from tests.builders import node

claims = st.builds(
    Claim,
    node=st.sampled_from("abc"),
    requests=st.dictionaries(st.sampled_from(["cpu", "memory", "x"]), st.integers(1, 9)),
    job=st.sampled_from(["", "one", "two"]),
    priority=st.sampled_from([None, 0, 5]),
)
acts = st.lists(
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
    "everybody": lambda tier: True,
    "nobody": lambda tier: False,
}


def test_the_tier_of_a_claim() -> None:
    assert tier_of(Claim("a", {})) == Tier(of_job=False, priority=None)
    assert tier_of(Claim("a", {}, job="uid", priority=7)) == Tier(of_job=True, priority=7)
    assert tier_of(Claim("a", {}, reserves=0, priority=9)) == Tier(of_job=True, priority=9)


@example(
    acts=[("claim", 0, Claim("a", {"cpu": 1}, job="one")), ("go", "a"), ("come", "a", "")],
    leaves="training jobs",
)
@example(
    acts=[("claim", 0, Claim("a", {"x": 1}, job="one")), ("come", "a", "x")],
    leaves="training jobs",
)
@given(acts=acts, leaves=st.sampled_from(sorted(LEAVES)))
def test_a_ledger_without_some_tiers_is_one_on_which_they_never_were(
    acts: Sequence[tuple[object, ...]], leaves: str
) -> None:
    on, leave = Ledger([node(name) for name in "abc"]), LEAVES[leaves]
    for act in acts:
        match act:
            case ("claim", key, Claim() as claim):
                on.claim(key, claim)
            case ("drop", key):
                on.drop(key)
            case ("come", str(name), str(device)):
                on.set_node(node(name, **({device: "9"} if device else {})))
            case ("go", str(name)):
                on.remove_node(name)
    want = Ledger(one for one in on.nodes if one is not None)
    for key, claim in on.claims().items():
        if not leave(tier_of(claim)):
            want.claim(key, claim)
    left = on.without(leave)
    # A ledger goes on to count what no node has any more; another has never heard of it.
    counted = sorted({name for one in want.nodes if one is not None for name in one.allocatable})
    assert on.would_free(leave) == (len(want) < len(on))
    for one in want.nodes:
        assert one is not None
        for found, expected in (
            (left.free(counted), want.free(counted)),
            (left.scored_load(), want.scored_load()),
        ):
            row, other = left.row(one.name), want.row(one.name)
            assert (found[:, row] == expected[:, other]).all()


@pytest.mark.parametrize("pods", [10, 1000])
def test_leaving_some_out_looks_at_no_claim(pods: int, monkeypatch: pytest.MonkeyPatch) -> None:
    on = Ledger([node(name) for name in "abc"])
    for number in range(pods):
        on.claim(number, Claim("abc"[number % 3], {"cpu": 1}, job="uid" if number % 2 else ""))
    looked: list[Claim] = []
    monkeypatch.setattr(ledger_module, "tier_of", looked.append)
    left = on.without(lambda tier: tier.of_job)
    assert left.free(["cpu"]).sum() < on.allocatable(["cpu"]).sum()
    assert on.would_free(lambda tier: tier.of_job)
    assert looked == []
