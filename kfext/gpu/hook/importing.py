"""To act when the job imports a module, without importing it before."""

from __future__ import annotations

import sys
from _thread import get_ident

from .stderr import report

TYPE_CHECKING = False  # what `typing` says: it is not imported here, see `start`
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


def when_imported(
    names: Iterable[str], install: Callable[[str, ModuleType], None], failed: Callable[[], None]
) -> None:
    """Have a function called with the name of each module and itself, right after its import.

    `failed` is called after one that has raised an error.
    """
    sys.meta_path.insert(0, _Finder(set(names), install, failed))


class _Finder:
    """Finds what the finders after it find, and has the loader call the function at its end.

    Code often looks for a framework without importing it, or tries again after a failed import. So
    a name goes only when its module has been imported.
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
        others: list[Any] = [one for one in sys.meta_path if one is not self]
        found = (one.find_spec(fullname, path, target) for one in others if _finds(one))
        self._searching.add(thread)  # another finder may ask all of them again
        try:
            spec: ModuleSpec | None = next((one for one in found if one is not None), None)
        finally:
            self._searching.discard(thread)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            loader: Any = _Loader(spec.loader, lambda module: self._act(fullname, module))
            spec.loader = loader
        return spec

    def _act(self, name: str, module: ModuleType) -> None:
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


def _finds(finder: Any) -> bool:
    """Return whether a finder is of the kind that Python has had since 3.4."""
    return hasattr(finder, "find_spec")


class _Loader:
    """A module's own loader, to all who ask, but for the end of the import."""

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
        # The module keeps its own loader: some code asks of what type it is.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._loaded(module)
