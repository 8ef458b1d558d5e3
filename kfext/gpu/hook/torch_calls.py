"""Calls the hook at events of a job that trains with PyTorch 1.13 or later.

Full-backward hooks of modules break an in-place ReLU, so they are not used. Instead, hooks on the
tensors that a module returns are called when backward reaches the module.

The hook is not called while torch.compile traces or while a CUDA graph is captured: its work would
become a part of the graph, or make the capture fail.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import wraps
from importlib import import_module
from itertools import islice
from typing import Any

from .device import Device
from .kill_switch import KillSwitch

_MAX_OBJECTS = 200
"""The most objects that are searched for tensors in a module's returned value."""


class TorchCalls:
    """Calls functions at events of a job; `switch` guards them, so they cannot make it fail."""

    def __init__(self, torch: Any, device: Device, switch: KillSwitch) -> None:
        self._torch = torch
        self._device = device
        self._switch = switch
        self._is_tracing = tracing_check(torch)
        self._all_modules: AllModules | None = None

    def _guard(self, act: Callable[..., None]) -> Callable[..., None]:
        def live(*args: Any) -> None:
            if not self._device.capturing():
                act(*args)

        return self._switch.guard(live, self._is_tracing)

    def on_modules(
        self, before: Callable[[Any], None], after: Callable[[Any, Any], None]
    ) -> list[Any]:
        """Announce the forward of each module: before it, and after it with the returned value.

        Return the handles that end this.
        """
        if self._all_modules is None:
            self._all_modules = AllModules(self._torch.nn.modules.module, self._guard)
        return [self._all_modules.start(before, after)]

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
        """Remove the hooks of the handles, and clear the list."""
        while handles:
            handles.pop().remove()

    def on_backward(self, returned: Any, act: Callable[[], None]) -> bool:
        """Call `act` when backward reaches a value that a module returned; gradients stay the same.

        Return whether backward can reach it. Tensors that were not computed, such as parameters,
        are skipped: they would retain all hooks.
        """
        act, results = self._guard(act), 0
        for tensor in tensors(self._torch, returned):
            if tensor.requires_grad and tensor.grad_fn is not None:
                tensor.register_hook(lambda _: act())
                results += 1
        return results > 0

    def after_backward(self, act: Callable[[], None]) -> None:
        """Call `act` at the end of the current backward."""
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
        self, before: Callable[[], None], after: Callable[[Any], None], around: Callable[[], None]
    ) -> None:
        """Announce the steps of all optimizers, while the process lives.

        `after` receives the optimizer. If a step calls the step of another optimizer, only the
        inner step counts; `around` is called after the outer step instead.
        """
        begin, end = innermost(before, after, around)
        before, after = self._guard(begin), self._guard(end)
        optimizer = import_module("torch.optim.optimizer")  # torch.optim hides it in some versions
        if hasattr(optimizer, "register_optimizer_step_post_hook"):
            optimizer.register_optimizer_step_pre_hook(lambda *_: before())
            optimizer.register_optimizer_step_post_hook(lambda stepped, *_: after(stepped))
            return
        wrap_classes(self._torch.optim.Optimizer, before, after)

    def on_replays(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        """Announce the replays of all CUDA graphs, while the process lives.

        Work inside a graph calls no hook, so only the whole replay is announced.
        """
        graph = getattr(self._torch.cuda, "CUDAGraph", None)
        if graph is not None:
            before, after = self._guard(before), self._guard(after)
            graph.replay = wrap_method(graph.replay, before, lambda _: after())


def _nothing() -> None:
    """Do nothing, at the end of a backward."""


def tracing_check(torch: Any) -> Callable[[], bool]:
    """Return a function that tests whether torch.compile is tracing; torch.compile must know it."""
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    if is_compiling is None and hasattr(torch, "compile"):  # 2.0 has the function in another module
        is_compiling = getattr(import_module("torch._dynamo"), "is_compiling", None)
    return is_compiling if is_compiling is not None else lambda: False


def tensors(torch: Any, value: Any) -> Iterator[Any]:
    """Yield the tensors in a returned value: in tuples, lists, dicts and objects, nested."""
    items = [value]
    for item in items:  # the list grows meanwhile
        if issubclass(type(item), torch.Tensor):  # isinstance() may run code of a proxy
            yield item
        elif len(items) < _MAX_OBJECTS:
            items.extend(islice(_contents(torch, item), _MAX_OBJECTS))


def _contents(torch: Any, value: Any) -> Iterable[Any]:
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


class AllModules:
    """Calls functions before and after the forward of each module.

    torch.compile compiles a model again for each new set of such hooks, and gives up after some
    times. So it sees only one of two sets: these two hooks under fixed keys, or no hooks. If it has
    compiled code with them, they stay registered. `module`: torch.nn.modules.module.
    """

    def __init__(self, module: Any, guard: Callable[..., Callable[..., None]]) -> None:
        self._before: Callable[[Any], None] | None = None
        self._after: Callable[[Any, Any], None] | None = None
        before, after = guard(self._call_before), guard(self._call_after)
        self._hooks: list[tuple[Any, Callable[..., None]]] = [
            (module.register_module_forward_pre_hook, lambda called, _: before(called)),
            (module.register_module_forward_hook, lambda called, _, value: after(called, value)),
        ]
        self._handles: list[Any] = []

    def start(self, before: Callable[[Any], None], after: Callable[[Any, Any], None]) -> AllModules:
        """Call two functions from now on, until `remove`."""
        self._before, self._after = before, after
        if not self._handles:
            self._handles = [register(hook) for register, hook in self._hooks]
        for handle, (_, hook) in zip(self._handles, self._hooks):
            handle.hooks_dict_ref()[handle.id] = hook
        return self

    def remove(self) -> None:
        """Stop calling the functions."""
        self._before = self._after = None
        if not _has_compiled():
            for handle in self._handles:
                handle.remove()

    def _call_before(self, called: Any) -> None:
        if self._before is not None:
            self._before(called)

    def _call_after(self, called: Any, value: Any) -> None:
        if self._after is not None:
            self._after(called, value)


def _has_compiled() -> bool:
    """Return whether torch.compile has compiled anything in this process."""
    utils = sys.modules.get("torch._dynamo.utils")
    counters = getattr(utils, "counters", None)
    return bool(counters is not None and counters["stats"].get("unique_graphs"))


def first_parameter(optimizer: Any) -> Any:
    """Return a parameter that identifies the optimizer's model; without any, the optimizer."""
    for group in getattr(optimizer, "param_groups", ()):
        for parameter in group.get("params", ()):
            return parameter
    return optimizer


def innermost(
    before: Callable[[], None], after: Callable[[Any], None], around: Callable[[], None]
) -> tuple[Callable[[], None], Callable[[Any], None]]:
    """Return the functions to call before and after each step of an optimizer.

    If a step calls the step of another optimizer, `after` is called for the inner step and `around`
    for the outer step.
    """
    begun = threading.local()

    def begin() -> None:
        begun.step = True
        before()

    def end(optimizer: Any) -> None:
        if getattr(begun, "step", False):
            begun.step = False
            after(optimizer)
        else:
            around()

    return begin, end


def wrap_method(
    method: Callable[..., Any], before: Callable[[], None], after: Callable[[Any], None]
) -> Callable[..., Any]:
    """Return a method that calls one function before and one after the original method."""

    @wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        before()
        try:
            return method(self, *args, **kwargs)
        finally:
            after(self)

    return wrapper


def wrap_classes(base: Any, before: Callable[[], None], after: Callable[[Any], None]) -> None:
    """Wrap `step` once in the class of each optimizer that is made.

    A wrapper on the object would not suffice: learning-rate schedulers wrap the method again and
    drop it.
    """
    original = base.__init__

    @wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        step = type(self).step
        if not getattr(step, "kfext", False):
            type(self).step = wrap_method(step, before, after)
            type(self).step.kfext = True

    base.__init__ = __init__


class Hook:
    """A hook of one module. A copy or a pickle of the module has a hook without effect instead.

    `act`: called without arguments before the forward, or after it with the returned value.
    """

    def __init__(self, act: Callable[..., None]) -> None:
        self._act = act

    def __call__(self, _: Any, __: Any, *returned: Any) -> None:
        """Call `act`, because PyTorch has reached the module."""
        self._act(*returned)

    def __reduce__(self) -> tuple[Any, ...]:
        # The pickle uses only the standard library: its reader may not have the hook.
        return getattr, (nullcontext(), "__exit__")


def is_kfext_hook(hook: object) -> bool:
    """Return whether a hook belongs to kfext, or is a copy of such a hook."""
    return isinstance(hook, Hook) or isinstance(getattr(hook, "__self__", None), nullcontext)


def hide_from_scripts(torch: Any) -> None:
    """Hide the hooks from torch.jit.script, which would compile them as a part of the module."""
    recursive = torch.jit._recursive
    original = recursive.get_hook_stubs

    @wraps(original)
    def get_hook_stubs(module: Any) -> Any:
        registries = [module._forward_pre_hooks, module._forward_hooks]
        before = [dict(hooks) for hooks in registries]
        for hooks in registries:
            for key in [key for key, hook in hooks.items() if is_kfext_hook(hook)]:
                del hooks[key]
        try:
            return original(module)
        finally:
            for hooks, hooks_before in zip(registries, before):
                hooks.clear()
                hooks.update(hooks_before)

    recursive.get_hook_stubs = get_hook_stubs
