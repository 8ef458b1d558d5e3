"""Hooks of all PyTorch modules at once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


class AllModules:
    """Calls functions before and after the forward of each module.

    torch.compile compiles a model again for each new set of such hooks, and gives up after some
    times. So it sees only one of two sets: these two hooks under fixed keys, or none. Code compiled
    with them keeps them. `module`: torch.nn.modules.module.
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

    def hooked(
        self, before: Callable[[Any], None], after: Callable[[Any, Any], None]
    ) -> AllModules:
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
