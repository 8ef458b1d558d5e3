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
    """A list that the job has made itself."""

    def __init__(self, callbacks: list[Any]) -> None:
        self.callbacks = callbacks


class Model:
    """Trains on some batches; `late`: each end is reported after the next batch has begun."""

    def __init__(self, *, late: bool = False) -> None:
        self.late = late
        self.given: Any = None

    def fit(self, x: Any, y: Any = None, callbacks: Any = None, *, fails: bool = False) -> str:
        self.given = callbacks
        ours = callbacks[-1]
        ended: list[int] = []
        for batch in range(3):
            ours.on_train_batch_begin(batch)
            if fails:
                raise RuntimeError("no data")
            ended.append(batch)
            if not self.late or batch:
                ours.on_train_batch_end(ended.pop(0), logs={"loss": 1.0})
        for batch in ended:
            ours.on_train_batch_end(batch, logs={"loss": 1.0})
        ours.on_test_batch_begin(0)
        ours.on_test_batch_end(0, logs={"loss": 1.0})
        ours.on_epoch_end(0)
        return "history"


class Written(Beacon):
    """A beacon that records its calls; an end has the number of its begin."""

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


class Trial:
    """Keras in a process that has a GPU, with `backend`."""

    def __init__(self) -> None:
        self.model = type("Model", (Model,), {})
        self.backend = "tensorflow"
        self.beacons: list[Written] = []
        keras = SimpleNamespace(
            Model=self.model,
            callbacks=SimpleNamespace(Callback=Callback),
            backend=SimpleNamespace(backend=lambda: self.backend),
        )
        self.unheard = 0
        self.fits = KerasHook(keras, KillSwitch(), self.join, self.miss)

    def miss(self) -> None:
        self.unheard += 1

    def join(self) -> Written:
        self.beacons.append(Written())
        return self.beacons[-1]


@pytest.fixture
def tensorflow(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """TensorFlow with one initialised GPU; a question before that would initialise it."""
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
def trial(tensorflow: SimpleNamespace) -> Trial:
    return Trial()


BATCHES: list[object] = [x for n in (1, 2, 3) for x in ("begin", ("end", n), "step")]
VALIDATION: list[object] = ["begin", ("end", 4)]
REST: list[object] = [("end", 4)]  # after the epoch, and after the fit


def test_each_batch_is_announced_and_those_of_the_training_are_steps(trial: Trial) -> None:
    assert trial.model().fit([1]) == "history"
    assert trial.beacons[0].calls == BATCHES + VALIDATION + REST + REST


def test_an_end_that_keras_reports_late_belongs_to_its_own_batch(trial: Trial) -> None:
    trial.model(late=True).fit([1])
    ends = [call for call in trial.beacons[0].calls if isinstance(call, tuple)]
    assert ends == [("end", 1), ("end", 2), ("end", 3), ("end", 4), *REST, *REST]
    calls = trial.beacons[0].calls
    assert calls.index(("end", 1)) > calls.index("begin", 1)


def test_a_fit_that_fails_leaves_an_idle_card(trial: Trial) -> None:
    with pytest.raises(RuntimeError, match="no data"):
        trial.model().fit([1], fails=True)
    assert trial.beacons[0].calls == ["begin", ("end", 1)]


mine = Callback()
GIVEN: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "none": ((), {}),
    "one callback by its name": ((), {"callbacks": mine}),
    "a list by its name": ((), {"callbacks": [mine]}),
    "a tuple in its place": ((None, (mine,)), {}),
}


@pytest.mark.parametrize(("args", "kwargs"), GIVEN.values(), ids=GIVEN)
def test_the_callbacks_of_the_job_stay_before_that_of_kfext(
    trial: Trial, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    model = trial.model()
    model.fit([1], *args, **kwargs)
    assert model.given[:-1] == ([mine] if args or kwargs else [])
    assert isinstance(model.given[-1], Callback)


def test_the_callback_of_kfext_does_not_make_keras_wait_for_each_batch(trial: Trial) -> None:
    model = trial.model()
    model.fit([1])
    assert model.given[-1]._supports_tf_logs
    assert model.given[-1].async_safe


def test_a_callback_list_of_the_job_is_left_alone(trial: Trial) -> None:
    given = CallbackList([mine])
    model = trial.model()
    with pytest.raises(TypeError, match="not subscriptable"):  # the fake's own
        model.fit([1], callbacks=given)
    assert model.given is given
    assert trial.unheard == 1


def test_a_wrong_call_fails_as_without_kfext(trial: Trial) -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'") as raised:
        trial.model().fit()
    assert raised.value.__context__ is None


def test_another_backend_than_tensorflow_gets_no_callback(trial: Trial) -> None:
    trial.backend = "torch"
    model = trial.model()
    model.fit([1], callbacks=[SimpleNamespace(**dict.fromkeys(NAMES, lambda *_, **__: None))])
    assert len(model.given) == 1
    assert trial.beacons == []


NAMES = [
    *(f"on_{kind}_batch_{side}" for kind in ("train", "test") for side in ("begin", "end")),
    "on_epoch_end",
]


def test_a_process_without_a_gpu_makes_no_beacon(trial: Trial, tensorflow: SimpleNamespace) -> None:
    tensorflow.gpus = []
    trial.model().fit([1])
    assert trial.beacons == []


def test_tensorflow_is_not_initialised_by_the_check_whether_it_is(
    trial: Trial, tensorflow: SimpleNamespace
) -> None:
    tensorflow.initialized = False
    tensorflow.context._context = None
    trial.model().fit([1])
    assert trial.beacons == []


def test_logs_that_are_tensors_are_awaited() -> None:
    computed = threading.Event()
    tensor = SimpleNamespace(numpy=lambda: computed.wait(10))
    logs = Logs({"loss": tensor, "lr": 0.1})
    # TensorFlow reports the end in its own way, whatever the beacon expects.
    waiting = threading.Thread(target=logs.wait, args=(10**12,), daemon=True)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    computed.set()
    waiting.join(10)
    assert not waiting.is_alive()
