from __future__ import annotations

import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kfext.gpu.hook.beacon import Beacon
from kfext.gpu.hook.device import Marker
from kfext.gpu.hook.keras_calls import KerasHook, Logs
from kfext.gpu.hook.kill_switch import KillSwitch


class Callback:
    """The base of all callbacks, as in Keras 2."""

    def __init__(self) -> None:
        self._supports_tf_logs = False


class CallbackList:
    """A CallbackList that the job has made itself."""

    def __init__(self, callbacks: list[Any]) -> None:
        self.callbacks = callbacks


class Model:
    """A model that trains on three batches. `callbacks`: the callbacks of the last `fit`.

    `late`: whether each end is reported after the next batch has begun.
    """

    def __init__(self, *, late: bool = False) -> None:
        self.late = late
        self.callbacks: Any = None

    def fit(self, x: Any, y: Any = None, callbacks: Any = None, *, fails: bool = False) -> str:
        self.callbacks = callbacks
        callback = callbacks[-1]
        ended: list[int] = []
        for batch in range(3):
            callback.on_train_batch_begin(batch)
            if fails:
                raise RuntimeError("no data")
            ended.append(batch)
            if not self.late or batch:
                callback.on_train_batch_end(ended.pop(0), logs={"loss": 1.0})
        for batch in ended:
            callback.on_train_batch_end(batch, logs={"loss": 1.0})
        callback.on_test_batch_begin(0)
        callback.on_test_batch_end(0, logs={"loss": 1.0})
        callback.on_epoch_end(0)
        return "history"


