"""The capacity that is reserved for a job, and the capacity that other jobs may use."""

import math
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import Limits, limits_of, members_of
from kfext.core.placement.place import place
from kfext.core.queue.occupants import Need, Occupants
from kfext.core.queue.reservation import Reservation, reservation_on, reserve
from kfext.core.settings.resolve import settings_of
from kfext.model.gang_terms import GangTerm
from kfext.model.limit import Excluded
from kfext.model.namespace import Namespace
from kfext.model.verdict import Verdict
from tests.builders import Raw, apart, job, ledger, limits, node, together
from tests.setting_samples import WELL_FORMED
from tests.unit.core.queue.cluster import GPU, Use, cluster

FOUR = Need({GPU: 4})


def reservation_for(
    capacity: Ledger,
    needs: Mapping[str, int],
    *,
    ends: Mapping[str, float] | None = None,
    ignoring: Collection[Hashable] = (),
) -> Reservation:
    """The reservation of a gang that will take these GPUs of each node; `total` is always FOUR."""
    wanted = {name: Need({GPU: count}) for name, count in needs.items()}
    occupants = Occupants(wanted, capacity, ignoring=ignoring)
    return reservation_on("head", occupants, needs=wanted, total=FOUR, ends=ends or {})


@dataclass(frozen=True)
class NodesCase:
    """A cluster of nodes with 8 GPUs each, and the reservation of a gang on some nodes.

    `needs`: the GPUs that the gang needs, by node.
    `kept`: the reserved GPUs, by node; nodes without any are omitted.
    `to_free`: the GPUs of the awaited jobs on these nodes, as a multiple of 4.
    """

    use: Use
    needs: Mapping[str, int]
    waits_for: tuple[str, ...]
    kept: Mapping[str, int] = field(default_factory=dict)
    ends: Mapping[str, float] = field(default_factory=dict)
    until: float = math.inf
    to_free: float = 0.0


NODES_CASES: dict[str, NodesCase] = {
    "enough GPUs are free, so the gang waits for no job": NodesCase(
        use={"a": {"x": 2}}, needs={"a": 4}, waits_for=(), kept={"a": 4}
    ),
    "a job with a known end before a smaller job": NodesCase(
        use={"a": {"x": 3, "y": 5}},
        needs={"a": 3},
        ends={"y": 70.0},
        waits_for=("y",),
        until=70.0,
        to_free=1.25,
    ),
    "the job with the earliest known end": NodesCase(
        use={"a": {"x": 4, "y": 4}},
        needs={"a": 4},
        ends={"x": 90.0, "y": 70.0},
        waits_for=("y",),
        until=70.0,
        to_free=1.0,
    ),
    "the smallest job without a known end": NodesCase(
        use={"a": {"x": 6, "y": 2}}, needs={"a": 2}, waits_for=("y",), to_free=0.5
    ),
    "no job is waited for if it is not needed": NodesCase(
        use={"a": {"x": 1, "y": 5, "z": 2}}, needs={"a": 5}, waits_for=("y",), to_free=1.25
    ),
    "of several unnecessary jobs, the largest is dropped first": NodesCase(
        use={"a": {"x": 1, "y": 2, "z": 3, "": 2}},
        needs={"a": 4},
        waits_for=("x", "z"),
        to_free=1.0,
    ),
    "only capacity that is free now is reserved": NodesCase(
        use={"a": {"x": 3, "": 3}}, needs={"a": 4}, waits_for=("x",), kept={"a": 1}, to_free=0.75
    ),
    "a job that is on two of the nodes is one job": NodesCase(
        use={"a": {"x": 8}, "b": {"x": 6, "y": 2}},
        needs={"a": 2, "b": 2},
        waits_for=("x",),
        to_free=3.5,
    ),
    "until the end of the last job": NodesCase(
        use={"a": {"x": 8}, "b": {"y": 8}},
        needs={"a": 2, "b": 2},
        ends={"x": 50.0, "y": 70.0},
        waits_for=("x", "y"),
        until=70.0,
        to_free=4.0,
    ),
    "an unknown end if the end of a job is unknown": NodesCase(
        use={"a": {"x": 8}, "b": {"y": 8}},
        needs={"a": 2, "b": 2},
        ends={"x": 50.0},
        waits_for=("x", "y"),
        to_free=4.0,
    ),
}


