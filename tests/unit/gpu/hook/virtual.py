"""Two jobs on one card in virtual time: the true hooks, gate and beacon, around a card that is only
arithmetic. All runs in the thread of the low job: its clock lets the rest of the world go on.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from kfext.gpu.hook import words
from kfext.gpu.hook.beacon import Beacon
from kfext.gpu.hook.device import TimedMarker
from kfext.gpu.hook.gate import Gate, Orders
from kfext.gpu.hook.low import LowPriorityHook
from kfext.gpu.hook.page import Page
from kfext.gpu.hook.waits import Clock, poll
from kfext.gpu.hook.words import NS
from tests.unit.gpu.hook.training import FakeCalls, Module, Output

MS = NS // 1000
NEVER = 2**62
SLICE, CHANGE = 2 * MS, 3 * MS // 10
"""Of the card: how long it serves one of two clients, and the cost of a change."""
LATE, OVERSLEEP, BELL, BEACON = (
    int(1.75 * MS),
    MS * 6 // 100,
    MS * 8 // 100,
    MS * 8 // 100,
)
"""The delays of a blocking wait, a sleep, a bell and the beacon's thread."""
LAYERS = 60
FORWARD, BACKWARD, OPTIMIZER = MS * 30 // 100, MS * 52 // 100, MS * 9 // 10
LAUNCH, LAUNCH_OPTIMIZER = MS * 3 // 100, MS // 2
"""Of the training: work on the card, and the time of Python before it is launched."""
BUSY = LAYERS * (FORWARD + BACKWARD) + OPTIMIZER
HIGH, LOW = 0, 1


class OverError(Exception):
    """The trial is over, perhaps while the low job stands at its gate."""


class World(Clock):
    """The clock of the low job; `at` schedules acts while it sleeps. Raises OverError."""

    def __init__(self, *, lasts: int) -> None:
        self.time = NS
        self._over = self.time + lasts
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()

    def now(self) -> int:
        return self.time

    def at(self, time: int, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), act))

    def sleep(self, seconds: float) -> None:
        self.go_on(self.time + int(seconds * NS) + OVERSLEEP)

    def go_on(self, until: int, done: Callable[[], bool] = lambda: False) -> None:
        """Let time pass, but no more than until something is done."""
        if self.time >= self._over:
            raise OverError
        while not done():
            if not self._events or self._events[0][0] > until:
                self.time = until
                return
            self.time, _, act = heapq.heappop(self._events)
            act()


