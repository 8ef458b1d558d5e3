"""The start of Python in a job's container, with real interpreters."""

import ast
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kfext.gpu.agent.hook_files import lay_out
from kfext.gpu.hook import words
from kfext.gpu.hook.agent_connection import receive
from kfext.gpu.hook.page import words_of

_SHOW_PATHS = """
import json, os, sys
print(json.dumps({name: name in sys.modules for name in sys.argv[1:]}
                 | {"paths": sys.path, "PYTHONPATH": os.environ["PYTHONPATH"]}))
"""


@pytest.fixture
def hook(tmp_path: Path) -> Path:
    """Return a folder with the files that the agent mounts into a job."""
    return lay_out(tmp_path / "hook", busybox=Path(__file__))


def run(code: str, *arguments: str, flags: tuple[str, ...] = (), **env: str) -> str:
    """Run code in a new interpreter; return what it prints."""
    done = subprocess.run(
        [sys.executable, *flags, "-c", code, *arguments],
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout


def write_module(folder: Path, name: str, text: str = "") -> Path:
    """Write a Python module into a folder; return the folder."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(text)
    return folder


def test_the_sitecustomize_that_the_hook_hides_runs_too(hook: Path, tmp_path: Path) -> None:
    program = write_module(tmp_path / "program", "sitecustomize", "import colorsys\nmark = 7")
    code = "import sitecustomize, sys; print(sitecustomize.mark, 'colorsys' in sys.modules)"
    assert run(code, PYTHONPATH=f"{hook}:{program}") == "7 True\n"


def test_a_sitecustomize_that_imports_the_next_hooks_only_once(hook: Path, tmp_path: Path) -> None:
    importing_next = (
        "import os, sys\n"
        "here = os.path.dirname(os.path.abspath(__file__))\n"
        "sys.path.remove(here)\n"
        "del sys.modules['sitecustomize']\n"
        "import sitecustomize\n"
        "sys.path.append(here)\n"
    )
    program = write_module(tmp_path / "program", "sitecustomize", importing_next)
    code = "import sys; print([type(item).__name__ for item in sys.meta_path].count('_Finder'))"
    result = run(code, PYTHONPATH=f"{hook}:{program}", KFEXT_GPU_SOCKET="/nowhere")
    assert result == "1\n"


def test_the_hook_needs_no_more_than_python_3_8_and_its_standard_library(hook: Path) -> None:
    for path in (*hook.rglob("*.py"),):
        tree = ast.parse(path.read_text(), feature_version=(3, 8))
        for node in ast.walk(tree):
            named = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                named = [node.module or ""]
            tops = {name.partition(".")[0] for name in named}
            assert tops <= {*sys.stdlib_module_names, "kfext_hook"}, path


def test_the_path_of_the_image_is_restored_here_and_in_children(hook: Path, tmp_path: Path) -> None:
    program = write_module(tmp_path / "program", "program")
    (tmp_path / "recorded").write_text(f"{program}\n")
    code = f"""
import subprocess, sys, program
subprocess.run([sys.executable, "-c", {_SHOW_PATHS!r}, "kfext_hook"], check=True)
"""
    shown = json.loads(run(code, PYTHONPATH=str(hook), KFEXT_PYTHONPATH=str(tmp_path / "recorded")))
    assert shown["PYTHONPATH"] == f"{hook}:{program}"
    assert shown["paths"].count(str(program)) == 1
    assert shown["kfext_hook"]


def test_without_a_recorded_path_nothing_changes(hook: Path, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    shown = json.loads(run(_SHOW_PATHS, PYTHONPATH=str(hook), KFEXT_PYTHONPATH=missing))
    assert shown["PYTHONPATH"] == str(hook)


def test_a_process_without_a_framework_imports_neither_torch_nor_ctypes(hook: Path) -> None:
    shown = json.loads(
        run(_SHOW_PATHS, "torch", "ctypes", PYTHONPATH=str(hook), KFEXT_GPU_SOCKET="/nowhere")
    )
    assert not shown["torch"]
    assert not shown["ctypes"]


def test_the_start_imports_almost_no_other_module(hook: Path) -> None:
    code = "import sys; print(*sys.modules)"
    hooked = run(code, PYTHONPATH=str(hook), KFEXT_GPU_SOCKET="/nowhere", KFEXT_GPU_PRIORITY="high")
    more = {name.partition(".")[0] for name in set(hooked.split()) - set(run(code).split())}
    assert more <= {"kfext_hook", "sitecustomize", "importlib", "warnings", "__future__"}


@pytest.mark.parametrize("priority", ["high", "low"])
def test_the_hook_hides_no_module_of_the_program(hook: Path, tmp_path: Path, priority: str) -> None:
    program = tmp_path / "program"
    for name in ("statistics", "queue", "json", "random", "select", "array"):
        write_module(program, name, f"label = {name!r}")
    code = f"import sys; sys.path.insert(0, {str(program)!r})\n"
    code += "import statistics, queue, json, random, select, array\n"
    code += "modules = statistics, queue, json, random, select, array\n"
    code += "print(*(module.label for module in modules))"
    result = run(
        code, PYTHONPATH=str(hook), KFEXT_GPU_SOCKET="/nowhere", KFEXT_GPU_PRIORITY=priority
    )
    assert result == "statistics queue json random select array\n"


def test_a_hook_that_fails_at_the_start_does_not_end_the_job(hook: Path, tmp_path: Path) -> None:
    program = write_module(tmp_path / "program", "sitecustomize", "mark = 7")
    (hook / "kfext_hook/start.py").write_text("raise RuntimeError('no')")
    done = subprocess.run(
        [sys.executable, "-c", "import sitecustomize; print(sitecustomize.mark)"],
        env={"PYTHONPATH": f"{hook}:{program}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "7\n"
    assert "RuntimeError('no')" in done.stderr


def test_a_hooked_framework_keeps_its_own_loader(hook: Path, tmp_path: Path) -> None:
    program = write_module(tmp_path / "program", "framework", "items = [1]")
    code = """
from kfext_hook.start import when_imported
when_imported(["framework"], lambda _, module: module.items.append(2), failed=lambda: None)
import framework, importlib.machinery
assert isinstance(framework.__spec__.loader, importlib.machinery.SourceFileLoader)
assert isinstance(framework.__loader__, importlib.machinery.SourceFileLoader)
print(framework.items)
"""
    assert run(code, PYTHONPATH=f"{hook}:{program}") == "[1, 2]\n"


_HOOK_FRAMEWORK = """
from importlib.util import find_spec
from kfext_hook.start import when_imported
calls = []
failed = lambda: calls.append("failed")
when_imported(["framework"], lambda _, module: calls.append(module.mark), failed)
"""


def test_a_framework_is_hooked_after_an_earlier_search_for_it(hook: Path, tmp_path: Path) -> None:
    program = write_module(tmp_path / "program", "framework", "mark = 7")
    code = f"""{_HOOK_FRAMEWORK}
assert find_spec("framework").origin == find_spec("framework").loader.path
assert calls == []
import framework, importlib
importlib.reload(framework)
print(calls)
"""
    assert run(code, PYTHONPATH=f"{hook}:{program}") == "[7]\n"


def test_an_import_that_is_tried_again_after_an_error_is_hooked(hook: Path, tmp_path: Path) -> None:
    text = "import sys\nassert sys.argv[1:]\nmark = 7"
    program = write_module(tmp_path / "program", "framework", text)
    code = f"""{_HOOK_FRAMEWORK}
import sys
try:
    import framework
except AssertionError:
    sys.argv.append("now")
import framework
print(calls)
"""
    assert run(code, PYTHONPATH=f"{hook}:{program}") == "[7]\n"


def reported(hook: Path, agent: Path, program: Path, code: str, *, priority: str = "high") -> int:
    """Run code in a job; return the reason that its process reports to the agent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(agent))
        listening.listen()
        listening.settimeout(20)
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{hook}:{program}",
            "KFEXT_GPU_SOCKET": str(agent),
            "KFEXT_GPU_PRIORITY": priority,
        }
        command = [sys.executable, "-c", f"{code}\nimport sys\nsys.stdin.read()"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, env=env) as job:
            peer, _ = listening.accept()
            with peer:
                answer = receive(peer)
                assert answer is not None
                _, (page,) = answer
                reason = words_of(page)[words.UNHOOKED]
                assert receive(peer) is None, "it uses no connection that a hook may need"
            assert job.stdin is not None
            job.stdin.close()
    return reason


