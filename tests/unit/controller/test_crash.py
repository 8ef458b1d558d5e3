"""A job is placed although the controller dies after every write and remembers nothing."""

from collections.abc import Callable

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from kfext import names
from kfext.core.lifecycle.steps import Wait
from kfext.model.kinds.registered import KINDS
from tests.builders import WITH_TEMPLATES, job, node
from tests.unit.controller.model import FakeApi, FakeKubelets, FakeOperator, ForgetfulController

ROUNDS = 1000
LONG = 600.0
"""Seconds without a change after which no further change is expected."""


class World:
    """All that acts on the job, and the invariants after each act."""

    def __init__(self, *, kind: str, workers: int, cpus: list[int]) -> None:
        builder = job(kind).group(KINDS[kind].types[0], cpu="1").worker(workers, cpu="1")
        builder.held().condition("Suspended", since=0)
        disk = {"ephemeral-storage": "1Ti"}
        nodes = [node(f"n{number}", cpu=str(cpu), **disk) for number, cpu in enumerate(cpus)]
        self.api = FakeApi(builder.raw, nodes)
        self.operator = FakeOperator(self.api)
        self.kubelets = FakeKubelets(self.api)
        self.controller = ForgetfulController(self.api)

    def decide(self, *, skip: int = 0) -> bool:
        """Carry out one write of the next step, after skipping some writes of it, and die."""
        writes = list(self.controller.writes())
        if not writes:
            return False
        note(f"{self.api.now}: {type(self.controller.last_step).__name__}")
        writes[min(skip, len(writes) - 1)]()
        self.controller.die()
        self.check()
        return True

    def check(self) -> None:
        assert not self.operator.failed, "resumed while pods still ended"
        for host in self.api.nodes:
            assert self.api.load(host.name) <= host.allocatable["cpu"], "overcommitted"

    def settle(self) -> None:
        """Let all of them act until all of them only wait."""
        idle = 0.0
        for _ in range(ROUNDS):
            acted = self.decide() | self.operator.step() | self.kubelets.bind()
            acted |= self.kubelets.end()
            self.check()
            step = self.controller.last_step
            assert acted or isinstance(step, Wait)
            again = step.again if isinstance(step, Wait) and not acted else None
            if acted:
                idle = 0.0
            elif again is None or idle > LONG:
                return
            else:
                self.api.now, idle = self.api.now + again, idle + again
        raise AssertionError("they never only wait")

    def phase(self) -> str | None:
        list(self.controller.writes())
        step = self.controller.last_step
        return step.phase if isinstance(step, Wait) else None


worlds = st.builds(
    World,
    kind=st.sampled_from([*WITH_TEMPLATES]),
    workers=st.integers(1, 4),
    cpus=st.lists(st.integers(1, 4), min_size=3, max_size=4).filter(lambda cpus: sum(cpus) >= 5),
)


@pytest.mark.histories
@settings(max_examples=100, deadline=None)
@given(world=worlds, data=st.data())
def test_a_job_is_placed_wherever_the_controller_dies(world: World, data: st.DataObject) -> None:
    api = world.api
    actors = {
        "kfext writes": lambda: world.decide(skip=data.draw(st.integers(0, 3))),
        "the operator acts": world.operator.step,
        "kube-scheduler binds": world.kubelets.bind,
        "a pod ends": world.kubelets.end,
    }
    for _ in range(data.draw(st.integers(0, 40))):
        who = data.draw(st.sampled_from(sorted(actors)))
        note(who)
        actors[who]()
        world.check()
        api.now += data.draw(st.sampled_from([0.0, 0.1, 1.0]))
    world.settle()
    assert world.phase() == names.PLACED
    live = [pod for pod in api.parsed_pods() if pod.owner_uid]
    assert all(pod.node_name == pod.pinned_to for pod in live)
    assert sorted(api.pinned) == sorted(pod.uid for pod in live), "each pod is pinned once"
    assert len(api.started) == 1, "one plan was started"


@pytest.mark.histories
@settings(max_examples=100, deadline=None)
@given(world=worlds, data=st.data())
def test_a_job_is_placed_after_foreign_pods_are_gone(world: World, data: st.DataObject) -> None:
    api = world.api
    actors: dict[str, Callable[[], object]] = {
        "kfext writes": lambda: world.decide(skip=data.draw(st.integers(0, 3))),
        "the operator acts": world.operator.step,
        "kube-scheduler binds": world.kubelets.bind,
        "a pod ends": world.kubelets.end,
        "a foreign pod takes capacity": lambda: world.kubelets.bind_foreign(
            data.draw(st.sampled_from(api.nodes)), data.draw(st.sampled_from("123"))
        ),
    }
    for _ in range(data.draw(st.integers(0, 60))):
        who = data.draw(st.sampled_from(sorted(actors)))
        note(who)
        actors[who]()
        world.check()
        api.now += data.draw(st.sampled_from([0.0, 1.0, 20.0]))
    world.settle()
    # With or without capacity, no pod waits at kfext's gate, or is pinned, while others run.
    assert world.phase() in {names.PLACED, names.PHASE_RELEASED, names.QUEUED}
    for pod in api.parsed_pods():  # once foreign pods end, a job that waits must get their capacity
        if not pod.owner_uid:
            del api.pods[pod.uid]
    world.settle()
    assert world.phase() in {names.PLACED, names.PHASE_RELEASED}
    live = [pod for pod in api.parsed_pods() if pod.owner_uid]
    assert all(pod.node_name for pod in live)
    assert len(live) == api.parsed_job().pods


@pytest.mark.histories
@settings(max_examples=60, deadline=None)
@given(world=worlds, data=st.data())
def test_a_job_is_placed_if_the_operator_misses_a_start(world: World, data: st.DataObject) -> None:
    while world.decide():
        pass
    if data.draw(st.booleans()):
        world.operator.step()
    world.api.now += 31.0  # longer than createTimeout
    while world.decide():
        pass
    world.settle()
    assert world.phase() == names.PLACED
