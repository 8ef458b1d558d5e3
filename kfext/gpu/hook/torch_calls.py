"""How the hook hears of what a training does with PyTorch, 1.13 or later.

Never by full-backward hooks of modules, which break ReLU in place: a hook on the tensors that a
module returns is called when backward comes to that module.

Nothing is heard while torch.compile traces, nor while a CUDA graph is captured: what is done then
would become a part of the graph, or make the capture fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import islice
from typing import Any

from .all_modules import AllModules
from .device import Device
from .switch import Switch
from .torch_optimizers import announced, innermost, wrap_classes
from .torch_scripts import Hook

_MOST_HELD = 200
"""Among how many things tensors are looked for in what a module returns."""


class TorchCalls:
    """Has functions called at what a training does; they go through the switch, so cannot fail."""

    def __init__(self, torch: Any, device: Device, switch: Switch) -> None:
        self._torch = torch
        self._device = device
        self._switch = switch
        self._traced = compiling(torch)
        self._all_modules: AllModules | None = None

    def _guard(self, act: Callable[..., None]) -> Callable[..., None]:
        def live(*args: Any) -> None:
            if not self._device.capturing():
                act(*args)

        return self._switch.guard(live, self._traced)

    def on_modules(
        self, before: Callable[[Any], None], after: Callable[[Any, Any], None]
    ) -> list[Any]:
        """Have each module's forward announced: before it, and after it with what it returned.

        Return the handles by which that ends.
        """
        if self._all_modules is None:
            self._all_modules = AllModules(self._torch.nn.modules.module, self._guard)
        return [self._all_modules.hooked(before, after)]

    def before_forward(self, module: Any, act: Callable[[], None]) -> Any:
        """Have each forward of one module announced; return the handle by which that ends."""
        return module.register_forward_pre_hook(Hook(self._guard(act)))

    def after_forward(self, module: Any, act: Callable[[Any], None]) -> Any:
        """Have what one module returns announced each time; return the handle that ends it."""
        return module.register_forward_hook(Hook(self._guard(act)))

    def is_script(self, module: Any) -> bool:
        """Return whether a module is compiled by TorchScript: it takes no hook of its own then."""
        return isinstance(module, self._torch.jit.ScriptModule)

    def unhook(self, handles: list[Any]) -> None:
        """End all that some handles stand for, and forget them."""
        while handles:
            handles.pop().remove()

    def on_backward(self, returned: Any, act: Callable[[], None]) -> bool:
        """Have `act` called when backward comes to what a module returned; gradients stay the same.

        Return whether it can come there. A tensor that is no result, such as a parameter, is passed
        over: it would keep all hooks.
        """
        act, results = self._guard(act), 0
        for one in tensors(self._torch, returned):
            if one.requires_grad and one.grad_fn is not None:
                one.register_hook(lambda _: act())
                results += 1
        return results > 0

    def after_backward(self, act: Callable[[], None]) -> None:
        """Have `act` called at the end of the backward in which this is called."""
        engine = self._torch.autograd.Variable._execution_engine
        engine.queue_callback(self._guard(act))

    def in_backward(self) -> bool:
        """Return whether this thread is within a backward."""
        engine = self._torch.autograd.Variable._execution_engine
        try:
            engine.queue_callback(_nothing)
        except RuntimeError:
            return False
        return True

    def on_optimizers(
        self,
        before: Callable[[], None],
        after: Callable[[Any], None],
        around: Callable[[], None],
    ) -> None:
        """Have the steps of all optimizers announced, for as long as the process lives.

        `after` is given the optimizer. If its step calls that of another one, that alone counts;
        after the step around it `around` is called instead.
        """
        begin, end = innermost(before, after, around)
        before, after = self._guard(begin), self._guard(end)
        optimizer = import_module("torch.optim.optimizer")  # torch.optim hides it in some versions
        if hasattr(optimizer, "register_optimizer_step_post_hook"):
            optimizer.register_optimizer_step_pre_hook(lambda *_: before())
            optimizer.register_optimizer_step_post_hook(lambda made, *_: after(made))
            return
        wrap_classes(self._torch.optim.Optimizer, before, after)

    def on_replays(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        """Have the replays of all CUDA graphs announced, for as long as the process lives.

        What the training does in a graph calls no hook: it is heard of as a whole.
        """
        graph = getattr(self._torch.cuda, "CUDAGraph", None)
        if graph is not None:
            before, after = self._guard(before), self._guard(after)
            graph.replay = announced(graph.replay, before, lambda _: after())


def _nothing() -> None:
    """Do nothing, at the end of a backward."""


def compiling(torch: Any) -> Callable[[], bool]:
    """Return what tells whether torch.compile is tracing; that must be a function it knows."""
    known = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    if known is None and hasattr(torch, "compile"):  # 2.0 has it elsewhere
        known = getattr(import_module("torch._dynamo"), "is_compiling", None)
    return known if known is not None else lambda: False


def tensors(torch: Any, value: Any) -> Iterator[Any]:
    """Yield the tensors in what a module returned: in tuples, lists, dicts and objects, nested."""
    found = [value]
    for one in found:  # which grows meanwhile
        if issubclass(type(one), torch.Tensor):  # isinstance() may run code of a proxy
            yield one
        elif len(found) < _MOST_HELD:
            found.extend(islice(_held(torch, one), _MOST_HELD))


def _held(torch: Any, value: Any) -> Iterable[Any]:
    try:
        if isinstance(value, dict):
            return value.values()
        if isinstance(value, (list, tuple)):
            return value
        if isinstance(value, torch.nn.Module):
            return ()
        return getattr(value, "__dict__", {}).values()
    except Exception:  # it is the program's own object, such as a proxy that is not bound
        return ()
