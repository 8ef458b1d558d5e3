"""A low job goes beside a high job only if high leaves its minimum, by measurements."""

from copy import deepcopy

import pytest

from kfext import names
from kfext.core.lifecycle.steps import SaveState, Unsuspend
from kfext.model.job_state import JobState
from kfext.model.shared_gpu import CardSharer
from tests.gpu_builders import sharing, slot
from tests.unit.sharing.stages import OTHERS, World, admitted, decided, placed, restart, terminate


def reports(world: World, **sharer: object) -> None:
    """Report on the pod of high priority as the agent does, and write the next step."""
    sharers = (CardSharer("pod-0", **sharer),)  # type: ignore[arg-type]
    world.planner.cluster.observe_card(None, slot("n", 0, card="GPU-0", sharers=sharers))
    while isinstance(world.step(), SaveState):
        pass


def starts_beside(world: World, *, remembered: int | None = None) -> bool:
    """Return whether a job of low priority starts on the first card; the second card is full."""
    state = JobState(busy={} if remembered is None else {"worker": remembered})
    low = admitted(sharing("0.3", uid="low", priority="low")).raw
    low["metadata"] |= {"namespace": OTHERS.name, "name": "low"}
    low["metadata"]["annotations"][names.STATE] = state.encode(job_uid="low")
    full = admitted(sharing("1", uid="full", priority="high")).raw
    full["metadata"] |= {"namespace": OTHERS.name, "name": "full"}
    world.planner.settings.observe_namespace(None, OTHERS)
    for raw in (full, low):
        world.planner.cluster.observe_job(deepcopy(raw))
        steps = decided(world)
        if raw is full:
            assert isinstance(steps["full"], Unsuspend)
    return isinstance(steps.get("low"), Unsuspend)


CASES: dict[str, tuple[int | None, int | None, bool]] = {
    "nothing is known of either": (None, None, False),
    "high leaves the minimum": (800, None, True),
    "high leaves less": (810, None, False),
    "high leaves less, but low uses half a card": (900, 500, True),
    "high is never idle": (1000, 500, False),
    "nothing is known of high": (None, 500, False),
}


@pytest.mark.parametrize(("high", "low", "starts"), CASES.values(), ids=CASES)
def test_low_goes_only_where_high_leaves_its_minimum(
    high: int | None, low: int | None, *, starts: bool
) -> None:
    world = placed()
    reports(world, busy=high)
    assert starts_beside(world, remembered=low) is starts


def test_measurements_outlive_the_controller_and_the_pod() -> None:
    world = placed()
    reports(world, busy=500)
    reports(world)  # another pod without a measurement yet
    restart(world)
    assert world.step() is None
    assert starts_beside(world)


def test_a_job_that_is_no_longer_measured_counts_as_busy_all_the_time() -> None:
    world = placed()
    reports(world, busy=500)
    reports(world, unhooked="HookFailed")
    assert not starts_beside(world)


def test_the_last_pod_of_a_deleted_job_counts_as_busy_all_the_time() -> None:
    world = placed()
    reports(world, busy=500)
    world.planner.cluster.forget_job("uid-1")
    terminate(world)
    assert not starts_beside(world)
