"""To act when the job imports a module, without importing it before."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def when_imported(installs: Mapping[str, Callable[[ModuleType], None]]) -> None:
    """Have each function called with the module of its name, right after that was imported."""
    sys.meta_path.insert(0, _Finder(dict(installs)))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds what the finders after it find, and has the loader call the function at its end."""

    def __init__(self, installs: dict[str, Callable[[ModuleType], None]]) -> None:
        self._installs = installs

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        install = self._installs.pop(fullname, None)  # so that the search below passes this finder
        if install is None:
            return None
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return spec
        spec.loader = _Loader(spec.loader, install)
        return spec


class _Loader(importlib.abc.Loader):
    """A module's own loader, to all who ask, but for the end of the import."""

    def __init__(self, loader: Any, install: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._install = install

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
        try:
            self._install(module)
        except Exception as error:
            sys.stderr.write(f"kfext: {module.__name__} is not hooked: {error!r}\n")
