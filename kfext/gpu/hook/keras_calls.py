"""The hook of a high-priority job that calls `Model.fit` of Keras with TensorFlow.

TensorFlow has no cheap marker to wait for. But the logs of a batch, such as its loss, exist only
once the card has done the work before them. So the card is busy from the start of each batch, and
idle once the logs of the last batch exist and no other batch has started. Keras 3 reads the logs
before it calls the hook, perhaps in a thread of its own. Keras 2 (tf.keras) passes tensors, and the
beacon's thread waits for them. The hook cannot follow a custom training loop, or a `fit` with a
whole `CallbackList`.
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
from .kill_switch import KillSwitch


class Logs:
    """The logs of a batch from Keras, as a marker of the end of the batch."""

    def __init__(self, logs: Any) -> None:
        values = logs.values() if isinstance(logs, dict) else ()
        self._tensors = [value for value in values if hasattr(value, "numpy")]

    def wait(self, expected: int | None = None) -> None:
        """Wait until the card has computed the logs; TensorFlow ignores what is expected."""
        for tensor in self._tensors:
            tensor.numpy()


class KerasHook:
    """Calls the beacon around the batches of `Model.fit`; `join` makes it at the first batch.

    `report_callback_list` is called if a `fit` has a whole CallbackList.
    """

    def __init__(
        self,
        keras: Any,
        switch: KillSwitch,
        join: Callable[[], Beacon],
        report_callback_list: Callable[[], None],
    ) -> None:
        self._keras = keras
        self._join = join
        self._report_callback_list = report_callback_list
        self._beacon: Beacon | None = None
        self._begun: deque[int] = deque()
        self._callback = _callback_class(keras.callbacks.Callback, self, switch.guard)
        self._wrap_fit(keras.Model, switch.guard(self.end_all))

    def leave(self) -> None:
        """Drop the beacon in a fork, where TensorFlow does not work."""
        self._beacon = None

    def stop(self) -> None:
        """Stop calling the beacon; the job is shown as idle."""
        if self._beacon is not None:
            self._beacon.stop()

    def begin(self) -> None:
        """Record the start of a batch."""
        if self._beacon is None:
            if not uses_card():
                return
            self._beacon = self._join()
        self._begun.append(self._beacon.begin())

    def finish(self, logs: Any) -> None:
        """Record the end of a batch; the next may have started, and ends may be out of order."""
        if self._beacon is not None and self._begun:
            self._beacon.end(Logs(logs), self._begun.popleft())

    def step(self, logs: Any) -> None:
        """Record the end of a training batch."""
        self.finish(logs)
        if self._beacon is not None:
            self._beacon.step()

    def end_all(self) -> None:
        """Record that all batches have ended; a batch without data has a start but no end."""
        self._begun.clear()
        if self._beacon is not None:
            self._beacon.end(Logs(None))

    def _wrap_fit(self, model: Any, after: Callable[[], None]) -> None:
        fit = model.fit

        @wraps(fit)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with suppress(Exception):  # a wrong call of `fit` reports its own error below
                args, kwargs = self._with_callback(fit, args, kwargs)
            try:
                return fit(*args, **kwargs)
            finally:
                after()

        model.fit = wrapper

    def _with_callback(
        self, fit: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of `fit` with the hook's callback as the last callback."""
        bound = import_module("inspect").signature(fit).bind(*args, **kwargs)
        passed = bound.arguments.get("callbacks")
        if self._keras.backend.backend() != "tensorflow":
            return args, kwargs
        if hasattr(passed, "callbacks"):
            self._report_callback_list()
            return args, kwargs
        own = list(passed) if isinstance(passed, (list, tuple)) else [passed] if passed else []
        bound.arguments["callbacks"] = [*own, self._callback()]
        return bound.args, bound.kwargs


def uses_card() -> bool:
    """Return whether TensorFlow has initialised a GPU in this process; never does so itself."""
    context = sys.modules.get("tensorflow.python.eager.context")
    if not getattr(getattr(context, "_context", None), "_initialized", False):
        return False
    return bool(sys.modules["tensorflow"].config.list_logical_devices("GPU"))


def _callback_class(
    base: Any, hook: KerasHook, guard: Callable[[Callable[..., None]], Callable[..., None]]
) -> Any:
    begin, finish = guard(hook.begin), guard(hook.finish)
    step, end_all = guard(hook.step), guard(hook.end_all)

    class BatchCallback(base):  # type: ignore[misc]
        """Calls the hook for each batch; its attributes keep Keras from waiting for each batch."""

        async_safe = True  # Keras 3 then does not wait for each batch

        def __init__(self) -> None:
            super().__init__()
            self._supports_tf_logs = True  # Keras 2 then does not wait either

        def on_train_batch_begin(self, batch: Any, logs: Any = None) -> None:
            begin()

        def on_train_batch_end(self, batch: Any, logs: Any = None) -> None:
            step(logs)

        def on_test_batch_begin(self, batch: Any, logs: Any = None) -> None:
            begin()

        def on_test_batch_end(self, batch: Any, logs: Any = None) -> None:
            finish(logs)

        def on_epoch_end(self, epoch: Any, logs: Any = None) -> None:
            end_all()

    return BatchCallback