class Marker:
    """An event of the card."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.at: int | None = None
        self.then: Callable[[], None] = lambda: None

    def reach(self) -> None:
        self.at = self._world.time
        self.then()

    def reached(self) -> bool:
        return self.at is not None

    def wait(self, expected: int | None = None) -> None:
        if self.reached() or (expected is not None and poll(self.reached, expected, self._world)):
            return
        self._world.go_on(NEVER, self.reached)
        self._world.go_on(self._world.time + LATE)

    def seconds_since(self, earlier: TimedMarker) -> float:
        assert isinstance(earlier, Marker)
        assert self.at is not None
        assert earlier.at is not None
        return (self.at - earlier.at) / NS


@dataclass
class Card:
    """It serves the clients with work in slices, kernel after kernel."""

    world: World
    uses: bool = True
    _work: tuple[deque[Any], deque[Any]] = field(default_factory=lambda: (deque(), deque()))
    _serves: int = LOW
    _plan: int = 0
    _since: int = 0
    _slice: int = SLICE

    def ready(self) -> bool:
        return self.uses

    def capturing(self) -> bool:
        return False

    def memory(self) -> int:
        return 0

    def launch(self, client: int, kernel: int) -> None:
        idle = not any(self._work)
        self._work[client].append([kernel])
        if idle:
            self._serve(client)
        elif client != self._serves and len(self._work[client]) == 1:
            self._settle()
            self._go_on()  # the slice of the other client ends now

    def mark(self, client: int = LOW) -> Marker:
        marker = Marker(self.world)
        if self._work[client]:
            self._work[client].append(marker)
        else:
            marker.reach()
        return marker

    def _serve(self, client: int) -> None:
        self._since = self.world.time + (CHANGE if client != self._serves else 0)
        self._serves, self._slice = client, SLICE
        self._go_on()

    def _settle(self) -> None:
        """Count the work served until now; reach the markers after it."""
        served = max(self.world.time - self._since, 0)
        queue = self._work[self._serves]
        if served:
            queue[0][0] -= served
            self._slice -= served
            self._since = self.world.time
        while queue and (isinstance(queue[0], Marker) or queue[0][0] <= 0):
            ended = queue.popleft()
            if isinstance(ended, Marker):
                ended.reach()

    def _go_on(self) -> None:
        self._plan += 1
        plan, left = self._plan, self._work[self._serves][0][0]
        if self._work[1 - self._serves]:
            left = min(left, max(self._slice, 0))
        self.world.at(max(self._since, self.world.time) + left, lambda: self._look(plan))

    def _look(self, plan: int) -> None:
        if plan != self._plan:
            return
        self._settle()
        own, other = self._work[self._serves], self._work[1 - self._serves]
        if other and (not own or self._slice <= 0):
            self._serve(1 - self._serves)
        elif own:
            self._slice = self._slice if self._slice > 0 else SLICE
            self._go_on()


class High:
    """A training with a beacon. `pauses`: its waits for data, drawn one by one."""

    def __init__(
        self, world: World, card: Card, pause: Callable[[], int], *, late: int = BEACON
    ) -> None:
        self.page = Page.make().words
        self.ends: list[int] = []
        self.bells = 0
        self._world, self._card, self._pause, self._late = world, card, pause, late
        self.beacon = Beacon(self.page, memory=lambda: 0, fail=_fail, clock=world)
        self._rest()

    def _rest(self) -> None:
        self._world.at(self._world.time + self._pause(), self._come)

    def _come(self) -> None:
        self.page[words.HEARTBEAT] = 2**63  # the beacon's own thread uses another clock
        self._launch_soon(BUSY, self.beacon.begin())

    def _launch_soon(self, left: int, begun: int) -> None:
        self._world.at(self._world.time + MS // 10, lambda: self._launch(left, begun))

    def _launch(self, left: int, begun: int) -> None:
        kernel = min(left, 2 * MS)
        self._card.launch(HIGH, kernel)
        if left > kernel:
            self._launch_soon(left - kernel, begun)
        else:
            self._card.mark(HIGH).then = lambda: self._ended(begun)

    def _ended(self, begun: int) -> None:
        self.ends.append(self._world.time)
        self.beacon.step()
        self._world.at(self._world.time + self._late, lambda: self._become_idle(begun))
        self._rest()

    def _become_idle(self, begun: int) -> None:
        if self.page[words.BUSY] and self.beacon._begun == begun:
            self.beacon._become_idle(begun)
            self.bells += 1


def _fail(error: Exception) -> None:
    raise error


class SharedGate(Gate):
    """A gate that hears the bell in virtual time."""

    def __init__(self, page: memoryview, orders: Orders, card: Card, high: High | None) -> None:
        super().__init__(page, orders, card, card.world)
        self._world, self._high = card.world, high

    def _listen(self) -> None:
        if self._high is None:
            self._clock.sleep(self._nap)
            return
        high, rung = self._high, self._high.bells
        self._world.go_on(self._world.time + int(self._nap * NS), lambda: high.bells > rung)
        self._world.go_on(self._world.time + BELL)


class Low:
    """A training that never waits for data, hooked like any other. `graph`: as one CUDA graph."""

    def __init__(self, card: Card, high: High | None, micro_step: float, *, graph: bool) -> None:
        self.page, self.orders = Page.make().words, Orders()
        self.orders.page = Page.make().words
        self.orders.page[words.LEASE] = self.orders.page[words.TURN] = 2**63
        self.orders.page[words.MODE] = words.FREE if high is None else words.GATED
        self.orders.page[words.MICRO_STEP_NS] = int(micro_step * NS)
        self.orders.high_pages = () if high is None else (high.page,)
        self.ends: list[int] = []
        self._card, self._world = card, card.world
        self._calls = FakeCalls()
        self._modules = [Module() for _ in range(LAYERS)]
        self._graph = graph
        self.gate = SharedGate(self.page, self.orders, card, high)
        self.hook = LowPriorityHook(self._calls, card, lambda: self.gate)

    def step(self) -> None:
        if self._graph:
            self._calls.before_replay()
            self._launch(BUSY - OPTIMIZER)
            self._calls.after_replay()
        else:
            self._train_layers()
        self._calls.before_step()
        self._launch(OPTIMIZER, LAUNCH_OPTIMIZER)
        self._calls.after_step(self._calls.optimizer)
        self._world.go_on(NEVER, self._card.mark().reached)  # it reads the loss
        self.ends.append(self._world.time)
        self._world.go_on(self._world.time + LAUNCH)

    def _train_layers(self) -> None:
        calls, outputs = self._calls, []
        for module in self._modules:
            for before in (*calls.all_before, *(_bare(act) for act in module.before)):
                before(module)
            self._launch(FORWARD)
            outputs.append(Output(module))
            for after in calls.all_after:
                after(module, outputs[-1])
            for returned in module.after:
                returned(outputs[-1])
        for output in reversed(outputs):
            for act in output.hooks:
                act()
            self._launch(BACKWARD)

    def _launch(self, kernel: int, seconds: int = LAUNCH) -> None:
        self._world.go_on(self._world.time + seconds)
        self._card.launch(LOW, kernel)
        self._world.go_on(self._world.time + LAUNCH)


def _bare(act: Callable[[], None]) -> Callable[[Any], None]:
    return lambda _: act()


@dataclass(frozen=True)
class Rates:
    """Steps a second of each job."""

    high: float
    low: float


def trained(
    pause: Callable[[random.Random], float] | None,
    *,
    low: bool = True,
    micro_step: float = 0.005,
    seconds: float = 10.0,
    warm: float = 2.0,
    late: int = BEACON,
    graph: bool = False,
) -> Rates:
    """Return the rates of jobs that train for some virtual seconds.

    `pause`: draws a pause of the high job in seconds; None: there is no high job. `late`: by how
    many nanoseconds its beacon is. `graph`: whether the low job is one CUDA graph.
    """
    world, chance = World(lasts=int(seconds * NS)), random.Random(1)
    card = Card(world)
    high = None if pause is None else High(world, card, lambda: int(pause(chance) * NS), late=late)
    job = Low(card, high, micro_step, graph=graph) if low else None
    with suppress(OverError):
        while job is not None:
            job.step()
        world.go_on(world.time + int(seconds * NS))
    if high is not None:
        high.beacon.stop()
    since = NS + int(warm * NS)
    return Rates(*(_rate(ends.ends if ends else [], since) for ends in (high, job)))


def _rate(ends: list[int], since: int) -> float:
    counted = [end for end in ends if end >= since]
    return (len(counted) - 1) * NS / (counted[-1] - counted[0]) if len(counted) > 2 else 0.0
