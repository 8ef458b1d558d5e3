"""Two jobs on one simulated card, in virtual time, with the real hooks, gate and beacon.

Everything runs in the thread of the low-priority job (low): its clock also runs the card and the
high-priority job (high). Times are in nanoseconds, unless stated otherwise.
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
"""How long the card serves one of two clients at a time, and the time of a change of clients."""
LATE, OVERSLEEP, BELL, BEACON = int(1.75 * MS), MS * 6 // 100, MS * 8 // 100, MS * 8 // 100
"""The delays of a blocking wait, a sleep, a bell and the beacon's thread.

The beacon wakes a job at its gate through a socket, the bell.
"""
LAYERS = 60
FORWARD, BACKWARD, OPTIMIZER = MS * 30 // 100, MS * 52 // 100, MS * 9 // 10
"""The work on the card of a layer in forward and in backward, and of the optimizer."""
LAUNCH, LAUNCH_OPTIMIZER = MS * 3 // 100, MS // 2
"""The time that Python takes to launch a kernel of a layer, and the kernels of the optimizer."""
BUSY = LAYERS * (FORWARD + BACKWARD) + OPTIMIZER
"""The work of a step."""
HIGH, LOW = 0, 1


class OverError(Exception):
    """The simulated time is over, perhaps while low waits at its gate."""


class World(Clock):
    """The clock of low, and all that happens while it sleeps; `at` schedules it."""

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
        self.advance(self.time + int(seconds * NS) + OVERSLEEP)

    def advance(self, until: int, done: Callable[[], bool] = lambda: False) -> None:
        """Let time pass until a moment, or until `done` returns true. Raises OverError."""
        if self.time >= self._over:
            raise OverError
        while not done():
            if not self._events or self._events[0][0] > until:
                self.time = until
                return
            self.time, _, act = heapq.heappop(self._events)
            act()


class Marker:
    """An event of the card. `then`: called when it is reached."""

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
        self._world.advance(NEVER, self.reached)
        self._world.advance(self._world.time + LATE)

    def seconds_since(self, earlier: TimedMarker) -> float:
        assert isinstance(earlier, Marker)
        assert self.at is not None
        assert earlier.at is not None
        return (self.at - earlier.at) / NS


@dataclass
class Card:
    """A card that serves the clients with work in time slices, kernel after kernel.

    `_work`: for each client its queue of markers and kernels; a kernel is a list with one item, its
    remaining time. `_scheduled`: the number of the latest scheduled event; earlier events are void.
    """

    world: World
    in_use: bool = True
    _work: tuple[deque[Any], deque[Any]] = field(default_factory=lambda: (deque(), deque()))
    _client: int = LOW
    _scheduled: int = 0
    _since: int = 0
    _slice_left: int = SLICE

    def ready(self) -> bool:
        return self.in_use

    def capturing(self) -> bool:
        return False

    def memory(self) -> int:
        return 0

    def launch(self, client: int, kernel: int) -> None:
        idle = not any(self._work)
        self._work[client].append([kernel])
        if idle:
            self._serve(client)
        elif client != self._client and len(self._work[client]) == 1:
            self._settle()
            self._schedule_next()  # the client that is served keeps only the rest of its slice

    def mark(self, client: int = LOW) -> Marker:
        marker = Marker(self.world)
        if self._work[client]:
            self._work[client].append(marker)
        else:
            marker.reach()
        return marker

    def _serve(self, client: int) -> None:
        self._since = self.world.time + (CHANGE if client != self._client else 0)
        self._client, self._slice_left = client, SLICE
        self._schedule_next()

    def _settle(self) -> None:
        """Subtract the work done until now, and reach the markers after it."""
        served = max(self.world.time - self._since, 0)
        queue = self._work[self._client]
        if served:
            queue[0][0] -= served
            self._slice_left -= served
            self._since = self.world.time
        while queue and (isinstance(queue[0], Marker) or queue[0][0] <= 0):
            ended = queue.popleft()
            if isinstance(ended, Marker):
                ended.reach()

    def _schedule_next(self) -> None:
        self._scheduled += 1
        number, left = self._scheduled, self._work[self._client][0][0]
        if self._work[1 - self._client]:
            left = min(left, max(self._slice_left, 0))
        self.world.at(max(self._since, self.world.time) + left, lambda: self._continue(number))

    def _continue(self, number: int) -> None:
        if number != self._scheduled:
            return
        self._settle()
        current, other = self._work[self._client], self._work[1 - self._client]
        if other and (not current or self._slice_left <= 0):
            self._serve(1 - self._client)
        elif current:
            self._slice_left = self._slice_left if self._slice_left > 0 else SLICE
            self._schedule_next()


class High:
    """A high-priority job. `pause`: draws its next wait for data. `late`: the beacon's delay."""

    def __init__(
        self, world: World, card: Card, pause: Callable[[], int], *, late: int = BEACON
    ) -> None:
        self.page = Page.make().words
        self.ends: list[int] = []
        self.bells = 0
        self._world, self._card, self._pause, self._late = world, card, pause, late
        self.beacon = Beacon(self.page, memory=lambda: 0, fail=_fail, clock=world)
        self._begin_pause()

    def _begin_pause(self) -> None:
        self._world.at(self._world.time + self._pause(), self._begin_step)

    def _begin_step(self) -> None:
        self.page[words.HEARTBEAT] = 2**63  # never stale: its thread uses another clock
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
        self._begin_pause()

    def _become_idle(self, begun: int) -> None:
        if self.page[words.BUSY] and self.beacon._begun == begun:
            self.beacon._become_idle(begun)
            self.bells += 1


