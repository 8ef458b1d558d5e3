"""A job that shares no GPU never runs a line of GPU sharing: of its package, or of its seams."""

from collections.abc import Callable, Iterator
from pathlib import Path

import jsonpatch
import pytest

import kfext.gpu
from kfext import names
from kfext.core.admission.new_job import mutate_job
from kfext.core.admission.review import ReviewContext
from kfext.core.lifecycle.steps import Pin, SaveState, Unsuspend
from kfext.gpu.rules.turns import Turns
from kfext.model.moment import Moment
from kfext.model.namespace import Namespace
from kfext.model.pod import parse_pod
from tests.builders import JobBuilder, job
from tests.gpu_builders import sharing
from tests.traces import HOUSE, Call, executed
from tests.unit.sharing.stages import World

(WING,) = map(Path, kfext.gpu.__path__)
SEAMS = (
    *("core/admission/gpu", "core/ledger/cards", "core/lifecycle/cards"),
    *("model/gpu", "model/shared_gpu", "state/mirror/card_demand", "state/mirror/cards"),
)
"""The modules that connect GPU sharing to the rest of kfext."""
OF_ALL_PLANNERS = {"SeparatedJobs.__init__", "CardDemand.__init__", "Cards.__init__"}
"""The functions that a planner calls at its start in any case."""
CONTEXT = ReviewContext(namespace=Namespace("", {names.MANAGED: "true"}), controller_alive=True)


def of_gpu_sharing(calls: set[Call]) -> set[str]:
    """The functions of GPU sharing among some, such as core/ledger/cards.py Cards.count."""

    def named() -> Iterator[str]:
        seams = {HOUSE / f"{seam}.py" for seam in SEAMS}
        for file, name in calls:
            if file.is_relative_to(WING) or file in seams:
                yield f"{file.relative_to(HOUSE)} {name}"

    return {name for name in named() if name.split()[-1] not in OF_ALL_PLANNERS}


def create(builder: JobBuilder) -> JobBuilder:
    """The job webhook admits a job."""
    builder.raw = jsonpatch.apply_patch(builder.raw, list(mutate_job(builder.raw, CONTEXT).ops))
    return builder


STRANGER = {"kind": "Pod", "metadata": {"namespace": "other", "name": "p", "uid": "p"}, "spec": {}}
"""A pod that kube-scheduler may bind to any node."""


def run(world: World, *, gated: bool = False) -> None:
    """A held job of two pods starts, its pods get their nodes, and it ends.

    `gated`: whether its pods wait at the gate.
    """
    planner = world.planner
    if gated:
        planner.cluster.observe_pod(None, parse_pod(STRANGER))

    def work() -> None:
        """The other work of the controller."""
        assert not list(planner.card_steps(world.now))
        assert planner.next_alarm() > world.now

    assert isinstance(world.step(), Unsuspend)
    work()
    for index in range(2):
        assert not world.create(index)
        work()
    if gated:
        step = world.step()
        assert isinstance(step, Pin)
        assert len(step.pins) == 2
    assert world.reason() == names.REASON_WAITING_FOR_BIND
    for phase in ("Running", "Succeeded"):
        for number, raw in enumerate(world.pods.values()):
            raw["spec"]["nodeName"] = "n"
            raw["status"] = {"phase": phase}
            raw["metadata"]["resourceVersion"] = f"{len(phase)}{number}"
            world.see(f"pod-{number}")
        if phase == "Running" and not gated:
            assert isinstance(world.step(), SaveState)
        assert world.step() is None
        work()
    world.raw["status"] = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    world.show()
    assert world.reason() == names.REASON_FINISHED
    for raw in world.pods.values():
        planner.cluster.observe_pod(parse_pod(raw), None)
    planner.cluster.forget_job("uid-1")
    planner.tick(Moment(world.now, world.now))
    work()


def plain() -> JobBuilder:
    return job().worker(2, gpus=1)


@pytest.mark.parametrize("gated", [False, True])
def test_a_plain_job_goes_from_creation_to_its_end_without_gpu_sharing(*, gated: bool) -> None:
    calls = executed(lambda: run(World(create(plain()), slots=0), gated=gated))
    rooms = {file.relative_to(HOUSE).parts[0] for file, _ in calls if file.is_relative_to(HOUSE)}
    assert {"core", "model", "state"} <= rooms
    assert of_gpu_sharing(calls) == set()


def test_a_plain_job_runs_without_gpu_sharing_where_others_may_share_gpus() -> None:
    world = World(create(plain()))
    assert of_gpu_sharing(executed(lambda: run(world))) == set()


def wait() -> None:
    """A job waits for the end of another job until capacity is reserved for it."""
    world = World(create(plain()), slots=0)
    assert isinstance(world.step(), Unsuspend)
    world.planner.cluster.observe_job(create(job(uid="uid-2").worker(1, gpus=2)).raw)
    for _ in range(2):
        world.planner.tick(Moment(world.now, world.now))
        world.now += 1000
    assert world.planner.queue.reservations.current is not None


def test_a_plain_job_waits_without_gpu_sharing() -> None:
    assert of_gpu_sharing(executed(wait)) == set()


SHOWN: dict[str, tuple[Callable[[], object], str]] = {
    "in the wing": (Turns, "gpu/rules/turns.py Turns.__init__"),
    "in a seam": (
        lambda: World(create(sharing(priority="high"))).step(),
        "core/ledger/cards.py Cards.choose",
    ),
}


@pytest.mark.parametrize(("act", "want"), SHOWN.values(), ids=SHOWN)
def test_the_trace_shows_gpu_sharing_where_it_is_executed(
    act: Callable[[], object], want: str
) -> None:
    assert want in of_gpu_sharing(executed(act))
