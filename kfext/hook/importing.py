"""To act when the job imports a module, without importing it before."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .switch import report


def when_imported(
    installs: Mapping[str, Callable[[ModuleType], None]], failed: Callable[[], None]
) -> None:
    """Have each function called with the module of its name, right after that was imported.

    `failed` is called after one that has raised an error.
    """
    sys.meta_path.insert(0, _Finder(dict(installs), failed))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds what the finders after it find, and has the loader call the function at its end.

    Code often looks for a framework without importing it, or tries again after a failed import. So
    an entry goes only when its module has been imported.
    """

    def __init__(
        self, installs: dict[str, Callable[[ModuleType], None]], failed: Callable[[], None]
    ) -> None:
        self._installs = installs
        self._failed = failed
        self._thread = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._installs or getattr(self._thread, "searches", False):
            return None
        self._thread.searches = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._thread.searches = False
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, lambda module: self._install(fullname, module))
        return spec

    def _install(self, name: str, module: ModuleType) -> None:
        install = self._installs.pop(name, None)
        try:
            if install is not None:
                install(module)
        except Exception as error:
            report(f"{name} is not hooked: {error!r}")
            with suppress(Exception):
                self._failed()


class _Loader(importlib.abc.Loader):
    """A module's own loader, to all who ask, but for the end of the import."""

    def __init__(self, loader: Any, loaded: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._loaded = loaded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        # The module keeps its own loader: some code asks of what type it is.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._loaded(module)
