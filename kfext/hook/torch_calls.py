"""How the hook hears of what a training does with PyTorch, 1.13 or later.

Never by full-backward hooks of modules, which break ReLU in place: a hook on the tensors that a
module returns is called when backward comes to that module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import wraps
from importlib import import_module
from typing import Any


def harmless(act: Callable[..., None]) -> Callable[..., None]:
    """Return a function that raises nothing: its first error is reported, and then it rests.

    A training must not fail because of a hook.
    """
    rests = False

    @wraps(act)
    def _act(*args: Any) -> None:
        nonlocal rests
        if rests:
            return
        try:
            act(*args)
        except Exception as error:
            rests = True
            sys.stderr.write(f"kfext: this process no longer gives way on its GPU: {error!r}\n")

    return _act


def compiling(torch: Any) -> Callable[[], bool]:
    """Return what tells whether torch.compile is tracing: a hook must do nothing then."""
    known = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    return known if known is not None else lambda: False


def on_modules(
    torch: Any, before: Callable[[Any], None], after: Callable[[Any, Any], None]
) -> list[Any]:
    """Have each module's forward announced: before it, and after it with what it returned.

    Return the handles by which that ends.
    """
    traced, module = compiling(torch), torch.nn.modules.module
    before, after = harmless(before), harmless(after)

    def _before(called: Any, _: Any) -> None:
        if not traced():
            before(called)

    def _after(called: Any, _: Any, returned: Any) -> None:
        if not traced():
            after(called, returned)

    return [
        module.register_module_forward_pre_hook(_before),
        module.register_module_forward_hook(_after),
    ]


class Hook:
    """A hook of one module. A copy of the module, or a pickle of it, has one that does nothing.

    `act` is called without arguments before the forward, or after it with what it returned.
    """

    def __init__(self, torch: Any, act: Callable[..., None]) -> None:
        self._traced = compiling(torch)
        self._act = harmless(act)

    def __call__(self, _: Any, __: Any, *returned: Any) -> None:
        """Act, as PyTorch has come to the module."""
        if not self._traced():
            self._act(*returned)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")


def before_forward(torch: Any, module: Any, act: Callable[[], None]) -> Any:
    """Have each forward of one module announced; return the handle by which that ends."""
    return module.register_forward_pre_hook(Hook(torch, act))


def after_forward(torch: Any, module: Any, act: Callable[[Any], None]) -> Any:
    """Have what each forward of one module returns announced; return the handle that ends it."""
    return module.register_forward_hook(Hook(torch, act))


def unhook(handles: list[Any]) -> None:
    """End all that some handles stand for, and forget them."""
    while handles:
        handles.pop().remove()


def hide_from_scripts(torch: Any) -> None:
    """Have torch.jit.script pass over our hooks, which it would compile as a part of the module."""
    recursive = torch.jit._recursive
    found = recursive.get_hook_stubs

    @wraps(found)
    def get_hook_stubs(module: Any) -> Any:
        kept = [module._forward_pre_hooks, module._forward_hooks]
        ours = [(hooks, key, one) for hooks in kept for key, one in hooks.items()]
        ours = [(hooks, key, one) for hooks, key, one in ours if isinstance(one, Hook)]
        for hooks, key, _ in ours:
            del hooks[key]
        try:
            return found(module)
        finally:
            for hooks, key, one in ours:
                hooks[key] = one

    recursive.get_hook_stubs = get_hook_stubs


def on_backward(torch: Any, returned: Any, act: Callable[[], None]) -> None:
    """Have `act` called when backward comes to what a module returned; gradients stay the same."""
    act = harmless(act)

    def _hook(_: Any) -> None:
        act()

    for one in tensors(torch, returned):
        if one.requires_grad:
            one.register_hook(_hook)


def after_backward(torch: Any, act: Callable[[], None]) -> None:
    """Have `act` called at the end of the backward in which this is called."""
    torch.autograd.Variable._execution_engine.queue_callback(harmless(act))


def tensors(torch: Any, value: Any) -> Iterator[Any]:
    """Yield the tensors in what a module returned: in tuples, lists, dicts and data classes."""
    if isinstance(value, torch.Tensor):
        yield value
        return
    held: Iterable[Any]
    if isinstance(value, dict):
        held = value.values()
    elif isinstance(value, (list, tuple)):
        held = value
    else:
        held = getattr(value, "__dict__", {}).values()
    for one in held:
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, (list, tuple)):
            yield from (inner for inner in one if isinstance(inner, torch.Tensor))


def on_optimizers(torch: Any, before: Callable[[], None], after: Callable[[], None]) -> None:
    """Have the steps of all optimizers announced, for as long as the process lives."""
    before, after = harmless(before), harmless(after)
    optimizer = import_module("torch.optim.optimizer")  # torch.optim hides it in some versions
    if hasattr(optimizer, "register_optimizer_step_post_hook"):
        optimizer.register_optimizer_step_pre_hook(lambda *_: before())
        optimizer.register_optimizer_step_post_hook(lambda *_: after())
        return
    _wrap_classes(torch.optim.Optimizer, before, after)


def _wrap_classes(base: Any, before: Callable[[], None], after: Callable[[], None]) -> None:
    """Wrap `step` of the class of each optimizer that is made, once.

    Not of the object: a scheduler of learning rates wraps that again, and drops ours.
    """
    made = base.__init__

    @wraps(made)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        made(self, *args, **kwargs)
        step = type(self).step
        if getattr(step, "kfext", False):
            return

        @wraps(step)
        def announced(self: Any, *args: Any, **kwargs: Any) -> Any:
            before()
            try:
                return step(self, *args, **kwargs)
            finally:
                after()

        announced.kfext = True  # type: ignore[attr-defined]
        type(self).step = announced

    base.__init__ = __init__
