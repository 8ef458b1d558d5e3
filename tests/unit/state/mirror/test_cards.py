"""The GPUs that jobs share: the state of each GPU, and the steps that reserve and release it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kfext import names
from kfext.core.ledger.cards import taken_by
from kfext.core.ledger.claim import Claim
from kfext.core.ledger.ledger import Ledger
from kfext.core.lifecycle.situation import CardView
from kfext.core.settings.table import Settings
from kfext.model.constraints import Toleration
from kfext.model.gpu import GpuShare, resource_of
from kfext.model.job_state import JobState
from kfext.model.limit import Excluded
from kfext.model.plan import Plan
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.shared_gpu import CardSharer, SharedGpu
from kfext.state.mirror.cards import Cards, Reserve, Unreserve, without_cards
from kfext.state.mirror.cluster import Cluster
from tests.builders import job
from tests.gpu_builders import plain_node, reservation, sharing, sharing_node, slot

HERE = ("n", 0)
PLAN = Plan(
    "uid-1",
    1,
    assignment={ReplicaKey("worker", 0): "n"},
    shares={"worker": GpuShare(50)},
    slots={ReplicaKey("worker", 0): 0},
)
POD = Pod("team", "train-worker-0", "uid-pod")
GPU = slot("n", card="GPU-1", reservation="uid")


class Bed:
    """Cards over a ledger of one node, and the jobs that were notified."""

    def __init__(self) -> None:
        self.ledger = Ledger([plain_node("n", cards=2)])
        self.notified: list[str] = []
        self.cards = Cards(self.ledger, self.notified.append)

    def free(self) -> int:
        return int(self.ledger.free([names.NATIVE_GPU])[0, 0])


def reserved(*, uid: str = "uid", **more: object) -> Callable[[Bed], None]:
    pod = replace(reservation("n", uid=uid), **more)  # type: ignore[arg-type]
    return lambda bed: bed.cards.observe_pod(uid, pod)


def reported(**more: object) -> Callable[[Bed], None]:
    result = replace(GPU, **more)  # type: ignore[arg-type]
    return lambda bed: bed.cards.observe(None, result)


UNREADY = CardView(unready=(HERE,))
LEAVER = CardSharer("uid-pod", evict=True)
LOST = CardView(unready=(HERE,), lost=(HERE,))
MIG = "it is split by MIG"
VIEWS: dict[str, tuple[list[Callable[[Bed], None]], CardView]] = {
    "there is no reservation pod and no report": ([], UNREADY),
    "only the pod exists": ([reserved()], UNREADY),
    "the agent has reported its card": ([reserved(), reported()], CardView()),
    "the agent has reported the card of an earlier pod": (
        [reserved(), reported(), reserved(uid="new")],
        UNREADY,
    ),
    "the card is not healthy": (
        [reserved(), reported(healthy=False, trouble=MIG)],
        replace(LOST, troubles={HERE: MIG}),
    ),
    "no report says why it is not healthy": (
        [reserved(), reported(healthy=False)],
        replace(LOST, troubles={HERE: "it is unhealthy"}),
    ),
    "its sharers have another card": ([reserved(), reported(moved=True)], LOST),
    "the job is evicted": (
        [reserved(), reported(sharers=(LEAVER,))],
        CardView(evicted=(HERE,), parts=((replace(GPU, sharers=(LEAVER,)), LEAVER),)),
    ),
    "a different job is evicted": (
        [reserved(), reported(sharers=(CardSharer("other", evict=True),))],
        CardView(),
    ),
}


@pytest.mark.parametrize(("acts", "want"), VIEWS.values(), ids=VIEWS)
def test_the_view_of_a_job_on_its_cards(acts: list[Callable[[Bed], None]], want: CardView) -> None:
    bed = Bed()
    for act in acts:
        act(bed)
    assert bed.cards.view(PLAN, [POD], job_uid="uid-1") == want
    assert bed.cards.view(None, [POD], job_uid="uid-1") == CardView()


RESERVED: dict[str, tuple[list[Callable[[Bed], None]], bool]] = {
    "there is no reservation pod and no report": ([], False),
    "only the pod exists, on a node": ([reserved()], True),
    "only the pod exists, on no node yet": ([reserved(node_name="", pinned_to="n")], False),
    "the agent has reported its card": ([reserved(), reported()], True),
    "its card is not healthy": ([reserved(), reported(healthy=False)], True),
    "it is being deleted": ([reserved(deleting=True), reported()], True),
    "the agent has reported the card of an earlier pod": ([reported(), reserved(uid="new")], False),
    "the pod has ended": ([reserved(phase="Failed"), reported()], False),
    "the agent has reported no card": ([reserved(), reported(card="", reservation="")], False),
}


@pytest.mark.parametrize(("acts", "is_reserved"), RESERVED.values(), ids=RESERVED)
def test_whether_a_gpu_is_reserved_for_a_slot(
    acts: list[Callable[[Bed], None]], *, is_reserved: bool
) -> None:
    bed = Bed()
    for act in acts:
        act(bed)
    assert bed.cards.unreserved(PLAN) == (() if is_reserved else (HERE,))
    assert bed.cards.unreserved(None) == ()


def test_an_evicted_job_avoids_the_slots_of_the_jobs_that_it_left() -> None:
    bed = Bed()
    bed.ledger.claim("high", Claim("n", taken_by(GpuShare(50, high=True).need, 0), job="uid-high"))
    bed.ledger.claim("low", Claim("n", taken_by(GpuShare(20).need, 0), job="uid-1"))
    bed.cards.want("uid-high", {HERE: ()})
    reported(sharers=(CardSharer("uid-pod", evict=True),))(bed)
    assert bed.cards.view(PLAN, [POD], job_uid="uid-1").rivals == ("uid-high",)
    bed.cards.apart.record("uid-1", ("uid-high", "gone"))
    assert bed.cards.view(None, [], job_uid="uid-1").shunned == (HERE,)


def test_a_job_avoids_the_slots_of_the_jobs_that_were_evicted_because_of_it() -> None:
    bed = Bed()
    bed.cards.apart.record("uid-a", ("uid-1",))
    bed.cards.apart.record("uid-b", ("uid-1",))
    bed.cards.want("uid-b", {HERE: ()})
    bed.cards.want("uid-a", {HERE: (), ("m", 1): ()})
    assert bed.cards.view(None, [], job_uid="uid-1").shunned == (("m", 1), HERE)
    bed.cards.want("uid-a", {})
    assert bed.cards.view(None, [], job_uid="uid-1").shunned == (HERE,)


def test_a_job_avoids_excluded_nodes_and_the_slots_of_jobs_that_it_left() -> None:
    cluster = Cluster()
    cluster.claim_tracker.cards.want("uid-high", {HERE: ()})
    state = JobState(excluded={"m": 100.0, "n": 50.0}, apart=("uid-high",))
    for builder, closed in ((sharing(), (HERE,)), (job().worker(1, gpus=1), ())):
        builder.raw["metadata"]["uid"] = "uid-1"
        stated = builder.annotated(names.STATE, state.encode(job_uid="uid-1"))
        cluster.observe_job(stated.held().raw)
        (tracked,) = cluster.jobs.values()
        result = cluster.claim_tracker.limits(tracked, Settings(), now=60.0)
        assert (result.on_nodes, result.closed) == ((Excluded(frozenset("m")),), closed)
        cluster = Cluster()
        cluster.claim_tracker.cards.want("uid-high", {HERE: ()})


def test_the_needed_slots_on_some_nodes() -> None:
    bed = Bed()
    bed.cards.want("uid-1", {HERE: (), ("m", 1): ()})
    bed.cards.want("uid-2", {("n", 1): ()})
    assert bed.cards.demand.on(["n"]) == {HERE, ("n", 1)}
    assert bed.cards.demand.on([]) == set()


def test_a_share_that_is_only_reserved_needs_no_gpu() -> None:
    bed, taken = Bed(), taken_by(GpuShare(50, high=True).need, 0)
    bed.ledger.claim("kept", Claim("n", taken, job="uid-head", kept=True))
    reported(sharers=(CardSharer("uid-pod", evict=True),))(bed)
    assert not bed.cards.in_use(HERE)
    assert bed.cards.view(PLAN, [POD], job_uid="uid-1").rivals == ()
    bed.ledger.claim("promise", Claim("n", taken))
    assert bed.cards.in_use(HERE)


def test_a_gpu_is_held_for_a_plan_until_its_reservation_claims_it() -> None:
    bed = Bed()
    bed.cards.want("uid-1", {HERE: ()})
    bed.cards.want("uid-2", {HERE: ()})
    assert bed.free() == 1
    bed.cards.observe_pod("uid", reservation("n"))
    assert bed.free() == 2, "the tracker, not Cards, claims the GPU for that pod"
    bed.cards.observe_pod("uid", reservation("n", phase="Failed"))
    assert bed.free() == 1, "it has ended, and claims nothing"
    bed.cards.observe_pod("uid", None)
    bed.cards.want("uid-1", {})
    assert bed.free() == 1
    bed.cards.want("uid-2", {})
    assert bed.free() == 2


SHARER = replace(
    POD, share=GpuShare(50), node_name="n", requests={resource_of(0): 50}, phase="Running"
)
UNPLANNED: dict[str, tuple[Pod, bool, bool]] = {
    "it runs, and no plan claims its share": (SHARER, False, True),
    "a plan claims its share": (SHARER, True, False),
    "it has no node yet": (replace(SHARER, node_name="", pinned_to="n"), False, False),
    "it has ended": (replace(SHARER, phase="Succeeded"), False, False),
}


@pytest.mark.parametrize(("pod", "planned", "kept"), UNPLANNED.values(), ids=UNPLANNED)
def test_a_pod_with_a_share_that_no_plan_claims_needs_its_gpu_until_it_has_ended(
    pod: Pod, *, planned: bool, kept: bool
) -> None:
    bed = Bed()
    bed.cards.claim_share(pod, planned=planned)
    assert (HERE in bed.cards.demand.all(), bed.free()) == (kept, 2 - kept)
    bed.cards.observe_pod(pod.uid, None)
    assert (HERE in bed.cards.demand.all(), bed.free()) == (False, 2)


def test_jobs_are_notified_only_of_their_own_cards() -> None:
    bed = Bed()
    bed.cards.want("uid-1", {HERE: ()})
    bed.cards.observe(None, slot("n", 1))
    bed.cards.observe_pod("uid", reservation("n", 1))
    assert bed.notified == []
    bed.cards.observe(None, slot("n", 0))
    bed.cards.observe_pod("uid-0", reservation("n", 0))
    assert bed.notified == ["uid-1", "uid-1"]


def test_a_node_has_what_its_agent_reports() -> None:
    bed, plain = Bed(), plain_node("n", cards=2)
    assert bed.cards.with_cards(plain) == plain
    for number in range(2):
        bed.cards.observe(None, slot("n", number))
    whole = bed.cards.with_cards(plain)
    assert whole == sharing_node("n", cards=2)
    assert bed.cards.with_cards(whole) == whole
    sick: SharedGpu = slot("n", 1, healthy=False, trouble=MIG)
    bed.cards.observe(slot("n", 1), sick)
    result = bed.cards.with_cards(whole)
    assert "card 1 memory" not in result.allocatable
    assert result.troubles == (MIG,)
    assert without_cards(result) == plain


def test_a_node_keeps_its_other_slots_while_kubelet_has_no_units_of_a_faulty_slot() -> None:
    bed, plain = Bed(), plain_node("n", cards=2)
    time = {name: n for name, n in plain.allocatable.items() if name != resource_of(0)}
    for number, trouble in enumerate((MIG, "")):
        bed.cards.observe(None, slot("n", number, healthy=not trouble, trouble=trouble))
    result = bed.cards.with_cards(replace(plain, allocatable=time))
    assert "card 0 memory" not in result.allocatable
    assert "card 1 memory" in result.allocatable
    assert result.troubles == (MIG,)
    bed.cards.observe(slot("n", 0), None)
    assert bed.cards.with_cards(result).troubles == ()


# --- steps --------------------------------------------------------------------------------------

TOLERATES = (Toleration(key="gpu", operator="Exists"),)


def test_a_gpu_that_a_plan_needs_is_reserved_once() -> None:
    bed = Bed()
    bed.cards.want("uid-1", {HERE: TOLERATES})
    assert list(bed.cards.due(0.0)) == [Reserve(HERE, TOLERATES)]
    assert list(bed.cards.due(1.0)) == [], "it is being written"
    bed.cards.finish(Reserve(HERE, TOLERATES), 1.0)
    bed.cards.observe_pod("uid", reservation("n"))
    assert list(bed.cards.due(2.0)) == []
    assert not bed.cards.pending


def test_a_gpu_that_a_pod_without_a_plan_still_uses_is_reserved_again() -> None:
    bed = Bed()
    pod = reservation("n")
    bed.cards.observe_pod("uid", pod)
    bed.cards.claim_share(SHARER, planned=False, tolerations=TOLERATES)
    assert list(bed.cards.due(0.0)) == []
    bed.cards.observe_pod("uid", None)
    assert list(bed.cards.due(0.0)) == [Reserve(HERE, TOLERATES)]
    bed.cards.finish(Reserve(HERE, TOLERATES), 0.0)
    bed.cards.observe_pod("uid", pod)
    bed.cards.observe_pod(SHARER.uid, None)
    assert list(bed.cards.due(1.0)) == [Unreserve(HERE, pod)]


def test_a_removed_node_gets_no_reservation() -> None:
    bed = Bed()
    bed.cards.want("uid-1", {("gone", 0): ()})
    assert list(bed.cards.due(0.0)) == []


def test_each_failure_of_a_step_doubles_the_time_to_the_next_attempt() -> None:
    bed = Bed()
    bed.cards.want("uid-1", {HERE: ()})
    (step,) = bed.cards.due(0.0)
    bed.cards.finish(step, 0.0)
    assert list(bed.cards.due(0.5)) == []
    assert [*bed.cards.pending.values()] == [1.0]
    (step,) = bed.cards.due(1.0)
    bed.cards.finish(step, 1.0)
    assert [*bed.cards.pending.values()] == [3.0]


def test_G4_a_card_is_released_at_once_when_nothing_uses_it() -> None:
    bed = Bed()
    pod = reservation("n")
    bed.cards.observe_pod("uid", pod)
    bed.cards.want("uid-1", {HERE: ()})
    bed.ledger.claim(("pod", "sharer"), Claim("n", {"kfext.dev/gpu-0": 50}))
    assert list(bed.cards.due(0.0)) == []
    bed.cards.want("uid-1", {})
    assert list(bed.cards.due(0.0)) == [], "a pod still has GPU time of the slot"
    bed.ledger.drop(("pod", "sharer"))
    assert list(bed.cards.due(0.0)) == [Unreserve(HERE, pod)]


def test_a_reservation_pod_that_has_ended_is_deleted_and_recreated() -> None:
    bed = Bed()
    pod = reservation("n", phase="Failed")
    bed.cards.want("uid-1", {HERE: ()})
    bed.cards.observe_pod("uid", pod)
    assert list(bed.cards.due(0.0)) == [Unreserve(HERE, pod)]
    bed.cards.finish(Unreserve(HERE, pod), 0.0)
    bed.cards.observe_pod("uid", None)
    assert list(bed.cards.due(0.0)) == [Reserve(HERE, ())]
    assert names.NATIVE_GPU in pod.requests
