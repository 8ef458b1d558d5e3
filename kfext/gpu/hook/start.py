"""The start of the hook in each Python process of a job that shares a GPU.

It does as little as possible, without modules of the standard library that a program may replace:
the program's folder is on `sys.path` only later, and an earlier import would hide its module. So
all other files of the hook are imported only after a framework, which needs most of the same
modules anyway.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from importlib import import_module

TYPE_CHECKING = False  # `typing` is not imported here, see above
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

PRIORITY, SOCKET = "KFEXT_GPU_PRIORITY", "KFEXT_GPU_SOCKET"
RECORDED = "KFEXT_PYTHONPATH"
"""Environment variables: the priority, `high` or `low`; the path of the agent's socket; the path of
a file with the image's own PYTHONPATH."""
DEVICE = "KFEXT_GPU_DEVICE"
"""Variable with MODULE:CLASS of a simulated card in tests; the class is called with torch."""
HIGH = "high"
_PYTHONPATH = "PYTHONPATH"
"""A variable of the pod replaces the image's own PYTHONPATH instead of extending it."""
_LONGEST_PATH = 65536  # characters
_KERAS = ("keras", "tf_keras", "tensorflow")


def start() -> None:
    """Install hooks when the process imports a framework. Raises no foreseeable error."""
    restore(os.environ.get(RECORDED, ""))
    if not os.environ.get(SOCKET):
        return
    frameworks = ("torch", *(_KERAS if os.environ.get(PRIORITY) == HIGH else ()))
    when_imported(frameworks, _install, _report_failure)


def _install(name: str, framework: ModuleType) -> None:
    _frameworks().install(name, framework)


def _report_failure() -> None:
    _frameworks().report_failure()


def _frameworks() -> ModuleType:
    """Import the rest of the hook. A process without a framework does not need it."""
    return import_module(".frameworks", __package__)


def report(text: str) -> None:
    """Write a line to stderr, if the job has not closed it."""
    try:
        sys.stderr.write(f"kfext: {text}\n")
    except Exception:
        return


def restore(recorded: str) -> None:
    """Append the image's own PYTHONPATH to the hook's path, for this process and its children.

    `recorded`: the path of the file with it, written before the job's containers start. If the file
    does not exist, nothing is restored.
    """
    try:
        with open(recorded, encoding="utf-8", errors="surrogateescape") as file:
            paths = file.read(_LONGEST_PATH).strip("\n")
    except OSError:
        return
    present = os.environ.get(_PYTHONPATH, "")
    missing = [path for path in paths.split(os.pathsep) if path not in present.split(os.pathsep)]
    if not paths or not missing:
        return  # the parent process has restored it
    os.environ[_PYTHONPATH] = os.pathsep.join([present, *missing] if present else missing)
    index = _index_after(present)
    sys.path[index:index] = [path for path in missing if path not in sys.path]


def _index_after(present: str) -> int:
    """Return the index in `sys.path` after the paths of the present PYTHONPATH."""
    wanted = {os.path.abspath(path) for path in present.split(os.pathsep) if path}
    indices = [index for index, path in enumerate(sys.path) if os.path.abspath(path) in wanted]
    return max(indices, default=-1) + 1


def when_imported(
    names: Iterable[str], install: Callable[[str, ModuleType], None], failed: Callable[[], None]
) -> None:
    """Call `install` with the name and the module right after the import of each named module.

    No module is imported earlier by this. `failed` is called after an error of `install`.
    """
    sys.meta_path.insert(0, _Finder(set(names), install, failed))


class _Finder:
    """Finds modules with the other finders, and makes their loaders call `install` at the end.

    Code often looks for a framework without importing it, or retries after a failed import. So a
    name is dropped only after its module has been imported.
    """

    def __init__(
        self,
        names: set[str],
        install: Callable[[str, ModuleType], None],
        failed: Callable[[], None],
    ) -> None:
        self._names = names
        self._install = install
        self._failed = failed
        self._searching: set[int] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        thread = get_ident()
        if fullname not in self._names or thread in self._searching:
            return None
        others: list[Any] = [finder for finder in sys.meta_path if finder is not self]
        specs = (finder.find_spec(fullname, path, target) for finder in others if _modern(finder))
        self._searching.add(thread)  # another finder may call all finders again
        try:
            spec: ModuleSpec | None = next((spec for spec in specs if spec is not None), None)
        finally:
            self._searching.discard(thread)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            loader: Any = _Loader(spec.loader, lambda module: self._call_install(fullname, module))
            spec.loader = loader
        return spec

    def _call_install(self, name: str, module: ModuleType) -> None:
        if name not in self._names:
            return
        self._names.discard(name)
        try:
            self._install(name, module)
        except Exception as error:
            report(f"{name} is not hooked: {error!r}")
            self._report_failure()

    def _report_failure(self) -> None:
        try:
            self._failed()
        except Exception:
            return


def _modern(finder: Any) -> bool:
    """Return whether a finder has the interface of Python 3.4 and later."""
    return hasattr(finder, "find_spec")


class _Loader:
    """Acts as a module's own loader, and also reports the end of the import."""

    def __init__(self, loader: Any, loaded: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._loaded = loaded

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # copy and pickle ask before __init__ has run
            raise AttributeError(name)
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        # The module keeps its own loader, because some code checks the type of a loader.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._loaded(module)
