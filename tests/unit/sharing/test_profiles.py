"""A low-priority job shares a card with a high-priority job only if its minimum is left."""

from copy import deepcopy

import pytest

from kfext import names
from kfext.core.lifecycle.steps import SaveState, Unsuspend
from kfext.model.job_state import JobState
from kfext.model.shared_gpu import CardSharer
from tests.gpu_builders import sharing, slot
from tests.unit.sharing.stages import OTHERS, World, admitted, decide, placed, restart, terminate


def report(world: World, **sharer: object) -> None:
    """Report on the high-priority pod as the agent does, and write the steps that follow."""
    sharers = (CardSharer("pod-0", **sharer),)  # type: ignore[arg-type]
    world.planner.cluster.observe_card(None, slot("n", 0, card="GPU-0", sharers=sharers))
    while isinstance(world.step(), SaveState):
        pass


def starts_beside(world: World, *, remembered: int | None = None) -> bool:
    """Return whether a low-priority job starts on the first card; the second card is full."""
    state = JobState(busy={} if remembered is None else {"worker": remembered})
    low = admitted(sharing("0.3", uid="low", priority="low")).raw
    low["metadata"] |= {"namespace": OTHERS.name, "name": "low"}
    low["metadata"]["annotations"][names.STATE] = state.encode(job_uid="low")
    full = admitted(sharing("1", uid="full", priority="high")).raw
    full["metadata"] |= {"namespace": OTHERS.name, "name": "full"}
    world.planner.settings.observe_namespace(None, OTHERS)
    for raw in (full, low):
        world.planner.cluster.observe_job(deepcopy(raw))
        steps = decide(world)
        if raw is full:
            assert isinstance(steps["full"], Unsuspend)
    return isinstance(steps.get("low"), Unsuspend)


CASES: dict[str, tuple[int | None, int | None, bool]] = {
    "neither job was measured": (None, None, False),
    "high leaves the minimum": (800, None, True),
    "high leaves less": (810, None, False),
    "high leaves less, but low uses half a card": (900, 500, True),
    "high is never idle": (1000, 500, False),
    "the high job was not measured": (None, 500, False),
}


@pytest.mark.parametrize(("high", "low", "starts"), CASES.values(), ids=CASES)
def test_a_low_job_starts_only_beside_a_high_job_that_leaves_its_minimum(
    high: int | None, low: int | None, *, starts: bool
) -> None:
    world = placed()
    report(world, busy=high)
    assert starts_beside(world, remembered=low) is starts


def test_measurements_outlive_the_controller_and_the_pod() -> None:
    world = placed()
    report(world, busy=500)
    report(world)  # a new pod without a measurement yet
    restart(world)
    assert world.step() is None
    assert starts_beside(world)


def test_a_job_that_is_no_longer_measured_counts_as_busy_all_the_time() -> None:
    world = placed()
    report(world, busy=500)
    report(world, unhooked="HookFailed")
    assert not starts_beside(world)


def test_the_last_pod_of_a_deleted_job_counts_as_busy_all_the_time() -> None:
    world = placed()
    report(world, busy=500)
    world.planner.cluster.forget_job("uid-1")
    terminate(world)
    assert not starts_beside(world)
