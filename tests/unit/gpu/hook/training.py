"""A fake of PyTorch for the hooks; the test makes the calls of a training job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kfext.gpu.hook.torch_calls import TorchCalls

Act = Callable[..., None]


@dataclass(slots=True)
class Handle:
    """Removes one hook."""

    hooks: list[Act]
    act: Act

    def remove(self) -> None:
        self.hooks.remove(self.act)


class Module:
    """A module with its own hooks and children. `script`: it takes no hooks."""

    def __init__(self, *children: Module, script: bool = False) -> None:
        self.children = children
        self.script = script
        self.before: list[Act] = []
        self.after: list[Act] = []


@dataclass
class Output:
    """The result of a forward: the calls when backward reaches it, and the inner modules."""

    module: Module
    hooks: list[Act] = field(default_factory=list)


class Parameter:
    """A parameter of a model."""


class Optimizer:
    """An optimizer with some parameters of a model."""

    def __init__(self, *parameters: Parameter) -> None:
        self.param_groups = [{"params": list(parameters)}]


class FakeCalls(TorchCalls):
    """Hooks its own fake training instead of PyTorch. `infers`: whether outputs need no backward.

    `outputs`: the results of the forwards since the last backward.
    """

    def __init__(self) -> None:
        self.all_before: list[Act] = []
        self.all_after: list[Act] = []
        self.before_step: Act
        self.after_step: Act
        self.before_replay: Act
        self.after_replay: Act
        self.outputs: list[Output] = []
        self.at_backward_end: list[Act] = []
        self.optimizer = Optimizer()
        self.in_backward_ = self.infers = False

    def in_backward(self) -> bool:
        return self.in_backward_

    def on_modules(self, before: Act, after: Act) -> list[Any]:
        self.all_before.append(before)
        self.all_after.append(after)
        return [Handle(self.all_before, before), Handle(self.all_after, after)]

    def before_forward(self, module: Module, act: Act) -> Handle:
        assert not module.script
        module.before.append(act)
        return Handle(module.before, act)

    def after_forward(self, module: Module, act: Act) -> Handle:
        module.after.append(act)
        return Handle(module.after, act)

    def is_script(self, module: Module) -> bool:
        return module.script

    def on_backward(self, returned: Output, act: Act) -> bool:
        if self.infers:
            return False
        returned.hooks.append(act)
        return True

    def after_backward(self, act: Act) -> None:
        self.at_backward_end.append(act)

    def on_optimizers(self, before: Act, after: Act, around: Act) -> None:
        self.before_step, self.after_step = before, after

    def on_replays(self, before: Act, after: Act) -> None:
        self.before_replay, self.after_replay = before, after

    def forward(self, module: Module) -> None:
        """Call a module, which calls its children."""
        for act in self.all_before:
            act(module)
        for act in tuple(module.before):
            act()
        for child in module.children:
            self.forward(child)
        output = Output(module)
        for act in self.all_after:
            act(module, output)
        for act in tuple(module.after):
            act(output)
        self.outputs.append(output)

    def backward(self, *, recomputed: Module | None = None) -> None:
        """Run backward through all forwards.

        `recomputed`: a module that activation checkpointing calls again during backward.
        """
        outputs, self.outputs = self.outputs, []
        self.in_backward_ = True
        for output in reversed(outputs):
            for act in output.hooks:
                act()
        if recomputed is not None:
            self.forward(recomputed)
            self.outputs = []
        self.in_backward_ = False
        final, self.at_backward_end = self.at_backward_end, []
        for act in final:
            act()

    def step(self, optimizers: int = 1) -> None:
        """Make a step of each of some optimizers."""
        for _ in range(optimizers):
            self.before_step()
            self.after_step(self.optimizer)

    def train(self, module: Module, steps: int, *, optimizers: int = 1) -> None:
        """Train a model for some iterations, each with a step of each optimizer."""
        for _ in range(steps):
            self.forward(module)
            self.backward()
            self.step(optimizers)