def test_a_framework_without_a_hook_is_reported_to_the_agent(hook: Path, tmp_path: Path) -> None:
    program = write_module(tmp_path / "program", "torch", "mark = 7")
    result = reported(hook, tmp_path / "agent", program, "import torch", priority="low")
    assert result == words.FAILED


def test_a_tensorflow_with_keras_is_reported_to_the_agent(hook: Path, tmp_path: Path) -> None:
    program = write_module(tmp_path / "program", "tensorflow", "__version__ = '2.5.3'")
    result = reported(hook, tmp_path / "agent", program, "import tensorflow")
    assert result == words.OLD_TENSORFLOW


@pytest.mark.parametrize("version", ["2.6.0", "2.16.1", "unknown", ""])
def test_any_other_tensorflow_reports_nothing(hook: Path, tmp_path: Path, version: str) -> None:
    program = write_module(tmp_path / "program", "tensorflow", f"__version__ = {version!r}")
    shown = run(
        "import tensorflow, os; print(len(os.listdir('/proc/self/task')))",
        PYTHONPATH=f"{hook}:{program}",
        KFEXT_GPU_SOCKET="/nowhere",
        KFEXT_GPU_PRIORITY="high",
    )
    assert shown == "1\n"


@pytest.mark.parametrize("flag", ["-S", "-E", "-I"])
def test_a_process_without_site_or_the_environment_is_not_hooked(hook: Path, flag: str) -> None:
    code = "import sys; print('kfext_hook' in sys.modules)"
    assert run(code, flags=(flag,), PYTHONPATH=str(hook)) == "False\n"
