"""The job of high priority that trains by `Model.fit` of Keras on TensorFlow: tf.keras or Keras 3.

TensorFlow has no marker that is cheap and can be waited for. But a batch's logs, such as its loss,
are there when the card has done what it was given until they are read. So the card is busy from the
begin of each batch, and idle when the logs of the last one are there and no other has begun.
Keras 3 reads them before it calls us, perhaps in a thread of its own; Keras 2 gives us tensors, for
which the beacon's thread waits. Nothing is heard of a custom training loop, nor of a `fit` that is
given a whole `CallbackList`.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from importlib import import_module
from typing import Any

from .beacon import Beacon
from .switch import Switch


class Logs:
    """What Keras has measured of a batch, as a marker of its end."""

    def __init__(self, logs: Any) -> None:
        values = logs.values() if isinstance(logs, dict) else ()
        self._tensors = [one for one in values if hasattr(one, "numpy")]

    def wait(self) -> None:
        """Return once the card has computed them."""
        for one in self._tensors:
            one.numpy()


class Fits:
    """Calls the beacon around the batches of `Model.fit`; `join` makes it at the first one.

    `unheard` is called at a `fit` of which nothing can be heard.
    """

    def __init__(
        self,
        keras: Any,
        switch: Switch,
        join: Callable[[], Beacon],
        unheard: Callable[[], None],
    ) -> None:
        self._keras = keras
        self._join = join
        self._unheard = unheard
        self._beacon: Beacon | None = None
        self._begun: deque[int] = deque()
        self._callback = _callback_class(keras.callbacks.Callback, self, switch.guard)
        self._wrap(keras.Model, switch.guard(self.rest))

    def leave(self) -> None:
        """Forget the beacon: this is a fork, in which TensorFlow does not work."""
        self._beacon = None

    def stop(self) -> None:
        """Call the beacon no more; the job is shown as idle."""
        if self._beacon is not None:
            self._beacon.stop()

    def begin(self) -> None:
        """Take in that a batch begins."""
        if self._beacon is None:
            if not uses_card():
                return
            self._beacon = self._join()
        self._begun.append(self._beacon.begin())

    def finish(self, logs: Any) -> None:
        """Take in that a batch has ended; the next one may have begun, and ends be out of order."""
        if self._beacon is not None and self._begun:
            self._beacon.end(Logs(logs), self._begun.popleft())

    def step(self, logs: Any) -> None:
        """Take in that a batch of the training has ended."""
        self.finish(logs)
        if self._beacon is not None:
            self._beacon.step()

    def rest(self) -> None:
        """Take in that all batches have ended; one that found no data has only begun."""
        self._begun.clear()
        if self._beacon is not None:
            self._beacon.end(Logs(None))

    def _wrap(self, model: Any, after: Callable[[], None]) -> None:
        fit = model.fit

        @wraps(fit)
        def announced(*args: Any, **kwargs: Any) -> Any:
            with suppress(Exception):  # such as a missing argument: the call below says so itself
                args, kwargs = self._with_callback(fit, args, kwargs)
            try:
                return fit(*args, **kwargs)
            finally:
                after()

        model.fit = announced

    def _with_callback(
        self, fit: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of `fit` with our callback as the last one."""
        bound = import_module("inspect").signature(fit).bind(*args, **kwargs)
        given = bound.arguments.get("callbacks")
        if self._keras.backend.backend() != "tensorflow":
            return args, kwargs
        if hasattr(given, "callbacks"):
            self._unheard()
            return args, kwargs
        listed = list(given) if isinstance(given, (list, tuple)) else [given] if given else []
        bound.arguments["callbacks"] = [*listed, self._callback()]
        return bound.args, bound.kwargs


def uses_card() -> bool:
    """Return whether TensorFlow has initialised a GPU in this process. Never does so itself."""
    context = sys.modules.get("tensorflow.python.eager.context")
    if not getattr(getattr(context, "_context", None), "_initialized", False):
        return False
    return bool(sys.modules["tensorflow"].config.list_logical_devices("GPU"))


def _callback_class(
    base: Any, fits: Fits, guard: Callable[[Callable[..., None]], Callable[..., None]]
) -> Any:
    begin, finish = guard(fits.begin), guard(fits.finish)
    step, rest = guard(fits.step), guard(fits.rest)

    class Announcing(base):  # type: ignore[misc]
        """Announces batches. Says of itself what keeps Keras as fast as it is without it."""

        async_safe = True  # Keras 3 need not wait for each batch

        def __init__(self) -> None:
            super().__init__()
            self._supports_tf_logs = True  # nor Keras 2

        def on_train_batch_begin(self, batch: Any, logs: Any = None) -> None:
            begin()

        def on_train_batch_end(self, batch: Any, logs: Any = None) -> None:
            step(logs)

        def on_test_batch_begin(self, batch: Any, logs: Any = None) -> None:
            begin()

        def on_test_batch_end(self, batch: Any, logs: Any = None) -> None:
            finish(logs)

        def on_epoch_end(self, epoch: Any, logs: Any = None) -> None:
            rest()

    return Announcing