@pytest.mark.parametrize("case", NODES_CASES.values(), ids=NODES_CASES)
def test_the_awaited_jobs_and_the_reserved_capacity(case: NodesCase) -> None:
    reservation = reservation_for(cluster(case.use), case.needs, ends=case.ends)
    assert reservation.job == "head"
    assert reservation.nodes == tuple(sorted(case.needs))
    assert reservation.waits_for == case.waits_for
    assert gpus(reservation) == case.kept
    assert (reservation.until, reservation.to_free) == (case.until, case.to_free)
    assert all(claim.job == "head" for claim in reservation.claims.values())


def test_the_claims_of_the_previous_reservation_do_not_count() -> None:
    capacity = cluster({"a": {"x": 5}})
    capacity.claim("before", Claim("a", {GPU: 3}, job="other head"))
    assert reservation_for(capacity, {"a": 3}, ignoring=["before"]).waits_for == ()
    assert reservation_for(capacity, {"a": 4}, ignoring=["before"]).waits_for == ("x",)
    assert reservation_for(capacity, {"a": 3}).waits_for == ("other head",)


@pytest.mark.parametrize("pods", [1, 5000])
def test_amounts_beyond_64_bits_are_cut(pods: int) -> None:
    capacity = cluster({"a": {"": 1}})
    for number in range(pods):
        capacity.claim(("pod", number), Claim("a", {GPU: 2**64}, job="x"))
    reservation = reservation_for(capacity, {"a": 8})
    assert reservation.waits_for == ("x",)
    assert math.isfinite(reservation.to_free)


some_uses = st.dictionaries(
    st.sampled_from("ab"),
    st.dictionaries(st.sampled_from(["", *"wxyz"]), st.integers(1, 3), max_size=4),
    min_size=1,
)


@given(
    use=some_uses,
    wanted=st.dictionaries(st.sampled_from("ab"), st.integers(1, 12), min_size=1),
    ends=st.dictionaries(st.sampled_from("wxyz"), st.floats(0, 99)),
)
def test_the_awaited_jobs_free_enough_and_each_is_necessary(
    use: Use, wanted: dict[str, int], ends: dict[str, float]
) -> None:
    capacity = cluster(use, gpus=12)
    # Each need fits its node once all jobs have ended; pods of no job stay.
    needs = {name: min(wanted.get(name, 1), 12 - held.get("", 0)) for name, held in use.items()}
    reservation = reservation_for(capacity, needs, ends=ends)

    def fits(without: Collection[str]) -> bool:
        left = {
            name: {uid: gpus[uid] for uid in gpus if uid not in without}
            for name, gpus in use.items()
        }
        after = cluster(left, gpus=12)
        return all(after.free([GPU])[0, after.row(name)] >= count for name, count in needs.items())

    assert fits(reservation.waits_for)
    for spared in reservation.waits_for:
        assert not fits([uid for uid in reservation.waits_for if uid != spared])


BACKFILLS: dict[str, tuple[float, float, bool]] = {
    "a job that ends earlier": (100.0, 90.0, True),
    "a job that ends at the same time": (100.0, 100.0, True),
    "a job that ends later": (100.0, 101.0, False),
    "a job without a known end": (100.0, math.inf, False),
    "no job, while a backfilled job is late": (-math.inf, 90.0, False),
}


@pytest.mark.parametrize(("until", "end", "want"), BACKFILLS.values(), ids=BACKFILLS.keys())
def test_D5_which_jobs_may_backfill(until: float, end: float, want: bool) -> None:
    reservation = Reservation(
        job="head", nodes=("a",), waits_for=("x",), to_free=1.0, claims={}, backfill_until=until
    )
    assert reservation.admits_backfill(end) is want


def reserved(
    ledger: Ledger,
    pods: int,
    *,
    gpus: int = 1,
    ends: Mapping[str, float] | None = None,
    max_nodes: int | None = None,
) -> Reservation | None:
    head = job(uid="head").worker(pods, gpus=gpus).build()
    return reserve("head", members_of(head), ledger, limits(max_nodes=max_nodes), ends=ends or {})


