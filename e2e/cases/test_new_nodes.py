"""Gangs that need nodes from Karpenter start as a whole, or have no pods at all.

The first cases use plain Kubernetes: they show that Karpenter works and half gangs are detected.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest

from e2e.harness import nodes
from e2e.harness.jobs import TRAIN_JOB
from e2e.harness.kfext_process import Kfext
from e2e.harness.new_nodes import ASKS, NODES, PODS, Scene, scene_of
from e2e.harness.space import Space
from e2e.harness.standing import karpenter_or_skipped, running_or_skipped, trainer_or_skipped
from e2e.testbed.cluster import Testbed
from e2e.testbed.karpenter import NEVER, Pool
from kfext.names import COLOCATION

pytestmark = pytest.mark.long

NewScene = Callable[..., Scene]
KINDS = ("PyTorchJob", "TFJob", TRAIN_JOB)
WAITING, REFUSED = "WaitingForNodes", "NoNewNodes"
_GIVES_UP_SECONDS = 420.0
"""kfext gives up 5 minutes after the last new node, which joins 20 s after the request."""


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    """A separate cluster: kfext decides differently beside an autoscaler."""
    with (
        running_or_skipped(f"new-nodes-{os.getpid()}", fake_nodes=1, fast=True) as bed,
        karpenter_or_skipped(bed),
        trainer_or_skipped(bed),
    ):
        yield bed


@pytest.fixture(scope="module")
def installed(testbed: Testbed) -> Iterator[Kfext]:
    with Kfext.installed(testbed) as kfext:
        yield kfext


@pytest.fixture
def new_scene(new_space: Callable[..., Space]) -> Iterator[NewScene]:
    """A function that creates scenes. `most`: the maximum number of nodes to add."""
    with ExitStack() as scenes:

        def make(
            *, managed: bool = True, most: int | None = None, pools: Sequence[Pool] = ()
        ) -> Scene:
            space = new_space(managed=managed, born_pinned=True)
            scene = scenes.enter_context(scene_of(space))
            for pool in pools or (Pool(most=most),):
                scene.pool(pool)
            return scene

        yield make


def _check_started_whole(scene: Scene, *, needs: int = NODES, replaced: int = 0) -> None:
    """Check that no pod existed before there was capacity for all, and that kfext wrote little.

    `replaced`: the number of placeholders that lost their node and were replaced.
    """
    assert scene.half() == {}
    assert scene.early("gang", needs=needs) == []
    assert scene.written() <= 2 * (scene.gangs["gang"].wanted + replaced)
    assert set(scene.space.pins().values()) <= {1}


# --- plain Kubernetes -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_without_kfext_a_gang_is_bound_on_new_nodes_that_are_removed_after_it(
    new_scene: NewScene, kind: str
) -> None:
    scene = new_scene(managed=False)
    scene.submit("gang", kind=kind)
    scene.whole("gang")
    assert len(scene.created()) == NODES
    scene.delete("gang")
    scene.gone()
    assert len(scene.created()) == NODES


def test_without_kfext_a_gang_is_half_bound_if_one_of_four_nodes_is_not_added(
    new_scene: NewScene,
) -> None:
    scene = new_scene(managed=False, most=NODES - 1)
    scene.submit("gang")
    scene.until(lambda _: scene.half(), "the gang is half bound")
    assert scene.gangs["gang"].bound == 2 * (NODES - 1)
    assert len(scene.created()) == NODES - 1


# --- the nodes come -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_gang_starts_whole_on_new_nodes_that_are_removed_after_it(
    new_scene: NewScene, kind: str
) -> None:
    scene = new_scene()
    scene.full_nodes(2)
    scene.submit("gang", kind=kind)
    scene.reason("gang", WAITING)
    scene.whole("gang")
    _check_started_whole(scene)
    scene.until(lambda now: not now.asked, "no placeholder is left")
    assert len(scene.created()) == NODES
    scene.delete("gang")
    scene.gone()
    assert len(scene.created()) == NODES


@pytest.mark.parametrize(("full", "seconds"), ASKS.values(), ids=ASKS)
def test_kfext_asks_for_nodes_later_if_capacity_is_likely_to_become_free(
    new_scene: NewScene, full: Callable[[Scene], None], seconds: float
) -> None:
    scene = new_scene()
    full(scene)
    scene.submit("gang")
    scene.whole("gang")
    _check_started_whole(scene)
    # The wait of a job counts from the whole second in which the API server created it.
    assert scene.asked_after("gang") > seconds - 1.0
    assert len(scene.created()) == NODES


def test_a_gang_of_64_pods_starts_whole_on_32_new_nodes(new_scene: NewScene) -> None:
    scene = new_scene()
    scene.submit("gang", 64)
    scene.whole("gang")
    _check_started_whole(scene, needs=32)
    assert len(scene.created()) == 32


def test_a_gang_for_one_node_starts_on_a_new_node_although_some_pods_fit_an_old_node(
    new_scene: NewScene,
) -> None:
    scene = new_scene()
    (old,) = scene.space.nodes(1, cpu="32", memory="256Gi", gpu="8")
    scene.space.take_gpus("other", old, 4)
    scene.submit("gang", 2, annotations={COLOCATION: "required"})
    scene.whole("gang")
    _check_started_whole(scene, needs=1)
    assert len(scene.created()) == 1
    assert old not in scene.space.nodes_by_pod("gang").values()


def test_the_first_nodes_are_kept_until_the_last_are_ready(new_scene: NewScene) -> None:
    soon = Pool("soon", delay="3s", most=2, weight=50, consolidate="0s")
    scene = new_scene(pools=(soon, Pool("late", delay="60s", weight=10, consolidate="0s")))
    scene.submit("gang")
    scene.whole("gang")
    _check_started_whole(scene)
    assert len(scene.created()) == NODES


def test_rival_pods_on_the_new_nodes_delay_a_gang_but_do_not_split_it(
    new_scene: NewScene,
) -> None:
    scene = new_scene()
    scene.submit("gang")
    scene.until(lambda now: now.ready, "a node is ready")
    scene.rivals(2)
    scene.whole("gang")
    assert scene.half() == {}
    scene.until(lambda _: scene.rivals_bound() == 2, "the rivals are bound")
    assert len(scene.created()) <= NODES + 2


def test_kfext_asks_for_a_node_for_members_that_lost_their_node(new_scene: NewScene) -> None:
    scene = new_scene()
    scene.submit("gang")
    scene.whole("gang")
    lost = min(scene.space.nodes_by_pod("gang").values())
    nodes.taint(scene.space.kfext, lost, "NoExecute")
    scene.until(
        lambda _: lost not in scene.space.nodes_by_pod("gang").values(), "its pods are evicted"
    )
    scene.whole("gang")
    assert lost not in scene.space.nodes_by_pod("gang").values()
    assert len(scene.created()) == NODES + 1


# --- some nodes do not come -----------------------------------------------------------------------


def test_kfext_gives_up_and_quotes_the_autoscaler_if_one_of_four_nodes_is_not_allowed(
    new_scene: NewScene,
) -> None:
    scene = new_scene(most=NODES - 1)
    scene.submit("gang")
    scene.reason("gang", WAITING)
    view = scene.reason("gang", REFUSED, seconds=_GIVES_UP_SECONDS)
    assert "exceed limits" in view["message"]
    scene.gone()
    assert not any(any(now.members.values()) for now in scene.observations)
    assert scene.view("gang")["reason"] == REFUSED


def test_a_gang_with_a_machine_that_never_joins_has_no_pods(new_scene: NewScene) -> None:
    three = Pool("three", most=NODES - 1, weight=50)
    scene = new_scene(pools=(three, Pool("never", delay=NEVER, weight=10)))
    scene.submit("gang")
    scene.until(lambda now: len(now.ready) == NODES - 1, "three nodes are ready")
    scene.watch(60)
    view = scene.view("gang")
    assert view["reason"] == WAITING
    assert f"{PODS - 2} of {PODS} pods" in view["message"]
    assert not any(any(now.members.values()) for now in scene.observations)
    scene.delete("gang")
    # Karpenter itself waits 15 minutes for the machine that never joins.
    scene.until(lambda now: not (now.ready or now.asked), "the added nodes are removed")


def test_a_gang_does_not_start_on_a_new_node_that_is_no_longer_ready(new_scene: NewScene) -> None:
    soon = Pool("soon", delay="3s", most=1, weight=50)
    scene = new_scene(pools=(soon, Pool("late", most=NODES - 1, weight=10)))
    scene.submit("gang")
    scene.until(lambda now: now.ready, "the first node is ready")
    (first,) = scene.observations[-1].ready
    nodes.stop_reports(scene.space.kfext, first)
    scene.until(lambda now: len(now.ready - {first}) == NODES - 1, "the others are ready")
    scene.watch(20)
    assert not any(any(now.members.values()) for now in scene.observations)
    nodes.resume_reports(scene.space.kfext, first)
    scene.whole("gang")
    _check_started_whole(scene, replaced=2)


def test_with_capacity_for_one_and_a_half_gangs_only_the_first_starts(new_scene: NewScene) -> None:
    scene = new_scene(most=NODES + 2)
    scene.submit("first")
    scene.submit("second")
    scene.whole("first")
    scene.watch(20)
    assert scene.half() == {}
    assert not any(now.members["second"] for now in scene.observations)
    assert scene.view("second")["reason"] in (WAITING, REFUSED, "NoRoom")
    assert scene.view("second")["message"]
    scene.delete("first")
    scene.whole("second")
    assert scene.half() == {}


def test_no_placeholder_is_left_of_a_job_that_is_deleted(new_scene: NewScene) -> None:
    scene = new_scene()
    scene.submit("gang")
    scene.until(lambda now: now.asked == PODS, "it has asked for nodes")
    scene.watch(8)
    scene.delete("gang")
    scene.until(lambda now: not now.asked, "no placeholder is left")
    scene.gone()
    assert len(scene.created()) <= NODES


# --- the setting ----------------------------------------------------------------------------------


def test_a_policy_may_release_gangs_instead_of_asking_for_nodes(new_scene: NewScene) -> None:
    scene = new_scene()
    scene.space.policy(placement={"newNodes": "release"})
    scene.submit("gang")
    scene.whole("gang")
    assert scene.view("gang")["phase"] == "Released"
    assert not any(now.asked for now in scene.observations)


def test_a_policy_may_make_gangs_wait_for_existing_capacity(new_scene: NewScene) -> None:
    scene = new_scene()
    scene.space.policy(placement={"newNodes": "wait"})
    scene.submit("gang")
    scene.watch(90)
    assert scene.view("gang")["phase"] == "Queued"
    assert not any(now.asked or now.claims for now in scene.observations)
    scene.space.nodes(NODES, cpu="32", memory="256Gi", gpu="8")
    scene.whole("gang")
    _check_started_whole(scene, needs=0)
