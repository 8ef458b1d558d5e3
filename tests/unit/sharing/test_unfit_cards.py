"""Cards that cannot be shared are not reserved again and again, and the reason is shown."""

from collections.abc import Callable

import pytest

from kfext import names
from kfext.core.lifecycle.steps import Step, Suspend, Unsuspend
from kfext.model.gpu import UNITS, resource_of
from kfext.model.job_state import EXCLUDED_SECONDS
from kfext.model.node import Node
from kfext.model.shared_gpu import SharedGpu
from kfext.names import NATIVE_GPU
from kfext.state.mirror.cards import Reserve, Unreserve
from tests.builders import moment
from tests.gpu_builders import reservation, sharing, slot
from tests.unit.sharing.stages import World, admitted, remove

SEVERAL = "NVIDIA's device plugin allocates it to several pods at once"
HOURS = 2


def agent_that_forgets(*, reserved: bool, met: bool) -> SharedGpu:
    """Return the report of an agent that forgets which cards cannot be shared."""
    if reserved:
        return slot("n", 0, card="GPU-0::1", healthy=False, trouble=SEVERAL)
    return slot("n", 0)


def agent_that_learns(*, reserved: bool, met: bool) -> SharedGpu:
    """Return the report of an agent that knows it after the first reservation (`met`)."""
    if met and not reserved:
        return slot("n", 0, healthy=False, trouble=SEVERAL)
    return agent_that_forgets(reserved=reserved, met=met)


def agent_that_knows(*, reserved: bool, met: bool) -> SharedGpu:
    """Return the report of an agent that knows it before any card is reserved."""
    return agent_that_learns(reserved=reserved, met=True)


Agent = Callable[..., SharedGpu]


class Replicated(World):
    """A node with a GPU that NVIDIA's plugin allocates twice, and a job that wants half of it."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(admitted(sharing("0.5", priority="high")))
        cluster, self._agent, self.starts, self.reserved = self.planner.cluster, agent, 0, 0
        cluster.observe_card(slot("n", 1), None)
        self._report()

    def _report(self) -> None:
        card = self._agent(reserved=bool(self._held()), met=self.reserved > 0)
        cluster, known = self.planner.cluster, self.planner.cluster.ledger.node("n")
        cluster.observe_card(None, card)
        # kubelet offers no units of an unhealthy slot.
        units = {resource_of(0): UNITS} if card.healthy else {}
        plain = {NATIVE_GPU: 1, "cpu": 64_000, "memory": 2**38, "pods": 110}
        cluster.observe_node(known, Node("n", {**plain, **units}))

    def _held(self) -> list[object]:
        return list(self.planner.cluster.claim_tracker.cards.reserved.values())

    def pass_second(self) -> Step | None:
        """Let operator, kubelet and agent act for a second; return the planner's step."""
        self.now += 1
        step = self.step()
        if isinstance(step, Unsuspend):
            self.starts += 1
            self.raw["status"] = {}
            self.show()
            self.create()
        elif isinstance(step, Suspend):
            if self.pods:
                remove(self)
            since = {"lastTransitionTime": moment(self.now)}
            condition = {"type": "Suspended", "status": "True", **since}
            self.raw["status"] = {"conditions": [condition]}
            self.show()
        for due in list(self.planner.card_steps(self.now)):
            match due:
                case Reserve():
                    self.reserved += 1
                    self.planner.cluster.observe_pod(None, reservation("n", 0))
                case Unreserve():
                    self.planner.cluster.observe_pod(due.pod, None)
            self.planner.cards.finish(due, self.now)
        self._report()
        return step

    def message(self) -> str:
        """Return the message of the waiting job."""
        (tracked,) = self.planner.cluster.jobs.values()
        assert tracked.verdict is not None
        return tracked.verdict.message


AGENTS: dict[str, tuple[Agent, int]] = {
    "the agent forgets the cards that it has seen": (
        agent_that_forgets,
        HOURS * 3600 // int(EXCLUDED_SECONDS),
    ),
    "the agent learns the cards": (agent_that_learns, 1),
    "the agent knows the cards beforehand": (agent_that_knows, 0),
}


@pytest.mark.parametrize(("agent", "most"), AGENTS.values(), ids=AGENTS)
def test_a_card_that_cannot_be_shared_is_not_reserved_again_and_again(
    agent: Agent, most: int
) -> None:
    world = Replicated(agent)
    steps = [world.pass_second() for _ in range(HOURS * 3600)]
    assert min(most, 1) <= world.starts <= most
    assert world.reserved == world.starts
    stops = [step.state for step in steps if isinstance(step, Suspend)]
    assert [state.strikes for state in stops] == list(range(1, world.starts + 1))
    for state in stops:
        assert (state.reason, list(state.excluded)) == (names.REASON_CARD_LOST, ["n"])
        assert state.message == f"slot 0 of n cannot be shared: {SEVERAL}"
    if agent is not agent_that_forgets:
        assert f"1 slot cannot be shared: {SEVERAL}" in world.message()
    assert not world._held()


@pytest.mark.parametrize("agent", [agent_that_forgets, agent_that_learns])
def test_the_reason_is_shown_while_the_job_backs_off_and_as_long_as_the_node_is_excluded(
    agent: Agent,
) -> None:
    world = Replicated(agent)
    while not isinstance(world.pass_second(), Suspend):
        pass
    for _ in range(int(EXCLUDED_SECONDS) - 1):
        world.pass_second()
        assert SEVERAL in world.message()


def test_a_card_that_can_be_shared_again_is_shared() -> None:
    world = Replicated(agent_that_knows)
    for _ in range(60):
        world.pass_second()
    assert world.starts == 0
    world._agent = lambda **_: slot("n", 0)
    world._report()
    assert isinstance(world.pass_second(), Unsuspend)