def gpus(reservation: Reservation) -> dict[str, int]:
    """The GPUs that younger jobs must not use, by node."""
    return {claim.node: claim.requests.get(GPU, 0) for claim in reservation.claims.values()}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A cluster of nodes with 8 GPUs each, and the reservation of a gang of `pods` with a GPU each.

    `kept`: the reserved GPUs by node, 0 on nodes of the reservation where no GPU is free.
    """

    use: Use
    pods: int = 4
    nodes: tuple[str, ...] = ("a",)
    waits_for: tuple[str, ...]
    kept: Mapping[str, int] = field(default_factory=lambda: {"a": 0})
    ends: Mapping[str, float] = field(default_factory=dict)
    until: float = math.inf
    max_nodes: int | None = None


CASES = {
    "the node where the least must be freed": Case(
        use={"a": {"x": 6}, "b": {"y": 5}, "c": {"z": 8}},
        max_nodes=1,
        nodes=("b",),
        waits_for=("y",),
        kept={"b": 0},
    ),
    "the job that suffices by itself": Case(use={"a": {"x": 1, "y": 1, "z": 5}}, waits_for=("z",)),
    "the smallest sufficient jobs, so that little is unused": Case(
        use={"a": {"x": 2, "y": 2, "z": 4}}, waits_for=("x", "y")
    ),
    "not the node where a pod of no job would have to end": Case(
        use={"a": {"": 5}, "b": {"y": 8}}, nodes=("b",), waits_for=("y",), kept={"b": 0}
    ),
    "several nodes, if less must be freed there than on a single node": Case(
        use={"a": {"x": 8}, "b": {"u": 1, "v": 1, "w": 3}, "c": {"y": 2, "z": 4}},
        pods=8,
        nodes=("b", "c"),
        waits_for=("w",),
        kept={"b": 3, "c": 2},
    ),
    "a single node, if only one is allowed": Case(
        use={"a": {"x": 8}, "b": {"y": 5, "": 1}, "c": {"z": 5, "": 1}},
        pods=8,
        max_nodes=1,
        waits_for=("x",),
    ),
    "until the end of the last job that must end": Case(
        use={"a": {"x": 4, "y": 4}},
        pods=8,
        waits_for=("x", "y"),
        ends={"x": 300.0, "y": 500.0},
        until=500.0,
    ),
    "the first by name of equal nodes": Case(
        use={"c": {"x": 8}, "b": {"y": 8}, "a": {"z": 8}}, pods=2, max_nodes=1, waits_for=("z",)
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_D5_capacity_is_reserved_for_the_head_of_the_queue(case: Case) -> None:
    reservation = reserved(cluster(case.use), case.pods, ends=case.ends, max_nodes=case.max_nodes)
    assert reservation is not None
    assert reservation.nodes == case.nodes
    assert reservation.waits_for == case.waits_for
    assert {name: gpus(reservation).get(name, 0) for name in reservation.nodes} == dict(case.kept)
    assert reservation.until == case.until


def test_no_capacity_is_reserved_where_the_end_of_all_jobs_would_free_too_little() -> None:
    assert reserved(cluster({"a": {"": 6, "x": 2}}), 4) is None


def test_pods_with_one_host_port_have_capacity_reserved_on_a_node_each() -> None:
    head = members_of(job(uid="head").worker(2, gpus=1, ports=[80]).build())
    capacity = cluster({"a": {"x": 8}, "b": {"y": 8}})
    reservation = reserve("head", head, capacity, limits(), ends={})
    assert reservation is not None
    assert reservation.nodes == ("a", "b")
    assert reserve("head", head, capacity, limits(max_nodes=1), ends={}) is None


def test_pods_that_must_be_apart_have_capacity_reserved_on_a_node_each() -> None:
    spec = apart(GangTerm("train"))
    head = members_of(job(uid="head").worker(2, gpus=1, spec=spec).build())
    capacity = cluster({"a": {"x": 8}, "b": {"y": 8}})
    reservation = reserve("head", head, capacity, limits(), ends={})
    assert reservation is not None
    assert reservation.nodes == ("a", "b")
    assert reserve("head", head, capacity, limits(max_nodes=1), ends={}) is None


def test_pods_that_must_be_together_have_capacity_reserved_on_one_node() -> None:
    spec = together(GangTerm("train"))
    builders = [job(uid="head").worker(8, gpus=1, spec=terms) for terms in (spec, None)]
    capacity = cluster({"a": {"x": 8}, "b": {"u": 1, "v": 1, "w": 3}, "c": {"y": 2, "z": 4}})
    results = [
        reserve("head", builder.members(), capacity, limits(), ends={}) for builder in builders
    ]
    assert [reservation.nodes for reservation in results if reservation] == [("b",), ("b", "c")]


HEAD_WITH_PORT_80 = members_of(job(uid="head").worker(1, gpus=1, ports=[80]).build())


def claim_port_80(capacity: Ledger, node: str, uid: str) -> None:
    """Claim port 80 of a node for a pod of a job, or of no job."""
    capacity.claim(("listens", node), Claim(node, {"pods": 1}, (("TCP", 80),), job=uid))


def test_no_capacity_is_reserved_where_a_pod_of_no_job_has_the_host_port() -> None:
    capacity = cluster({"a": {"x": 1}, "b": {"y": 8}})
    claim_port_80(capacity, "a", "")
    reservation = reserve("head", HEAD_WITH_PORT_80, capacity, limits(), ends={})
    assert reservation is not None
    assert reservation.nodes == ("b",)
    claim_port_80(capacity, "b", "")
    assert reserve("head", HEAD_WITH_PORT_80, capacity, limits(), ends={}) is None


def test_a_job_with_the_host_port_of_the_head_is_awaited() -> None:
    capacity = cluster({"a": {"x": 1, "y": 2}})
    claim_port_80(capacity, "a", "x")
    reservation = reserve("head", HEAD_WITH_PORT_80, capacity, limits(), ends={})
    assert reservation is not None
    assert (reservation.nodes, reservation.waits_for) == (("a",), ("x",))


def test_unlike_pods_with_one_host_port_have_capacity_reserved_on_a_node_each() -> None:
    head = job("TFJob", uid="head").ps(1, gpus=1, ports=[80]).worker(1, gpus=2, ports=[80])
    capacity = cluster({"a": {"x": 8}, "b": {"y": 8}})
    reservation = reserve("head", members_of(head.build()), capacity, limits(), ends={})
    assert reservation is not None
    assert reservation.nodes == ("a", "b")


def test_no_capacity_is_reserved_for_a_gang_that_fits_now() -> None:
    assert reserved(cluster({"a": {"x": 2}}), 4) is None
    assert reserved(cluster({"a": {"x": 2}}), 7) is not None


def test_no_capacity_is_reserved_on_a_node_that_failed_to_bind_the_pods() -> None:
    head = members_of(job(uid="head").worker(2, gpus=1).build())
    capacity = cluster({"a": {"x": 8}, "b": {"y": 8}})
    reservation = reserve("head", head, capacity, limits(excluded=["a"]), ends={})
    assert reservation is not None
    assert reservation.nodes == ("b",)


def test_the_claims_of_the_previous_reservation_are_free_for_the_next() -> None:
    head = members_of(job(uid="head").worker(4, gpus=1).build())
    capacity = cluster({"a": {"x": 6}, "b": {"y": 7}})
    capacity.claim("before", Claim("a", {GPU: 2}, job="head"))
    where = {
        ignoring: reservation.nodes
        for ignoring in ((), ("before",))
        if (
            reservation := reserve(
                "head", head, capacity, limits(max_nodes=1), ends={}, ignoring=ignoring
            )
        )
    }
    assert where == {(): ("b",), ("before",): ("a",)}


uses = st.dictionaries(
    st.sampled_from("abcd"),
    st.dictionaries(st.sampled_from(["", *"vwxyz"]), st.integers(1, 4), max_size=3),
    min_size=1,
)


@given(use=uses, pods=st.integers(1, 12))
def test_a_reservation_never_claims_more_than_is_free(use: Use, pods: int) -> None:
    capacity = cluster(use, gpus=16)
    reservation = reserved(capacity, pods)
    if reservation is not None:
        for key, claim in reservation.claims.items():
            capacity.claim(key, claim)
        assert (capacity.free([GPU, "pods"]) >= 0).all()


LABELLED: dict[str, Any] = {"labels": {"pool": "a"}}
TAINTED: dict[str, Any] = {"taints": [{"key": "pool", "effect": "NoSchedule"}]}
# The limits of each setting by itself: a reservation must respect all limits of `place`.
WITHIN = sorted(
    {limits(max_nodes=most) for most in (2, 3)}
    | {
        limits_of(
            settings_of(job().annotated(key, value).build(), Namespace("team"), ()),
            excluded=excluded,
        )
        for key, value in WELL_FORMED.items()
        for excluded in ((), ("a",))
    },
    key=repr,
)


@settings(max_examples=200)
@given(
    use=uses,
    pods=st.integers(1, 48),
    within=st.sampled_from(WITHIN),
    spec=st.sampled_from([None, None, apart(GangTerm("train")), {"nodeSelector": {"pool": "a"}}]),
    other=st.dictionaries(st.sampled_from("abcd"), st.sampled_from([LABELLED, TAINTED])),
)
def test_the_head_fits_once_the_jobs_that_it_waits_for_have_ended(
    use: Use, pods: int, within: Limits, spec: Raw | None, other: dict[str, dict[str, Any]]
) -> None:
    capacity = cluster(use, gpus=16)
    for name in other.keys() & use.keys():
        capacity.set_node(node(name, gpus=16, **other[name]))
    pods = min(pods, 5) if spec else pods  # five pods apart do not fit four nodes
    head = members_of(job(uid="head").worker(pods, gpus=1, spec=spec).build())
    reservation = reserve("head", head, capacity, within, ends={})
    if reservation is not None:
        event(f"reserved on {len(reservation.nodes)} nodes")
        assert within.allow(reservation.nodes)
        for key, claim in capacity.claims().items():
            if claim.job in reservation.waits_for:
                capacity.drop(key)
        others = tuple(name for name in use if name not in reservation.nodes)
        on_these_nodes = replace(within, on_nodes=(*within.on_nodes, Excluded(frozenset(others))))
        assert not isinstance(place(head, capacity, on_these_nodes), Verdict)


def test_a_reservation_respects_a_limit_on_the_number_of_nodes() -> None:
    """Without the limit, three nodes are reserved, because most is free there."""
    capacity = cluster({"a": {"v": 4}, "b": {"v": 4}, "c": {"w": 4}}, gpus=8)
    head = members_of(job(uid="head").worker(14, gpus=1).build())
    unlimited = reserve("head", head, capacity, limits(), ends={})
    assert unlimited is not None
    assert len(unlimited.nodes) == 3
    reservation = reserve("head", head, capacity, limits(max_nodes=2), ends={})
    assert reservation is not None
    assert len(reservation.nodes) == 2
    assert len(reservation.waits_for) > 0


def test_no_more_than_the_requests_is_reserved_for_pods_that_can_use_more_cpu() -> None:
    capacity = ledger(*(node(name, cpu="8") for name in "abc"))
    for name in "abc":
        capacity.claim(name, Claim(name, {"cpu": 4000}, job=f"on-{name}"))
    head = members_of(job(uid="head").worker(10, cpu="1", cpu_limit="").build())
    within = limits(max_nodes=2, assumed_burst=4000)  # with these bursts two nodes are too few
    reservation = reserve("head", head, capacity, within, ends={})
    assert reservation is not None
    assert len(reservation.nodes) == 2


@given(use=uses, pods=st.integers(1, 12), where=st.sampled_from("abcd"))
def test_D5_jobs_that_start_around_a_reservation_do_not_delay_it(
    use: Use, pods: int, where: str
) -> None:
    """A younger job claims all free GPUs of a node; the head fits as soon as without it."""
    capacity = cluster(use, gpus=16)
    reservation = reserved(capacity, pods)
    if reservation is None or where not in use:
        return
    for key, claim in reservation.claims.items():
        capacity.claim(key, claim)
    left = int(capacity.free([GPU])[0, capacity.row(where)])
    capacity.claim("young", Claim(node=where, requests={GPU: left}, job="young"))
    for key, claim in capacity.claims().items():
        if claim.job in reservation.waits_for or key in reservation.claims:
            capacity.drop(key)
    head = members_of(job(uid="head").worker(pods, gpus=1).build())
    others = [name for name in use if name not in reservation.nodes]
    assert not isinstance(place(head, capacity, limits(excluded=others)), Verdict)


@given(use=uses, pods=st.integers(1, 12))
def test_a_reservation_does_not_depend_on_the_order_of_objects(use: Use, pods: int) -> None:
    reversed_use = {name: dict([*use[name].items()][::-1]) for name in [*use][::-1]}
    assert reserved(cluster(use), pods) == reserved(cluster(reversed_use), pods)
