"""A planner from a snapshot, or from the objects, makes the same decisions on shared GPUs."""

from collections.abc import Callable
from typing import Any

import pytest

from kfext import names
from kfext.cli.plan import STARTS, WAITS, Forecast
from kfext.core.lifecycle.steps import Suspend
from kfext.errors import UserError
from kfext.kube.snapshot_file import encode_snapshot, read_snapshot_file
from kfext.model.snapshot import Snapshot
from kfext.state.planner.planner import outlooks
from kfext.state.planner.recording import planner_of, snapshot_of
from tests.gpu_builders import reservation, sharing
from tests.unit.sharing.stages import STAGES, World, decide, placed, restart, submit


def snapshot(world: World) -> Snapshot:
    """Return a snapshot of the world, encoded and decoded as in a file."""
    content = encode_snapshot(snapshot_of(world.planner, world.moment), at=world.now)
    return read_snapshot_file(content, name="snapshot").snapshot


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_a_planner_from_a_snapshot_decides_the_same(stage: Callable[[], World]) -> None:
    world = stage()
    copied = stage()
    copied.planner = planner_of(snapshot(world), world.moment)
    for twin in (world, copied):
        submit(twin, "uid-high", priority="high")
        submit(twin, "uid-low", min_share="0")
        submit(twin, "uid-whole", share="1", priority="high")
    assert outlooks(copied.planner, world.moment) == outlooks(world.planner, world.moment)
    ledgers = [twin.planner.cluster.ledger.claims() for twin in (copied, world)]
    assert ledgers[0] == ledgers[1]


def test_a_planner_from_a_snapshot_knows_how_long_a_card_was_unreserved() -> None:
    world = placed()
    world.planner.cluster.observe_pod(reservation("n", 0), None)
    assert decide(world) == {}
    world.now += 50
    copied = planner_of(snapshot(world), world.moment)
    world.now += 10
    (result,) = outlooks(copied, world.moment).values()
    assert isinstance(result.step, Suspend)


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_a_new_controller_learns_all_claims_from_the_objects(stage: Callable[[], World]) -> None:
    world = stage()
    decide(world)
    before = world.planner
    restart(world)
    decide(world)
    after = world.planner
    assert after.cluster.ledger.claims() == before.cluster.ledger.claims()
    assert (
        after.cluster.claim_tracker.cards.demand.all()
        == before.cluster.claim_tracker.cards.demand.all()
    )
    assert list(after.card_steps(world.now)) == list(before.card_steps(world.now))


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_a_new_controller_decides_the_same(stage: Callable[[], World]) -> None:
    world, successor = stage(), stage()
    restart(successor)
    assert outlooks(successor.planner, world.moment) == outlooks(world.planner, world.moment)


def user_job(share: str, *, replicas: int = 1, **settings: str) -> Any:
    """Return a job as its user writes it."""
    raw = sharing(share, replicas=replicas, **settings).raw
    raw["metadata"] = {
        "name": "submitted",
        "namespace": "team",
        "annotations": raw["metadata"]["annotations"],
    }
    return raw


SUBMITTED: dict[str, tuple[Any, str]] = {
    "a share beside the running job": (user_job("0.5", min_share="0"), STARTS),
    "a share of the other card": (user_job("0.6", min_share="0"), STARTS),
    "high priority, on the other card": (user_job("0.5", priority="high"), STARTS),
    "two cards, one with a high job": (user_job("0.5", replicas=2, priority="high"), WAITS),
    "the last whole card": (user_job("1"), STARTS),
}


@pytest.mark.parametrize(("raw", "want"), SUBMITTED.values(), ids=SUBMITTED)
def test_plan_answers_for_shares_of_gpus(raw: Any, want: str) -> None:
    world = placed()
    result = Forecast(snapshot(world), now=world.now).submit(raw, home="team")
    assert (result.outcome, set(result.nodes.values())) == (
        want,
        {"n"} if want == STARTS else set(),
    )


def test_plan_refuses_what_admission_refuses() -> None:
    with pytest.raises(UserError, match=names.GPU_SHARE):
        Forecast(snapshot(placed()), now=1000.0).submit(user_job("0.5", replicas=2), home="team")