def _fail(error: Exception) -> None:
    raise error


class SharedGate(Gate):
    """A gate that waits for the bell in virtual time."""

    def __init__(self, page: memoryview, orders: Orders, card: Card, high: High | None) -> None:
        super().__init__(page, orders, card, card.world)
        self._world, self._high = card.world, high

    def _listen(self) -> None:
        if self._high is None:
            self._clock.sleep(self._nap)
            return
        high, rung = self._high, self._high.bells
        self._world.advance(self._world.time + int(self._nap * NS), lambda: high.bells > rung)
        self._world.advance(self._world.time + BELL)


class Low:
    """A low-priority job that never waits for data.

    `micro_step`: in seconds. `graph`: whether it replays a CUDA graph.
    """

    def __init__(self, card: Card, high: High | None, micro_step: float, *, graph: bool) -> None:
        self.page, self.orders = Page.make().words, Orders()
        self.orders.page = Page.make().words
        # Orders that never end: there is no agent to renew them.
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
        self._world.advance(NEVER, self._card.mark().reached)  # it reads the loss
        self.ends.append(self._world.time)
        self._world.advance(self._world.time + LAUNCH)  # until Python continues

    def _train_layers(self) -> None:
        calls, outputs = self._calls, []
        for module in self._modules:
            for before in (*calls.all_before, *(_ignoring_argument(act) for act in module.before)):
                before(module)
            self._launch(FORWARD)
            outputs.append(Output(module))
            for after in calls.all_after:
                after(module, outputs[-1])
            for after_forward in module.after:
                after_forward(outputs[-1])
        for output in reversed(outputs):
            for act in output.hooks:
                act()
            self._launch(BACKWARD)

    def _launch(self, kernel: int, takes: int = LAUNCH) -> None:
        self._world.advance(self._world.time + takes)
        self._card.launch(LOW, kernel)
        self._world.advance(self._world.time + LAUNCH)  # until Python continues


def _ignoring_argument(act: Callable[[], None]) -> Callable[[Any], None]:
    return lambda _: act()


@dataclass(frozen=True)
class Rates:
    """Steps a second of each job."""

    high: float
    low: float


def step_rates(
    pause: Callable[[random.Random], float] | None,
    *,
    low: bool = True,
    micro_step: float = 0.005,
    seconds: float = 10.0,
    warm: float = 2.0,
    late: int = BEACON,
    graph: bool = False,
) -> Rates:
    """Return the rates of jobs that train for `seconds` of virtual time.

    `warm`: the first seconds, which are not measured. `micro_step`: see `Low`.
    `pause`: draws a pause of high in seconds; None means that there is only low. `low`: whether
    there is low. `late`: the delay of high's beacon, in nanoseconds. `graph`: see `Low`.
    """
    world, rng = World(lasts=int(seconds * NS)), random.Random(1)
    card = Card(world)
    high = None if pause is None else High(world, card, lambda: int(pause(rng) * NS), late=late)
    job = Low(card, high, micro_step, graph=graph) if low else None
    with suppress(OverError):
        if job is None:
            world.advance(world.time + int(seconds * NS))
        else:
            while True:
                job.step()  # until OverError
    if high is not None:
        high.beacon.stop()
    since = NS + int(warm * NS)
    return Rates(*(_rate(trained.ends if trained else [], since) for trained in (high, job)))


def _rate(ends: list[int], since: int) -> float:
    counted = [end for end in ends if end >= since]
    return (len(counted) - 1) * NS / (counted[-1] - counted[0]) if len(counted) > 2 else 0.0
