"""Jobs that wait for whole or shared GPUs, and the jobs behind them in the queue."""

from copy import deepcopy

from kfext import names
from kfext.core.ledger.capacity_hold import HoldKind
from kfext.core.lifecycle.steps import Unsuspend
from kfext.core.placement.gang import members_of
from kfext.model.job_state import JobState
from kfext.model.plan import Places
from kfext.model.pod import Pod
from kfext.model.priority import PriorityClass
from kfext.state.mirror.cards import Unreserve
from kfext.state.running.capacity_search import CapacitySearch
from tests.builders import JobBuilder, job
from tests.gpu_builders import sharing
from tests.unit.sharing.stages import FIRST, OTHERS, World, admitted, decide, placed

LONG = 301.0
"""Seconds, longer than the default of `reserveAfter`."""


def arrives(world: World, uid: str, builder: JobBuilder) -> None:
    """Submit a job in another namespace now."""
    world.planner.settings.observe_namespace(None, OTHERS)
    raw = admitted(builder.created(world.now)).raw
    raw["metadata"] |= {"namespace": OTHERS.name, "name": uid, "uid": uid}
    world.planner.cluster.observe_job(deepcopy(raw))


def starts(world: World) -> set[str]:
    """Return the uids of the jobs that start now."""
    return {uid for uid, step in decide(world).items() if isinstance(step, Unsuspend)}


def waits(world: World, uid: str) -> str:
    """Return the reason why a job waits."""
    verdict = world.planner.cluster.jobs[uid].verdict
    assert verdict is not None
    return verdict.reason


def wait_for_reservation(world: World, uid: str) -> None:
    """Let a job wait until capacity is reserved for it."""
    assert starts(world) == set()
    world.now += LONG
    assert starts(world) == set()
    reservation = world.planner.queue.reservations.current
    assert reservation is not None
    assert (reservation.job, reservation.waits_for) == (uid, ("uid-1",))


def end_first_job(world: World) -> None:
    """End the first job; its GPU is released once its reservation pod is deleted."""
    world.pods["pod-0"]["status"] = {"phase": "Succeeded"}
    metadata = world.pods["pod-0"]["metadata"]
    metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 10)
    world.see("pod-0")
    world.raw["status"] = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    world.show()


def test_D5_no_job_joins_a_card_that_a_job_with_whole_gpus_waits_for() -> None:
    world = placed()
    arrives(world, "head", job().worker(1, gpus=2))
    wait_for_reservation(world, "head")
    arrives(world, "young", sharing("0.2", min_share="0"))
    assert starts(world) == set()
    assert waits(world, "young") == names.REASON_RESERVED
    end_first_job(world)
    assert starts(world) == set(), "a pod still reserves the GPU"
    assert waits(world, "young") == names.REASON_RESERVED
    (step,) = world.planner.card_steps(world.now)
    assert isinstance(step, Unreserve)
    assert isinstance(step.pod, Pod)
    world.planner.cluster.observe_pod(step.pod, None)
    assert starts(world) == {"head"}
    assert world.planner.queue.reservations.current is None


def test_D5_no_job_takes_a_gpu_that_a_job_with_shares_waits_for() -> None:
    world = placed()
    arrives(world, "head", sharing("0.6", priority="high", replicas=2))
    wait_for_reservation(world, "head")
    arrives(world, "young", job().worker(1, gpus=1))
    arrives(world, "low", sharing("0.5", min_share="0"))
    assert starts(world) == set()
    assert {waits(world, uid) for uid in ("young", "low")} == {names.REASON_RESERVED}
    end_first_job(world)
    assert starts(world) == {"head"}
    assert world.planner.queue.reservations.current is None


def test_other_jobs_start_before_capacity_is_reserved() -> None:
    world = placed()
    arrives(world, "head", job().worker(1, gpus=2))
    assert starts(world) == set()
    arrives(world, "young", sharing("0.2", min_share="0"))
    assert starts(world) == {"young"}


def test_an_evicted_job_uses_the_other_card_of_its_node() -> None:
    world = placed()
    arrives(world, "low", sharing("0.2", min_share="0"))
    (step,) = decide(world).values()
    assert isinstance(step, Unsuspend)
    assert set(step.plan.slots.values()) == {0}
    state = JobState(apart=("uid-1",)).encode(job_uid="left")
    arrives(world, "left", sharing("0.2", min_share="0").annotated(names.STATE, state))
    (step,) = decide(world).values()
    assert isinstance(step, Unsuspend)
    assert set(step.plan.slots.values()) == {1}


def test_a_job_is_not_placed_beside_a_job_that_was_evicted_because_of_it() -> None:
    state = JobState(apart=("high",)).encode(job_uid="uid-1")
    low = sharing("0.2", min_share="0").annotated(names.STATE, state)
    world = World(admitted(low))
    step = world.step()
    assert isinstance(step, Unsuspend)
    assert set(step.plan.slots.values()) == {0}
    arrives(world, "high", sharing("0.2", priority="high"))
    (step,) = decide(world).values()
    assert isinstance(step, Unsuspend)
    assert set(step.plan.slots.values()) == {1}
    arrives(world, "other", sharing("0.2", priority="high"))
    (step,) = decide(world).values()
    assert isinstance(step, Unsuspend)
    assert set(step.plan.slots.values()) == {0}, "the low job was not evicted because of it"


def test_nothing_is_stored_about_deleted_jobs() -> None:
    state = JobState(apart=("high",)).encode(job_uid="uid-1")
    world = World(admitted(sharing("0.2", min_share="0").annotated(names.STATE, state)))
    apart = world.planner.cluster.claim_tracker.cards.apart
    assert apart.separated_from("high") == {"uid-1"}
    world.planner.cluster.forget_job("uid-1")
    assert apart.separated_from("high") == set()


def test_a_card_that_a_low_job_opens_is_not_reserved_twice() -> None:
    world = World(admitted(job().worker(1, cpu="40")))
    world.step()
    head = sharing("0.5", replicas=0, priority="high").worker(1, cpu="32", gpus=1)
    arrives(world, "head", head)
    wait_for_reservation(world, "head")
    arrives(world, "low", sharing("0.5", min_share="0"))
    assert starts(world) == {"low"}, "on the card with a half that is reserved for the head"
    arrives(world, "whole", job().worker(1, gpus=1))
    assert starts(world) == {"whole"}


def test_no_job_takes_a_card_that_is_held_for_a_waiting_job() -> None:
    world = placed()
    planner = world.planner
    arrives(world, "gives", job().worker(1, gpus=1))
    assert starts(world) == {"gives"}
    arrives(world, "waits", sharing("0.6", priority="high"))
    assert starts(world) == set()
    waiting, gone = planner.cluster.jobs["waits"], list(planner.cluster.holds.plan("gives"))
    search = CapacitySearch(
        planner.cluster, planner.queue, planner.settings.settings_of, lambda _: 5.0
    )
    assert search.waiting_places(waiting, 1, now=world.now) is None
    places = search.waiting_places(waiting, 1, now=world.now, gone=gone)
    assert places == Places({FIRST: "n"}, {FIRST: 1})
    planner.cluster.holds.hold(HoldKind.RESCUE, "waits", members_of(waiting.job), places)
    planner.cluster.forget_job("gives")
    planner.queue.observe_class(None, PriorityClass("high", 100))
    arrives(world, "first", job().worker(1, gpus=1).prioritized("high"))
    arrives(world, "second", sharing("0.5", priority="high").prioritized("high"))
    assert starts(world) == {"waits"}
