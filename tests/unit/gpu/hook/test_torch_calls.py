from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kfext.gpu.hook.kill_switch import KillSwitch
from kfext.gpu.hook.torch_calls import (
    Hook,
    TorchCalls,
    hide_from_scripts,
    innermost,
    is_kfext_hook,
    tensors,
)
from tests.unit.gpu.hook.card import FakeCard


class Tensor:
    """A tensor; `grad_fn` is None for a parameter."""

    def __init__(self, *, grad_fn: object = "Relu", requires_grad: bool = True) -> None:
        self.grad_fn, self.requires_grad = grad_fn, requires_grad
        self.hooks: list[Callable[[object], None]] = []

    def register_hook(self, hook: Callable[[object], None]) -> None:
        self.hooks.append(hook)


class Module:
    """A module with parameters that many objects refer to."""

    def __init__(self) -> None:
        self.weight = Tensor(grad_fn=None)


class CUDAGraph:
    def replay(self, *, fails: bool = False) -> str:
        if fails:
            raise RuntimeError("the graph was reset")
        return "replayed"


class FakeTorch:
    """The parts of PyTorch that the hook uses; `compiling`: torch.compile is tracing."""

    Tensor = Tensor

    def __init__(self) -> None:
        self.compiling = False
        self.compiler = SimpleNamespace(is_compiling=lambda: self.compiling)
        self.nn = SimpleNamespace(Module=Module)
        graph = type("CUDAGraph", (CUDAGraph,), {})
        self.cuda = SimpleNamespace(CUDAGraph=graph)


class Trial:
    def __init__(self) -> None:
        self.torch, self.card, self.done = FakeTorch(), FakeCard(), list[str]()
        self.calls = TorchCalls(self.torch, self.card, KillSwitch())

    def note(self, what: str) -> Callable[..., None]:
        return lambda *_: self.done.append(what)


@pytest.fixture
def trial() -> Trial:
    return Trial()


@dataclass
class Result:
    loss: Tensor
    held: Any = None


def test_tensors_are_found_in_all_that_modules_return() -> None:
    first, two, three, four = (Tensor() for _ in range(4))
    value = {"loss": first, "more": [two, {"deep": (Result(three, held={"deeper": [four]}),)}]}
    results = list(tensors(FakeTorch(), value))
    assert results == [first, two, three, four]


def test_a_reference_to_itself_or_to_a_model_causes_no_endless_search() -> None:
    inner = Tensor()
    value: list[Any] = [inner, Module()]
    value.append(value)
    assert set(tensors(FakeTorch(), value)) == {inner}
    many = list(tensors(FakeTorch(), [[Tensor() for _ in range(1000)] for _ in range(100)]))
    assert len(many) < 1000


LEAVES: dict[str, Tensor] = {
    "a parameter, since its hook would stay forever": Tensor(grad_fn=None),
    "a tensor that needs no gradient": Tensor(requires_grad=False),
}


@pytest.mark.parametrize("leaf", LEAVES.values(), ids=LEAVES)
def test_backward_is_not_announced_by(trial: Trial, leaf: Tensor) -> None:
    result = Tensor()
    trial.calls.on_backward((leaf, result), trial.note("backward"))
    assert leaf.hooks == []
    assert result.hooks[0](object()) is None
    assert trial.done == ["backward"]


def test_a_replay_is_announced_before_and_after_and_stays_what_it_is(trial: Trial) -> None:
    trial.calls.on_replays(trial.note("before"), trial.note("after"))
    graph = trial.torch.cuda.CUDAGraph()
    assert graph.replay() == "replayed"
    with pytest.raises(RuntimeError, match="the graph was reset"):
        graph.replay(fails=True)
    assert trial.done == ["before", "after"] * 2


def test_hooks_are_silent_while_a_graph_is_captured(trial: Trial) -> None:
    result = Tensor()
    trial.calls.on_backward(result, trial.note("backward"))
    trial.card.captures = True
    result.hooks[0](object())
    assert trial.done == []


def test_hooks_are_silent_while_torch_compile_traces(trial: Trial) -> None:
    result = Tensor()
    trial.calls.on_backward(result, trial.note("backward"))
    trial.torch.compiling = True
    result.hooks[0](object())
    assert trial.done == []


