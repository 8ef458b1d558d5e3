"""The low-priority job: the gate stands at few places of each step, chosen after some steps."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, List, Tuple

from .device import Device, TimedMarker
from .gate import Gate
from .learning import Learning, choose, micro_steps
from .torch_calls import TorchCalls, first_parameter

_IGNORED_STEPS, _LEARNING_STEPS = 2, 5
"""At first kernels are chosen and memory is reserved; then the gate stands at every module."""
_MOST_PLACES = 20_000
"""Places that are watched if the job makes no steps; the first half is ignored."""
_TOLERANCE = 0.2
"""Other places are chosen if the ordered length of a micro-step changes by over this fraction."""
FORWARD, BACKWARD = "forward", "backward"
OPTIMIZER, REPLAY, _END = ("optimizer", 0), ("replay", 0), ("end", 0)

_Place = Tuple[str, int]
_Laps = List[Tuple[_Place, TimedMarker, TimedMarker]]
"""Places in order, each with markers at the end of the work before it and at its start."""


class LowPriorityHook:
    """Makes a training with PyTorch pass the gate before modules and when backward reaches them.

    `join` makes the gate when the process first submits work to the card. A place is FORWARD or
    BACKWARD with the id of a module; or OPTIMIZER; or REPLAY, of a CUDA graph. The gate always
    stands at OPTIMIZER and REPLAY.
    """

    def __init__(self, calls: TorchCalls, device: Device, join: Callable[[], Gate]) -> None:
        self._calls = calls
        self._device = device
        self._join = join
        self._gate: Gate | None = None
        self._handles: list[Any] = []
        self._modules: dict[int, weakref.ref[Any]] = {}
        self._laps: list[_Laps] = []
        self._measured: list[list[tuple[_Place, float]]] = []
        self._lengths: dict[Any, float] = {}
        self._wanted = 0.0
        self._learning = Learning(
            steps=_IGNORED_STEPS + _LEARNING_STEPS,
            most=_MOST_PLACES,
            learn=self._learn,
            settle=self._settle,
        )
        calls.on_optimizers(lambda: self._pass_gate(OPTIMIZER), self._stepped, lambda: None)
        calls.on_replays(self._replay, lambda: None)
        self._learn()

    def leave(self) -> None:
        """Drop the gate in a fork, which makes its own if it ever uses the card."""
        self._gate = None

    def stop(self) -> None:
        """Stop passing the gate."""
        self._calls.unhook(self._handles)
        if self._gate is not None:
            self._gate.abandon()

    @property
    def _measuring(self) -> bool:
        learning = self._learning
        looked = learning.steps >= _IGNORED_STEPS or learning.passes >= _MOST_PLACES // 2
        return looked and not learning.settled

    def _learn(self) -> None:
        self._calls.unhook(self._handles)
        self._laps, self._modules, self._lengths = [[]], {}, {}
        if self._gate is not None:
            self._gate.watch()
        self._handles = self._calls.on_modules(self._before, self._after)

    def _settle(self) -> None:
        self._measured = [_seconds(passed) for passed in self._laps if len(passed) > 1]
        self._laps = []
        self._choose()

    def _choose(self) -> None:
        """Place the gate at few places, with at most one micro-step of work between two of them."""
        gate = self._gate
        assert gate is not None
        self._calls.unhook(self._handles)
        self._wanted = gate.micro_step()
        chosen = choose(self._measured, self._wanted) | {OPTIMIZER, REPLAY}
        self._lengths = micro_steps(self._measured, chosen)
        gate.calibrated(max(self._lengths.values(), default=0.0))
        for key, reference in self._modules.items():
            module = reference()
            if module is None:
                continue
            if (FORWARD, key) in chosen:
                cross = partial(self._cross, (FORWARD, key))
                self._handles.append(self._calls.before_forward(module, cross))
            if (BACKWARD, key) in chosen:
                returned = partial(self._returned, (BACKWARD, key))
                self._handles.append(self._calls.after_forward(module, returned))

    def _before(self, module: Any) -> None:
        if self._calls.is_script(module):
            return  # the gate cannot stand at this module later
        self._modules[id(module)] = weakref.ref(module)
        self._look(FORWARD, id(module))

    def _after(self, module: Any, returned: Any) -> None:
        if not self._calls.is_script(module):
            key = id(module)
            self._calls.on_backward(returned, lambda: self._look(BACKWARD, key))

    def _returned(self, place: _Place, value: Any) -> None:
        self._calls.on_backward(value, partial(self._cross, place))

    def _look(self, side: str, key: int) -> None:
        """Pass the gate at a module while all modules are watched."""
        self._pass_gate((side, key))
        if self._gate is not None:
            self._learning.passed()

    def _cross(self, place: _Place) -> None:
        gate = self._joined()
        if gate is not None:
            gate.enter(self._lengths.get(place, 0.0))
            self._learning.passed()

    def _replay(self) -> None:
        self._pass_gate(REPLAY)
        if self._gate is not None:
            self._learning.passed()

    def _pass_gate(self, place: _Place) -> None:
        """Pass the gate; while measuring, record the work from this place to the next."""
        gate = self._joined()
        if gate is None:
            return
        if not self._measuring:
            gate.enter(self._lengths.get(place, 0.0))
            return
        ended = self._device.mark()
        gate.enter()
        self._laps[-1].append((place, ended, self._device.mark()))

    def _joined(self) -> Gate | None:
        if self._gate is None and self._device.ready():
            self._gate = self._join()
        return self._gate

    def _stepped(self, optimizer: Any) -> None:
        gate = self._gate
        if gate is None:
            return
        self._learning.see_parameter(first_parameter(optimizer))
        gate.step()
        if self._measuring:  # _END excludes a wait for data from the optimizer's lap
            mark = self._device.mark()
            self._laps[-1].append((_END, mark, mark))
            self._laps.append([])
        self._learning.stepped()
        if self._learning.settled and _differs(gate.micro_step(), self._wanted):
            self._choose()


def _differs(ordered: float, before: float) -> bool:
    return abs(ordered - before) > _TOLERANCE * before


def _seconds(passed: _Laps) -> list[tuple[_Place, float]]:
    """Return the work on the card from each place to the next; the last place has none."""
    passed[-1][1].wait()
    return [
        (place, ended.seconds_since(began))
        for (place, _, began), (_, ended, _) in zip(passed, passed[1:])
    ]
