"""Acts when the job imports a module, without importing it earlier."""

from __future__ import annotations

import sys
from _thread import get_ident

from .stderr import report

TYPE_CHECKING = False  # `typing` is not imported here, see `start`
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


def when_imported(
    names: Iterable[str], install: Callable[[str, ModuleType], None], failed: Callable[[], None]
) -> None:
    """Call a function with the name and the module, right after the import of each named module.

    `failed` is called after a function has raised an error.
    """
    sys.meta_path.insert(0, _Finder(set(names), install, failed))


class _Finder:
    """Asks the finders after it, and makes the loader call the function at the end.

    Code often looks for a framework without importing it, or tries again after a failed import. So
    a name is dropped only after its module has been imported.
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
        specs = (finder.find_spec(fullname, path, target) for finder in others if _finds(finder))
        self._searching.add(thread)  # another finder may ask all finders again
        try:
            spec: ModuleSpec | None = next((finder for finder in specs if finder is not None), None)
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
