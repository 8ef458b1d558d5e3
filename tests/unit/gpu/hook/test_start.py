"""The start of Python in a job's container, by real interpreters."""

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

_SHOWS = """
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


def module(folder: Path, name: str, text: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(text)
    return folder


def test_the_hidden_sitecustomize_runs_too(hook: Path, tmp_path: Path) -> None:
    theirs = module(tmp_path / "theirs", "sitecustomize", "import colorsys\nmark = 7")
    code = "import sitecustomize, sys; print(sitecustomize.mark, 'colorsys' in sys.modules)"
    assert run(code, PYTHONPATH=f"{hook}:{theirs}") == "7 True\n"


def test_a_sitecustomize_that_imports_the_next_does_not_hook_the_process_twice(
    hook: Path, tmp_path: Path
) -> None:
    again = (
        "import os, sys\n"
        "here = os.path.dirname(os.path.abspath(__file__))\n"
        "sys.path.remove(here)\n"
        "del sys.modules['sitecustomize']\n"
        "import sitecustomize\n"
        "sys.path.append(here)\n"
    )
    theirs = module(tmp_path / "theirs", "sitecustomize", again)
    code = "import sys; print([type(one).__name__ for one in sys.meta_path].count('_Finder'))"
    result = run(code, PYTHONPATH=f"{hook}:{theirs}", KFEXT_GPU_SOCKET="/nowhere")
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
    theirs = module(tmp_path / "theirs", "theirs")
    (tmp_path / "recorded").write_text(f"{theirs}\n")
    code = f"""
import subprocess, sys, theirs
subprocess.run([sys.executable, "-c", {_SHOWS!r}, "kfext_hook"], check=True)
"""
    shown = json.loads(run(code, PYTHONPATH=str(hook), KFEXT_PYTHONPATH=str(tmp_path / "recorded")))
    assert shown["PYTHONPATH"] == f"{hook}:{theirs}"
    assert shown["paths"].count(str(theirs)) == 1
    assert shown["kfext_hook"]


def test_without_a_recorded_path_nothing_changes(hook: Path, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    shown = json.loads(run(_SHOWS, PYTHONPATH=str(hook), KFEXT_PYTHONPATH=missing))
    assert shown["PYTHONPATH"] == str(hook)


def test_a_process_that_imports_no_framework_gets_nothing(hook: Path) -> None:
    shown = json.loads(
        run(_SHOWS, "torch", "ctypes", PYTHONPATH=str(hook), KFEXT_GPU_SOCKET="/nowhere")
    )
    assert not shown["torch"]
    assert not shown["ctypes"]


def test_almost_nothing_of_the_standard_library_is_imported_at_the_start(hook: Path) -> None:
    code = "import sys; print(*sys.modules)"
    hooked = run(code, PYTHONPATH=str(hook), KFEXT_GPU_SOCKET="/nowhere", KFEXT_GPU_PRIORITY="high")
    more = {name.partition(".")[0] for name in set(hooked.split()) - set(run(code).split())}
    assert more <= {"kfext_hook", "sitecustomize", "importlib", "warnings", "__future__"}


@pytest.mark.parametrize("priority", ["high", "low"])
def test_the_hook_hides_no_module_of_the_program(hook: Path, tmp_path: Path, priority: str) -> None:
    theirs = tmp_path / "theirs"
    for name in ("statistics", "queue", "json", "random", "select", "array"):
        module(theirs, name, f"of = {name!r}")
    code = f"import sys; sys.path.insert(0, {str(theirs)!r})\n"
    code += "import statistics, queue, json, random, select, array\n"
    code += "print(statistics.of, queue.of, json.of, random.of, select.of, array.of)"
    result = run(
        code, PYTHONPATH=str(hook), KFEXT_GPU_SOCKET="/nowhere", KFEXT_GPU_PRIORITY=priority
    )
    assert result == "statistics queue json random select array\n"


def test_a_hook_that_fails_leaves_the_job_alone(hook: Path, tmp_path: Path) -> None:
    theirs = module(tmp_path / "theirs", "sitecustomize", "mark = 7")
    (hook / "kfext_hook/start.py").write_text("raise RuntimeError('no')")
    done = subprocess.run(
        [sys.executable, "-c", "import sitecustomize; print(sitecustomize.mark)"],
        env={"PYTHONPATH": f"{hook}:{theirs}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "7\n"
    assert "RuntimeError('no')" in done.stderr


def test_a_framework_is_hooked_after_its_import_and_keeps_its_own_loader(
    hook: Path, tmp_path: Path
) -> None:
    theirs = module(tmp_path / "theirs", "framework", "made = [1]")
    code = """
