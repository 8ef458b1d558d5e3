"""The hook of a low-priority job: its gate stands at few places of a step, chosen by measuring."""

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
"""The first steps are not measured: PyTorch chooses kernels and reserves memory in them. In all
these steps the gate stands at every module."""
_MAX_PASSES = 20_000
"""Learning ends after this many passes of a job without steps; the first half is not measured."""
_TOLERANCE = 0.2
"""New places are chosen if the ordered length of a micro-step changes by over this fraction."""
FORWARD, BACKWARD = "forward", "backward"
OPTIMIZER, REPLAY, _END = ("optimizer", 0), ("replay", 0), ("end", 0)

_Place = Tuple[str, int]
_Laps = List[Tuple[_Place, TimedMarker, TimedMarker]]
"""The places of a step in order. Each has two markers: at the end of the work before the place, and
at the start of the work after it."""


class LowPriorityHook:
    """Makes a PyTorch job pass the gate before modules and when backward reaches them.

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
        self._ordered_length = 0.0
        self._learning = Learning(
            steps=_IGNORED_STEPS + _LEARNING_STEPS,
            most=_MAX_PASSES,
            learn=self._learn,
            settle=self._settle,
        )
        calls.on_optimizers(lambda: self._pass_gate(OPTIMIZER), self._after_step, lambda: None)
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
        warmed_up = learning.steps >= _IGNORED_STEPS or learning.passes >= _MAX_PASSES // 2
        return warmed_up and not learning.settled

    def _learn(self) -> None:
        self._calls.unhook(self._handles)
        self._laps, self._modules, self._lengths = [[]], {}, {}
        if self._gate is not None:
            self._gate.watch()
        self._handles = self._calls.on_modules(self._before, self._after)

    def _settle(self) -> None:
        self._measured = [_seconds(laps) for laps in self._laps if len(laps) > 1]
        self._laps = []
        self._choose()

    def _choose(self) -> None:
        """Place the gate at few places, with at most one micro-step of work between two of them."""
        gate = self._gate
        assert gate is not None
        self._calls.unhook(self._handles)
        self._ordered_length = gate.micro_step()
        chosen = choose(self._measured, self._ordered_length) | {OPTIMIZER, REPLAY}
        self._lengths = micro_steps(self._measured, chosen)
        gate.show_longest(max(self._lengths.values(), default=0.0))
        for key, reference in self._modules.items():
            module = reference()
            if module is None:
                continue
            if (FORWARD, key) in chosen:
                enter = partial(self._enter, (FORWARD, key))
                self._handles.append(self._calls.before_forward(module, enter))
            if (BACKWARD, key) in chosen:
                hook_value = partial(self._enter_at_backward, (BACKWARD, key))
                self._handles.append(self._calls.after_forward(module, hook_value))

    def _before(self, module: Any) -> None:
        if self._calls.is_script(module):
            return  # the gate cannot stand at this module later
        self._modules[id(module)] = weakref.ref(module)
        self._pass_watched(FORWARD, id(module))

    def _after(self, module: Any, returned: Any) -> None:
        if not self._calls.is_script(module):
            key = id(module)
            self._calls.on_backward(returned, lambda: self._pass_watched(BACKWARD, key))

    def _enter_at_backward(self, place: _Place, returned: Any) -> None:
        self._calls.on_backward(returned, partial(self._enter, place))

    def _pass_watched(self, side: str, key: int) -> None:
        """Pass the gate at a module while all modules are watched."""
        self._pass_gate((side, key))
        if self._gate is not None:
            self._learning.record_pass()

    def _enter(self, place: _Place) -> None:
        """Pass the gate at a chosen place."""
        gate = self._joined_gate()
        if gate is not None:
            gate.enter(self._lengths.get(place, 0.0))
            self._learning.record_pass()

    def _replay(self) -> None:
        self._pass_gate(REPLAY)
        if self._gate is not None:
            self._learning.record_pass()

    def _pass_gate(self, place: _Place) -> None:
        """Pass the gate; while measuring, record the work from this place to the next."""
        gate = self._joined_gate()
        if gate is None:
            return
        if not self._measuring:
            gate.enter(self._lengths.get(place, 0.0))
            return
        ended = self._device.mark()
        gate.enter()
        self._laps[-1].append((place, ended, self._device.mark()))

    def _joined_gate(self) -> Gate | None:
        """Return the gate, or None before the process uses the card."""
        if self._gate is None and self._device.ready():
            self._gate = self._join()
        return self._gate

    def _after_step(self, optimizer: Any) -> None:
        gate = self._gate
        if gate is None:
            return
        self._learning.record_parameter(first_parameter(optimizer))
        gate.step()
        if self._measuring:  # _END excludes a wait for data from the optimizer's lap
            mark = self._device.mark()
            self._laps[-1].append((_END, mark, mark))
            self._laps.append([])
        self._learning.record_step()
        if self._learning.settled and _differs(gate.micro_step(), self._ordered_length):
            self._choose()


def _differs(ordered: float, before: float) -> bool:
    return abs(ordered - before) > _TOLERANCE * before


def _seconds(laps: _Laps) -> list[tuple[_Place, float]]:
    """Return the seconds of work on the card from each place to the next, without the last."""
    laps[-1][1].wait()
    return [
        (place, ended.seconds_since(began))
        for (place, _, began), (_, ended, _) in zip(laps, laps[1:])
    ]
