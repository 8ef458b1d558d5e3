"""Steps of PyTorch's optimizers, and other methods that are announced."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any


def first_parameter(optimizer: Any) -> Any:
    """Return a parameter that identifies the optimizer's model, or the optimizer without one."""
    for group in getattr(optimizer, "param_groups", ()):
        for parameter in group.get("params", ()):
            return parameter
    return optimizer


def innermost(
    before: Callable[[], None], after: Callable[[Any], None], around: Callable[[], None]
) -> tuple[Callable[[], None], Callable[[Any], None]]:
    """Return what to call before and after each step of an optimizer.

    If a step calls the step of another optimizer, `after` announces only the inner step.
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


def announced(
    act: Callable[..., Any], before: Callable[[], None], after: Callable[[Any], None]
) -> Callable[..., Any]:
    """Return a method that calls one function before and one after the original method."""

    @wraps(act)
    def _act(self: Any, *args: Any, **kwargs: Any) -> Any:
        before()
        try:
            return act(self, *args, **kwargs)
        finally:
            after(self)

    return _act


def wrap_classes(base: Any, before: Callable[[], None], after: Callable[[Any], None]) -> None:
    """Wrap `step` once in the class of each optimizer that is made.

    A wrapper on the object would not do: learning-rate schedulers wrap the method again and drop
    it.
    """
    made = base.__init__

    @wraps(made)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        made(self, *args, **kwargs)
        step = type(self).step
        if not getattr(step, "kfext", False):
            type(self).step = announced(step, before, after)
            type(self).step.kfext = True

    base.__init__ = __init__
