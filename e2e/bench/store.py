"""Runs are stored as they end, so that a benchmark that is broken off goes on where it was.

Those behind the tables of docs/performance.md are kept in `measured`, from where a benchmark goes
on too: a whole one takes longer than a machine may be had for.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from e2e.testbed import paths
from e2e.testbed.images.layers import files_below, key

Object = dict[str, Any]
_FOLDER = "bench-runs"


class Store:
    """The stored runs of one arm of a benchmark, or of what else is measured once.

    `title`: names their folder. `inputs`, `sources`: what else a run depends on. With others it is
    another run: nothing measured under one set-up counts for another.
    """

    def __init__(
        self, title: str, inputs: Iterable[str] = (), sources: Iterable[Path] = ()
    ) -> None:
        slug = re.sub(r"[^a-z0-9.]+", "-", title.lower()).strip("-")
        self._folder = f"{slug}-{key([title, *inputs, *files_below(*sources)])}"

    def find(self, name: str) -> Object | None:
        """Return what a run measured, None if it has not been stored."""
        found = (folder / f"{name}.json" for folder in self._folders())
        return next((json.loads(path.read_text()) for path in found if path.exists()), None)

    def put(self, name: str, measured: Object) -> None:
        """Store what a run measured."""
        path = self._folders()[0] / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(measured, indent=1))
        unfinished.replace(path)

    def forget(self) -> None:
        """Remove all of its runs."""
        for folder in self._folders():
            for path in folder.glob("*.json"):
                path.unlink()

    def _folders(self) -> tuple[Path, Path]:
        """Return where runs are stored, and where they are kept."""
        return paths.cache() / _FOLDER / self._folder, kept() / self._folder


def kept() -> Path:
    """Return the folder of the runs that are kept in the repository."""
    return Path(__file__).with_name("measured")
