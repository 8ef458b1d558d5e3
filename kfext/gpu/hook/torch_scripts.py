"""Hooks of single modules, hidden from copies of the module and from TorchScript."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Any


class Hook:
    """A hook of one module. In a copy or a pickle of the module it becomes a hook without effect.

    `act`: called without arguments before the forward, or after it with the returned value.
    """

    def __init__(self, act: Callable[..., None]) -> None:
        self._act = act

    def __call__(self, _: Any, __: Any, *returned: Any) -> None:
        """Act, because PyTorch has reached the module."""
        self._act(*returned)

    def __reduce__(self) -> tuple[Any, ...]:
        # The pickle names only the standard library: the reader of the pickle may lack the hook.
        return getattr, (nullcontext(), "__exit__")


def is_ours(hook: object) -> bool:
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
            for key in [key for key, hook in hooks.items() if is_ours(hook)]:
                del hooks[key]
        try:
            return original(module)
        finally:
            for hooks, all_of_them in zip(registries, before):
                hooks.clear()
                hooks.update(all_of_them)

    recursive.get_hook_stubs = get_hook_stubs
