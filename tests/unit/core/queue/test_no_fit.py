"""The cache of refusals, by shape of job, and the freed capacity that may end a refusal."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import limits_of, members_of
from kfext.core.placement.place import place
from kfext.core.queue.no_fit import Gained, NoFit, NoFitCache, shape_of
from kfext.core.settings.table import Settings
from kfext.model.verdict import Verdict
from kfext.names import REASON_NO_ROOM
from tests.builders import JobBuilder, job, ledger, node

REFUSED = NoFit(Verdict(REASON_NO_ROOM, "8 short"))


def test_a_refusal_is_known_until_capacity_is_freed() -> None:
    no_fits, capacity = NoFitCache(), ledger(node("a", cpu="8"))
    assert no_fits.known("shape", capacity) is None
    no_fits.add("shape", REFUSED, capacity)
    assert no_fits.known("shape", capacity) is REFUSED
    assert no_fits.known("another", capacity) is None
    capacity.claim("more", Claim("a", {"cpu": 1000}))
    assert no_fits.known("shape", capacity) is REFUSED
    capacity.drop("more")
    assert no_fits.known("shape", capacity) is None
    assert no_fits.known("shape", capacity) is None, "it stays forgotten"


def test_a_refusal_because_of_other_claims_is_known_until_the_next_claim() -> None:
    no_fits, capacity = NoFitCache(), ledger(node("a", cpu="8"))
    refused = NoFit(Verdict(REASON_NO_ROOM, "8 short"), would_fit=True)
    assert no_fits.known("shape", capacity) is None
    no_fits.add("shape", refused, capacity)
    assert no_fits.known("shape", capacity) is refused
    capacity.claim("more", Claim("a", {"cpu": 1000}))
    assert no_fits.known("shape", capacity) is None


SAME: dict[str, JobBuilder] = {
    "another name": job(name="other", uid="uid-2").worker(3, cpu="1"),
    "an earlier creation": job().worker(3, cpu="1").created(-100),
    "other settings": job().worker(3, cpu="1").annotated("kfext.dev/metrics", "off"),
}
OTHER: dict[str, JobBuilder] = {
    "more replicas": job().worker(4, cpu="1"),
    "larger pods": job().worker(3, cpu="2"),
    "another resource": job().worker(3, cpu="1", gpus=1),
    "a node selector": job().worker(3, cpu="1", spec={"nodeSelector": {"zone": "a"}}),
    "a host port": job().worker(3, cpu="1", ports=[80]),
    "a second replica type": job().master(cpu="1").worker(3, cpu="1"),
    "another job kind": job("TFJob").ps(3, cpu="1"),
}
THREE = shape_of(job().worker(3, cpu="1").build())


@pytest.mark.parametrize("builder", SAME.values(), ids=SAME)
def test_jobs_with_equal_requests_have_one_shape(builder: JobBuilder) -> None:
    assert shape_of(builder.build()) == THREE


@pytest.mark.parametrize("builder", OTHER.values(), ids=OTHER)
def test_jobs_with_other_requests_have_another_shape(builder: JobBuilder) -> None:
    assert shape_of(builder.build()) != THREE


def test_burstable_and_guaranteed_pods_have_different_shapes() -> None:
    shapes = {
        shape_of(job().worker(3, cpu="1", memory="1Gi", guaranteed=limited).build())
        for limited in (True, False)
    }
    assert len(shapes) == 2


def crowded() -> Ledger:
    """Node `a` has 8 CPUs, 6 used by a pod of priority 5, and 2 GPUs, one of them held."""
    ledger = Ledger([node("full", cpu="4"), node("a", cpu="8", gpus=2)])
    ledger.claim("low", Claim("a", {"cpu": 6000, "pods": 1}, priority=5))
    ledger.claim("kept", Claim("a", {"nvidia.com/gpu": 1}, job="other", kept=True))
    return ledger


def master_and_workers() -> JobBuilder:
    return job().group("Master", 1, cpu="1").worker(4, cpu="8")


HELPED: dict[str, tuple[JobBuilder, int | None, bool]] = {
    "a pod fits": (job().worker(4, cpu="2"), None, True),
    "no pod fits": (job().worker(4, cpu="3"), None, False),
    "a pod of one type fits": (master_and_workers(), None, True),
    "a resource is missing": (job().worker(1, cpu="1", gpus=3), None, False),
    "a GPU that is held for another job counts": (job().worker(1, cpu="1", gpus=2), None, True),
    "a pod that it may preempt counts": (job().worker(4, cpu="8"), 6, True),
    "a pod of equal priority does not count": (job().worker(4, cpu="8"), 5, False),
}


@pytest.mark.parametrize(("builder", "preempting", "want"), HELPED.values(), ids=HELPED)
def test_whether_freed_capacity_may_help_a_job(
    builder: JobBuilder, preempting: int | None, *, want: bool
) -> None:
    gained = Gained(crowded(), [1], ignoring=["kept"])
    assert gained.may_help(builder.build().groups, preempting=preempting) is want


def test_nothing_helps_if_nothing_was_freed() -> None:
    assert not Gained(crowded(), []).may_help(job().build().groups)


def test_only_nodes_with_freed_capacity_matter() -> None:
    gained = Gained(crowded(), [0])
    assert gained.may_help(job().worker(1, cpu="4").build().groups)
    assert not gained.may_help(job().worker(1, cpu="1", gpus=1).build().groups)


SIZES = st.integers(1, 4)
LIMITS = limits_of(Settings(), excluded=(), closed=())


@given(
    taken=st.lists(st.tuples(st.sampled_from("abc"), SIZES, st.integers(0, 1)), max_size=8),
    dropped=st.sets(st.integers(0, 7)),
    workers=SIZES,
    cpu=SIZES,
    gpus=st.integers(0, 1),
    master=st.integers(0, 2),
)
def test_every_job_that_fits_only_after_capacity_was_freed_may_be_helped_by_it(
    taken: list[tuple[str, int, int]], dropped: set[int], **sizes: Any
) -> None:
    ledger = Ledger(node(name, cpu="6", gpus=1) for name in "abc")
    for number, (on, cpu, gpus) in enumerate(taken):
        amounts = {"cpu": 1000 * cpu, "pods": 1, "nvidia.com/gpu": gpus}
        ledger.claim(number, Claim(on, amounts))
    builder = job().worker(sizes["workers"], cpu=str(sizes["cpu"]), gpus=sizes["gpus"])
    if sizes["master"]:
        builder.group("Master", 1, cpu=str(sizes["master"]))
    waiting = builder.build()

    def fits() -> bool:
        return not isinstance(place(members_of(waiting), ledger, LIMITS), Verdict)

    ledger.offer()
    before = fits()
    for key in dropped:
        ledger.drop(key)
    if fits() and not before:
        assert Gained(ledger, ledger.offer()).may_help(waiting.groups)
