"""Hooks of single modules, which neither copies of a module nor TorchScript must come to see."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Any


class Hook:
    """A hook of one module. A copy of the module, or a pickle of it, has one that does nothing.

    `act` is called without arguments before the forward, or after it with what it returned.
    """

    def __init__(self, act: Callable[..., None]) -> None:
        self._act = act

    def __call__(self, _: Any, __: Any, *returned: Any) -> None:
        """Act, as PyTorch has come to the module."""
        self._act(*returned)

    def __reduce__(self) -> tuple[Any, ...]:
        # Of the standard library: where the pickle is read there may be no hook.
        return getattr, (nullcontext(), "__exit__")


def is_ours(hook: object) -> bool:
    """Return whether a hook is one of ours, or the copy of one."""
    return isinstance(hook, Hook) or isinstance(getattr(hook, "__self__", None), nullcontext)


def hide_from_scripts(torch: Any) -> None:
    """Have torch.jit.script pass over our hooks, which it would compile as a part of the module."""
    recursive = torch.jit._recursive
    found = recursive.get_hook_stubs

    @wraps(found)
    def get_hook_stubs(module: Any) -> Any:
        kept = [module._forward_pre_hooks, module._forward_hooks]
        before = [dict(hooks) for hooks in kept]
        for hooks in kept:
            for key in [key for key, hook in hooks.items() if is_ours(hook)]:
                del hooks[key]
        try:
            return found(module)
        finally:
            for hooks, all_of_them in zip(kept, before):
                hooks.clear()
                hooks.update(all_of_them)

    recursive.get_hook_stubs = get_hook_stubs
