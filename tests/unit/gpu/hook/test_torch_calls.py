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


class HookedTorch:
    """TorchCalls on a fake of PyTorch. `events`: the names of the events so far."""

    def __init__(self) -> None:
        self.torch, self.card, self.events = FakeTorch(), FakeCard(), list[str]()
        self.calls = TorchCalls(self.torch, self.card, KillSwitch())

    def record(self, event: str) -> Callable[..., None]:
        return lambda *_: self.events.append(event)


@pytest.fixture
def hooked() -> HookedTorch:
    return HookedTorch()


@dataclass
class Result:
    loss: Tensor
    more: Any = None


def test_tensors_are_found_in_nested_lists_tuples_dicts_and_objects() -> None:
    first, second, third, fourth = (Tensor() for _ in range(4))
    value = {"a": first, "b": [second, {"c": (Result(third, more={"d": [fourth]}),)}]}
    results = list(tensors(FakeTorch(), value))
    assert results == [first, second, third, fourth]


def test_the_search_for_tensors_is_bounded_and_skips_modules() -> None:
    inner = Tensor()
    value: list[Any] = [inner, Module()]
    value.append(value)
    assert set(tensors(FakeTorch(), value)) == {inner}
    many = list(tensors(FakeTorch(), [[Tensor() for _ in range(1000)] for _ in range(100)]))
    assert len(many) < 1000


LEAVES: dict[str, Tensor] = {
    "a parameter, on which a hook would stay forever": Tensor(grad_fn=None),
    "a tensor that needs no gradient": Tensor(requires_grad=False),
}


@pytest.mark.parametrize("leaf", LEAVES.values(), ids=LEAVES)
def test_no_hook_is_put_on(hooked: HookedTorch, leaf: Tensor) -> None:
    result = Tensor()
    hooked.calls.on_backward((leaf, result), hooked.record("backward"))
    assert leaf.hooks == []
    assert result.hooks[0](object()) is None
    assert hooked.events == ["backward"]


def test_a_replay_is_announced_before_and_after_and_its_result_stays(hooked: HookedTorch) -> None:
    hooked.calls.on_replays(hooked.record("before"), hooked.record("after"))
    graph = hooked.torch.cuda.CUDAGraph()
    assert graph.replay() == "replayed"
    with pytest.raises(RuntimeError, match="the graph was reset"):
        graph.replay(fails=True)
    assert hooked.events == ["before", "after"] * 2


def test_hooks_do_nothing_while_a_graph_is_captured(hooked: HookedTorch) -> None:
    result = Tensor()
    hooked.calls.on_backward(result, hooked.record("backward"))
    hooked.card.captures = True
    result.hooks[0](object())
    assert hooked.events == []


def test_hooks_do_nothing_while_torch_compile_traces(hooked: HookedTorch) -> None:
    result = Tensor()
    hooked.calls.on_backward(result, hooked.record("backward"))
    hooked.torch.compiling = True
    result.hooks[0](object())
    assert hooked.events == []


