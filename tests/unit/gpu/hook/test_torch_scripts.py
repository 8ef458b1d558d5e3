import copy
import pickle
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from kfext.gpu.hook.torch_scripts import Hook, hide_from_scripts, is_ours


class Module:
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


def hidden(module: Module) -> tuple[list[object], list[object]]:
    """What torch.jit.script sees of a module's hooks."""
    seen: list[list[object]] = []

    def get_hook_stubs(of: Module) -> None:
        seen.extend([list(of._forward_pre_hooks.values()), list(of._forward_hooks.values())])

    recursive = SimpleNamespace(get_hook_stubs=get_hook_stubs)
    hide_from_scripts(SimpleNamespace(jit=SimpleNamespace(_recursive=recursive)))
    recursive.get_hook_stubs(module)
    return seen[0], seen[1]


def test_torchscript_sees_neither_our_hooks_nor_copies_of_them() -> None:
    ours = Hook(print)
    hooks = [theirs, ours, copy.deepcopy(ours), print]
    module = Module(*hooks)
    assert hidden(module) == ([theirs, print], [theirs, print])
    assert list(module._forward_hooks.items()) == list(enumerate(hooks))
    assert list(module._forward_pre_hooks.items()) == list(enumerate(hooks))


@pytest.mark.parametrize("hook", [theirs, print, [].append])
def test_no_other_hook_is_taken_for_ours(hook: object) -> None:
    assert not is_ours(hook)