def test_an_error_of_a_hook_ends_all_hooks_and_not_the_training(
    trial: Trial, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = Tensor(), Tensor()
    trial.calls.on_backward(first, lambda: 1 // 0)  # type: ignore[arg-type]
    trial.calls.on_backward(second, trial.note("backward"))
    first.hooks[0](object())
    second.hooks[0](object())
    assert trial.done == []
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize("known", [True, False])
def test_torch_2_0_states_elsewhere_whether_it_compiles(
    monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    torch = FakeTorch()
    del torch.compiler
    torch.compile = None  # type: ignore[attr-defined]
    dynamo = ModuleType("torch._dynamo")
    if known:
        dynamo.is_compiling = lambda: True  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    monkeypatch.setitem(sys.modules, "torch._dynamo", dynamo)
    result, done = Tensor(), list[int]()
    calls = TorchCalls(torch, FakeCard(), KillSwitch())
    calls.on_backward(result, lambda: done.append(1))
    result.hooks[0](object())
    assert done == ([] if known else [1])


def test_an_opaque_object_holds_no_tensors() -> None:
    class Proxy:
        def __getattribute__(self, name: str) -> object:
            raise RuntimeError("not bound")

    assert list(tensors(FakeTorch(), [Proxy(), tensor := Tensor()])) == [tensor]


class Modules:
    """The module torch.nn.modules.module, with the hooks of all modules."""

    class Handle:
        def __init__(self, hooks: dict[int, Any], key: int) -> None:
            self.hooks, self.id = hooks, key

        def hooks_dict_ref(self) -> dict[int, Any]:
            return self.hooks

        def remove(self) -> None:
            self.hooks.pop(self.id, None)

    def __init__(self) -> None:
        self.before, self.after = dict[int, Any](), dict[int, Any]()
        self._keys = count()

    def _register(self, hooks: dict[int, Any], hook: Any) -> Handle:
        handle = self.Handle(hooks, next(self._keys))
        hooks[handle.id] = hook
        return handle

    def register_module_forward_pre_hook(self, hook: Any) -> Handle:
        return self._register(self.before, hook)

    def register_module_forward_hook(self, hook: Any) -> Handle:
        return self._register(self.after, hook)

    def forward(self) -> None:
        for hook in (*self.before.values(),):
            hook("module", ())
        for hook in (*self.after.values(),):
            hook("module", (), "value")


@pytest.mark.parametrize("compiled", [False, True])
def test_all_modules_have_the_same_hooks_if_they_have_any(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, *, compiled: bool
) -> None:
    modules = Modules()
    trial.torch.nn.modules = SimpleNamespace(module=modules)
    dynamo = SimpleNamespace(counters={"stats": {"unique_graphs": int(compiled)}})
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", dynamo)
    results = []
    for name in ("one", "two"):
        handles = trial.calls.on_modules(trial.note(f"before {name}"), trial.note(f"after {name}"))
        results.append((dict(modules.before), dict(modules.after)))
        modules.forward()
        trial.calls.unhook(handles)
        assert bool(modules.before) is compiled, "what was compiled with them keeps them"
        modules.forward()
    assert results[0] == results[1]
    assert trial.done == ["before one", "after one", "before two", "after two"]


STEPS: dict[str, tuple[str, str]] = {
    "one after another": ("bebe", "ss"),
    "a step that calls another step": ("bbee", "sa"),
    "a step that calls two other steps": ("bbebee", "ssa"),
    "a step that has raised an error": ("bbe", "s"),
}


@pytest.mark.parametrize(("calls", "announced"), STEPS.values(), ids=STEPS)
def test_only_the_inner_of_two_nested_steps_counts(calls: str, announced: str) -> None:
    result = list[str]()
    begin, end = innermost(lambda: None, lambda _: result.append("s"), lambda: result.append("a"))
    for call in calls:
        begin() if call == "b" else end("optimizer")
    assert "".join(result) == announced


def test_the_steps_of_1_13_are_announced_under_a_scheduler_too(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Optimizer:
        def step(self) -> None: ...

    class Descent(Optimizer):
        def step(self) -> str:  # type: ignore[override]
            return "stepped"

    trial.torch.optim = SimpleNamespace(Optimizer=Optimizer)  # type: ignore[attr-defined]
    for name in ("torch", "torch.optim", "torch.optim.optimizer"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    trial.calls.on_optimizers(trial.note("before"), trial.note("after"), trial.note("around"))
    made = [Descent() for _ in range(3)]
    made[0].step = made[0].step  # type: ignore[method-assign]
    assert [optimizer.step() for optimizer in made] == ["stepped"] * 3
    assert trial.done == ["before", "after"] * 3


class ModuleWithHooks:
    """The hooks of a module."""

    def __init__(self, *hooks: object) -> None:
        self._forward_pre_hooks: OrderedDict[int, object] = OrderedDict(enumerate(hooks))
        self._forward_hooks: OrderedDict[int, object] = OrderedDict(enumerate(hooks))


def theirs() -> None:
    """A hook of the job's own."""


def test_a_copy_of_a_hook_does_nothing_before_or_after_a_forward() -> None:
    called: list[object] = []
    hook: Callable[..., object] = copy.deepcopy(Hook(called.append))
    assert hook("module", ("input",)) is None
    assert hook("module", ("input",), "output") is None
    assert called == []


def test_a_pickle_of_a_hook_is_read_where_kfext_is_not() -> None:
    data = pickle.dumps(Hook(print))
    code = f"import pickle; print(pickle.loads({data!r})('module', (), 'output'))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "None\n"


def hidden(module: ModuleWithHooks) -> tuple[list[object], list[object]]:
    """The hooks of a module that torch.jit.script sees."""
    seen: list[list[object]] = []

    def get_hook_stubs(of: ModuleWithHooks) -> None:
        seen.extend([list(of._forward_pre_hooks.values()), list(of._forward_hooks.values())])

    recursive = SimpleNamespace(get_hook_stubs=get_hook_stubs)
    hide_from_scripts(SimpleNamespace(jit=SimpleNamespace(_recursive=recursive)))
    recursive.get_hook_stubs(module)
    return seen[0], seen[1]


def test_torchscript_sees_neither_hooks_of_kfext_nor_copies_of_them() -> None:
    ours = Hook(print)
    hooks = [theirs, ours, copy.deepcopy(ours), print]
    module = ModuleWithHooks(*hooks)
    assert hidden(module) == ([theirs, print], [theirs, print])
    assert list(module._forward_hooks.items()) == list(enumerate(hooks))
    assert list(module._forward_pre_hooks.items()) == list(enumerate(hooks))


@pytest.mark.parametrize("hook", [theirs, print, [].append])
def test_no_other_hook_counts_as_a_hook_of_kfext(hook: object) -> None:
    assert not is_kfext_hook(hook)