def test_an_error_of_a_hook_turns_all_hooks_off_and_is_not_raised(
    hooked: HookedTorch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = Tensor(), Tensor()
    hooked.calls.on_backward(first, lambda: 1 // 0)  # type: ignore[arg-type]
    hooked.calls.on_backward(second, hooked.record("backward"))
    first.hooks[0](object())
    second.hooks[0](object())
    assert hooked.events == []
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize("known", [True, False])
def test_in_torch_2_0_the_hooks_do_nothing_while_torch_compile_traces(
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
    result, events = Tensor(), list[int]()
    calls = TorchCalls(torch, FakeCard(), KillSwitch())
    calls.on_backward(result, lambda: events.append(1))
    result.hooks[0](object())
    assert events == ([] if known else [1])


def test_an_object_that_raises_errors_is_skipped_in_the_search_for_tensors() -> None:
    class Proxy:
        def __getattribute__(self, name: str) -> object:
            raise RuntimeError("not bound")

    assert list(tensors(FakeTorch(), [Proxy(), tensor := Tensor()])) == [tensor]


class FakeModules:
    """A fake of torch.nn.modules.module, with the hooks for all modules."""

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
def test_a_second_set_of_functions_uses_the_same_hooks_of_all_modules(
    hooked: HookedTorch, monkeypatch: pytest.MonkeyPatch, *, compiled: bool
) -> None:
    modules = FakeModules()
    hooked.torch.nn.modules = SimpleNamespace(module=modules)
    dynamo = SimpleNamespace(counters={"stats": {"unique_graphs": int(compiled)}})
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", dynamo)
    results = []
    for name in ("one", "two"):
        handles = hooked.calls.on_modules(
            hooked.record(f"before {name}"), hooked.record(f"after {name}")
        )
        results.append((dict(modules.before), dict(modules.after)))
        modules.forward()
        hooked.calls.unhook(handles)
        assert bool(modules.before) is compiled, "code that was compiled with the hooks needs them"
        modules.forward()
    assert results[0] == results[1]
    assert hooked.events == ["before one", "after one", "before two", "after two"]


STEPS: dict[str, tuple[str, str]] = {
    "two steps in a row": ("bebe", "ss"),
    "a step that calls another step": ("bbee", "sa"),
    "a step that calls two other steps": ("bbebee", "ssa"),
    "a step that has raised an error": ("bbe", "s"),
}


@pytest.mark.parametrize(("calls", "announced"), STEPS.values(), ids=STEPS)
def test_of_nested_steps_only_the_inner_step_counts(calls: str, announced: str) -> None:
    """`calls`: b for begin, e for end. `announced`: s for a step, a for an outer step."""
    result = list[str]()
    begin, end = innermost(lambda: None, lambda _: result.append("s"), lambda: result.append("a"))
    for call in calls:
        begin() if call == "b" else end("optimizer")
    assert "".join(result) == announced


def test_the_steps_of_torch_1_13_are_announced_although_a_scheduler_wraps_the_method(
    hooked: HookedTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Optimizer:
        def step(self) -> None: ...

    class SGD(Optimizer):
        def step(self) -> str:  # type: ignore[override]
            return "stepped"

    hooked.torch.optim = SimpleNamespace(Optimizer=Optimizer)  # type: ignore[attr-defined]
    for name in ("torch", "torch.optim", "torch.optim.optimizer"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    hooked.calls.on_optimizers(
        hooked.record("before"), hooked.record("after"), hooked.record("around")
    )
    optimizers = [SGD() for _ in range(3)]
    optimizers[0].step = optimizers[0].step  # type: ignore[method-assign]
    assert [optimizer.step() for optimizer in optimizers] == ["stepped"] * 3
    assert hooked.events == ["before", "after"] * 3


class ModuleWithHooks:
    """A module with these hooks before and after its forward."""

    def __init__(self, *hooks: object) -> None:
        self._forward_pre_hooks: OrderedDict[int, object] = OrderedDict(enumerate(hooks))
        self._forward_hooks: OrderedDict[int, object] = OrderedDict(enumerate(hooks))


def own_hook() -> None:
    """A hook of the program itself."""


def test_a_copy_of_a_hook_does_nothing_before_or_after_a_forward() -> None:
    calls: list[object] = []
    hook: Callable[..., object] = copy.deepcopy(Hook(calls.append))
    assert hook("module", ("input",)) is None
    assert hook("module", ("input",), "output") is None
    assert calls == []


def test_a_pickle_of_a_hook_can_be_read_without_kfext() -> None:
    data = pickle.dumps(Hook(print))
    code = f"import pickle; print(pickle.loads({data!r})('module', (), 'output'))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "None\n"


def seen_by_torchscript(module: ModuleWithHooks) -> tuple[list[object], list[object]]:
    """Return the hooks before and after the forward of a module that torch.jit.script sees."""
    seen: list[list[object]] = []

    def get_hook_stubs(module: ModuleWithHooks) -> None:
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            seen.append(list(hooks.values()))

    recursive = SimpleNamespace(get_hook_stubs=get_hook_stubs)
    hide_from_scripts(SimpleNamespace(jit=SimpleNamespace(_recursive=recursive)))
    recursive.get_hook_stubs(module)
    return seen[0], seen[1]


def test_torchscript_sees_neither_hooks_of_kfext_nor_copies_of_them() -> None:
    hook = Hook(print)
    hooks = [own_hook, hook, copy.deepcopy(hook), print]
    module = ModuleWithHooks(*hooks)
    assert seen_by_torchscript(module) == ([own_hook, print], [own_hook, print])
    assert list(module._forward_hooks.items()) == list(enumerate(hooks))
    assert list(module._forward_pre_hooks.items()) == list(enumerate(hooks))


@pytest.mark.parametrize("hook", [own_hook, print, [].append])
def test_no_other_hook_counts_as_a_hook_of_kfext(hook: object) -> None:
    assert not is_kfext_hook(hook)
