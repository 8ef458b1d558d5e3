"""How the hook follows a training with PyTorch, 1.13 or later.

Full-backward hooks of modules break ReLU in place, so they are not used. Instead, hooks on the
tensors that a module returns are called when backward reaches the module.

Nothing is followed while torch.compile traces or while a CUDA graph is captured: the hook's work
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
"""Most objects searched for tensors in what a module returns."""


class TorchCalls:
    """Calls functions at events of a training; they go through the switch, so they cannot fail."""

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
        """Announce the forward of each module: before it, and after it with the returned value.

        Return the handles that end this.
        """
        if self._all_modules is None:
            self._all_modules = AllModules(self._torch.nn.modules.module, self._guard)
        return [self._all_modules.hooked(before, after)]

    def before_forward(self, module: Any, act: Callable[[], None]) -> Any:
        """Announce each forward of one module; return the handle that ends this."""
        return module.register_forward_pre_hook(Hook(self._guard(act)))

    def after_forward(self, module: Any, act: Callable[[Any], None]) -> Any:
        """Announce each returned value of one module; return the handle that ends this."""
        return module.register_forward_hook(Hook(self._guard(act)))

    def is_script(self, module: Any) -> bool:
        """Return whether a module is compiled by TorchScript and so takes no hook of its own."""
        return isinstance(module, self._torch.jit.ScriptModule)

    def unhook(self, handles: list[Any]) -> None:
        """End what the handles stand for, and forget them."""
        while handles:
            handles.pop().remove()

    def on_backward(self, returned: Any, act: Callable[[], None]) -> bool:
        """Call `act` when backward reaches what a module returned; gradients stay the same.

        Return whether backward can reach it. Tensors that are no results, such as parameters, are
        skipped: they would keep all hooks.
        """
        act, results = self._guard(act), 0
        for tensor in tensors(self._torch, returned):
            if tensor.requires_grad and tensor.grad_fn is not None:
                tensor.register_hook(lambda _: act())
                results += 1
        return results > 0

    def after_backward(self, act: Callable[[], None]) -> None:
        """Call `act` at the end of the present backward."""
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
        """Announce the steps of all optimizers, while the process lives.

        `after` gets the optimizer. If a step calls the step of another optimizer, only the inner
        step counts; `around` is called after the outer step instead.
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
        """Announce the replays of all CUDA graphs, while the process lives.

        Work inside a graph calls no hook, so only the whole replay is announced.
        """
        graph = getattr(self._torch.cuda, "CUDAGraph", None)
        if graph is not None:
            before, after = self._guard(before), self._guard(after)
            graph.replay = announced(graph.replay, before, lambda _: after())


def _nothing() -> None:
    """Do nothing, at the end of a backward."""


def compiling(torch: Any) -> Callable[[], bool]:
    """Return a function that tells whether torch.compile is tracing; torch.compile must know it."""
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    if is_compiling is None and hasattr(torch, "compile"):  # 2.0 has the function in another module
        is_compiling = getattr(import_module("torch._dynamo"), "is_compiling", None)
    return is_compiling if is_compiling is not None else lambda: False


def tensors(torch: Any, value: Any) -> Iterator[Any]:
    """Yield the tensors in what a module returned: in tuples, lists, dicts and objects, nested."""
    items = [value]
    for item in items:  # the list grows meanwhile
        if issubclass(type(item), torch.Tensor):  # isinstance() may run code of a proxy
            yield item
        elif len(items) < _MOST_HELD:
            items.extend(islice(_held(torch, item), _MOST_HELD))


def _held(torch: Any, value: Any) -> Iterable[Any]:
    try:
        if isinstance(value, dict):
            return value.values()
        if isinstance(value, (list, tuple)):
            return value
        if isinstance(value, torch.nn.Module):
            return ()
        return getattr(value, "__dict__", {}).values()
    except Exception:  # the object is the program's own, such as an unbound proxy
        return ()
