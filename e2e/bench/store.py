"""Runs are stored as they end, so that a benchmark that is broken off goes on where it was."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from e2e.testbed import paths
from e2e.testbed.images.layers import files_below, key

Object = dict[str, Any]
_FOLDER = "bench-runs"


class Store:
    """The stored runs of one benchmark. `inputs`: what else a run depends on, besides its name.

    With other inputs it is another run: nothing measured under one set-up counts for another.
    """

    def __init__(self, inputs: Iterable[str], sources: Iterable[Path]) -> None:
        self._key = key([*inputs, *files_below(*sources)])

    def find(self, name: str) -> Object | None:
        """Return what a run measured, None if it has not been stored."""
        path = self._path(name)
        return json.loads(path.read_text()) if path.exists() else None

    def put(self, name: str, measured: Object) -> None:
        """Store what a run measured."""
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(measured, indent=1))
        unfinished.replace(path)

    def forget(self) -> None:
        """Remove all of its runs."""
        for path in self._path("any").parent.glob("*.json"):
            path.unlink()

    def _path(self, name: str) -> Path:
        return paths.cache() / _FOLDER / self._key / f"{name}.json"