class RecordingBeacon(Beacon):
    """A beacon that records its calls; an end is recorded with the number of its begin."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.begun = 0

    def begin(self) -> int:
        self.begun += 1
        self.calls.append("begin")
        return self.begun

    def end(self, marker: Marker, begun: int | None = None) -> None:
        self.calls.append(("end", self.begun if begun is None else begun))

    def step(self) -> None:
        self.calls.append("step")

    def stop(self) -> None:
        self.calls.append("stop")


class KerasJob:
    """A process with hooked Keras on a backend. `callback_lists`: the number of those reported."""

    def __init__(self) -> None:
        self.model = type("Model", (Model,), {})
        self.backend = "tensorflow"
        self.beacons: list[RecordingBeacon] = []
        keras = SimpleNamespace(
            Model=self.model,
            callbacks=SimpleNamespace(Callback=Callback),
            backend=SimpleNamespace(backend=lambda: self.backend),
        )
        self.callback_lists = 0
        self.hook = KerasHook(keras, KillSwitch(), self.join, self.count_callback_list)

    def count_callback_list(self) -> None:
        self.callback_lists += 1

    def join(self) -> RecordingBeacon:
        self.beacons.append(RecordingBeacon())
        return self.beacons[-1]


@pytest.fixture
def tensorflow(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """TensorFlow with one GPU; a list of the devices must not be requested before it starts."""
    result = SimpleNamespace(initialized=True, gpus=["GPU:0"])

    def list_logical_devices(kind: str) -> list[str]:
        assert kind == "GPU"
        assert result.initialized
        return list(result.gpus)

    context = ModuleType("context")
    context._context = SimpleNamespace(_initialized=True)  # type: ignore[attr-defined]
    result.context = context
    main = ModuleType("tensorflow")
    main.config = SimpleNamespace(list_logical_devices=list_logical_devices)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorflow", main)
    monkeypatch.setitem(sys.modules, "tensorflow.python.eager.context", context)
    return result


@pytest.fixture
def job(tensorflow: SimpleNamespace) -> KerasJob:
    return KerasJob()


BATCHES: list[object] = [call for n in (1, 2, 3) for call in ("begin", ("end", n), "step")]
VALIDATION: list[object] = ["begin", ("end", 4)]
END_ALL: list[object] = [("end", 4)]  # after the epoch, and after the fit


def test_each_batch_is_announced_and_training_batches_count_as_steps(job: KerasJob) -> None:
    assert job.model().fit([1]) == "history"
    assert job.beacons[0].calls == BATCHES + VALIDATION + END_ALL + END_ALL


def test_an_end_that_keras_reports_late_belongs_to_its_own_batch(job: KerasJob) -> None:
    job.model(late=True).fit([1])
    ends = [call for call in job.beacons[0].calls if isinstance(call, tuple)]
    assert ends == [("end", 1), ("end", 2), ("end", 3), ("end", 4), *END_ALL, *END_ALL]
    calls = job.beacons[0].calls
    assert calls.index(("end", 1)) > calls.index("begin", 1)


def test_a_fit_that_fails_ends_the_work_on_the_card(job: KerasJob) -> None:
    with pytest.raises(RuntimeError, match="no data"):
        job.model().fit([1], fails=True)
    assert job.beacons[0].calls == ["begin", ("end", 1)]


own_callback = Callback()
ARGUMENTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "no callbacks": ((), {}),
    "a callback as a keyword argument": ((), {"callbacks": own_callback}),
    "a list as a keyword argument": ((), {"callbacks": [own_callback]}),
    "a tuple as a positional argument": ((None, (own_callback,)), {}),
}


@pytest.mark.parametrize(("args", "kwargs"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_the_callback_of_kfext_comes_after_the_callbacks_of_the_job(
    job: KerasJob, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    model = job.model()
    model.fit([1], *args, **kwargs)
    assert model.callbacks[:-1] == ([own_callback] if args or kwargs else [])
    assert isinstance(model.callbacks[-1], Callback)


def test_the_callback_of_kfext_does_not_make_keras_wait_for_each_batch(job: KerasJob) -> None:
    model = job.model()
    model.fit([1])
    assert model.callbacks[-1]._supports_tf_logs
    assert model.callbacks[-1].async_safe


def test_a_callback_list_of_the_job_is_not_changed_and_is_reported(job: KerasJob) -> None:
    callback_list = CallbackList([own_callback])
    model = job.model()
    with pytest.raises(TypeError, match="not subscriptable"):  # an error of the fake Model
        model.fit([1], callbacks=callback_list)
    assert model.callbacks is callback_list
    assert job.callback_lists == 1


def test_a_wrong_call_fails_as_without_kfext(job: KerasJob) -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'") as raised:
        job.model().fit()
    assert raised.value.__context__ is None


def test_keras_with_another_backend_gets_no_callback(job: KerasJob) -> None:
    job.backend = "torch"
    model = job.model()
    model.fit([1], callbacks=[SimpleNamespace(**dict.fromkeys(NAMES, lambda *_, **__: None))])
    assert len(model.callbacks) == 1
    assert job.beacons == []


NAMES = [
    *(f"on_{kind}_batch_{side}" for kind in ("train", "test") for side in ("begin", "end")),
    "on_epoch_end",
]


def test_a_process_without_a_gpu_has_no_beacon(job: KerasJob, tensorflow: SimpleNamespace) -> None:
    tensorflow.gpus = []
    job.model().fit([1])
    assert job.beacons == []


def test_the_check_whether_tensorflow_is_initialised_does_not_initialise_it(
    job: KerasJob, tensorflow: SimpleNamespace
) -> None:
    tensorflow.initialized = False
    tensorflow.context._context = None
    job.model().fit([1])
    assert job.beacons == []


def test_a_wait_for_logs_ends_once_their_tensors_are_computed() -> None:
    computed = threading.Event()
    tensor = SimpleNamespace(numpy=lambda: computed.wait(10))
    logs = Logs({"loss": tensor, "lr": 0.1})
    # The expected end is far in the future; TensorFlow ignores it.
    waiting = threading.Thread(target=logs.wait, args=(10**12,), daemon=True)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    computed.set()
    waiting.join(10)
    assert not waiting.is_alive()