from kfext_hook.start import when_imported
when_imported(["framework"], lambda _, module: module.made.append(2), failed=lambda: None)
import framework, importlib.machinery
assert isinstance(framework.__spec__.loader, importlib.machinery.SourceFileLoader)
assert isinstance(framework.__loader__, importlib.machinery.SourceFileLoader)
print(framework.made)
"""
    assert run(code, PYTHONPATH=f"{hook}:{theirs}") == "[1, 2]\n"


_INSTALLS = """
from importlib.util import find_spec
from kfext_hook.start import when_imported
made = []
when_imported(["framework"], lambda _, of: made.append(of.mark), lambda: made.append("failed"))
"""


def test_a_search_for_a_framework_before_the_import_leaves_it_hooked(
    hook: Path, tmp_path: Path
) -> None:
    theirs = module(tmp_path / "theirs", "framework", "mark = 7")
    code = f"""{_INSTALLS}
assert find_spec("framework").origin == find_spec("framework").loader.path
assert made == []
import framework, importlib
importlib.reload(framework)
print(made)
"""
    assert run(code, PYTHONPATH=f"{hook}:{theirs}") == "[7]\n"


def test_an_import_that_is_tried_again_after_an_error_is_hooked(hook: Path, tmp_path: Path) -> None:
    text = "import sys\nassert sys.argv[1:]\nmark = 7"
    theirs = module(tmp_path / "theirs", "framework", text)
    code = f"""{_INSTALLS}
import sys
try:
    import framework
except AssertionError:
    sys.argv.append("now")
import framework
print(made)
"""
    assert run(code, PYTHONPATH=f"{hook}:{theirs}") == "[7]\n"


def states(hook: Path, agent: Path, theirs: Path, code: str, *, priority: str = "high") -> int:
    """Run code in a job; return the reason that its process states to the agent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(agent))
        listening.listen()
        listening.settimeout(20)
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{hook}:{theirs}",
            "KFEXT_GPU_SOCKET": str(agent),
            "KFEXT_GPU_PRIORITY": priority,
        }
        waits = f"{code}\nimport sys\nsys.stdin.read()"
        command = [sys.executable, "-c", waits]
        with subprocess.Popen(command, stdin=subprocess.PIPE, env=env) as job:
            peer, _ = listening.accept()
            with peer:
                answer = receive(peer)
                assert answer is not None
                _, (page,) = answer
                reason = words_of(page)[words.UNHOOKED]
                assert receive(peer) is None, "it takes no place from a process with a hook"
            assert job.stdin is not None
            job.stdin.close()
    return reason


def test_a_framework_that_cannot_be_hooked_is_stated_to_the_agent(
    hook: Path, tmp_path: Path
) -> None:
    theirs = module(tmp_path / "theirs", "torch", "mark = 7")
    result = states(hook, tmp_path / "agent", theirs, "import torch", priority="low")
    assert result == words.FAILED


def test_a_tensorflow_whose_keras_is_a_part_of_it_is_stated_to_the_agent(
    hook: Path, tmp_path: Path
) -> None:
    theirs = module(tmp_path / "theirs", "tensorflow", "__version__ = '2.5.3'")
    result = states(hook, tmp_path / "agent", theirs, "import tensorflow")
    assert result == words.OLD_TENSORFLOW


@pytest.mark.parametrize("version", ["2.6.0", "2.16.1", "unknown", ""])
def test_another_tensorflow_states_nothing(hook: Path, tmp_path: Path, version: str) -> None:
    theirs = module(tmp_path / "theirs", "tensorflow", f"__version__ = {version!r}")
    shown = run(
        "import tensorflow, os; print(len(os.listdir('/proc/self/task')))",
        PYTHONPATH=f"{hook}:{theirs}",
        KFEXT_GPU_SOCKET="/nowhere",
        KFEXT_GPU_PRIORITY="high",
    )
    assert shown == "1\n"


@pytest.mark.parametrize("flag", ["-S", "-E", "-I"])
def test_a_process_without_site_or_the_environment_is_not_hooked(hook: Path, flag: str) -> None:
    code = "import sys; print('kfext_hook' in sys.modules)"
    assert run(code, flags=(flag,), PYTHONPATH=str(hook)) == "False\n"
