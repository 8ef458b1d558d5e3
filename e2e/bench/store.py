"""Runs are stored as they end, so that a benchmark that is broken off goes on where it was.

They are in `measured`, which git ignores. A release carries the runs behind the tables of
docs/performance.md: unpacked there, a benchmark measures only what is missing.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from e2e.testbed.images.layers import files_below, key

Object = dict[str, Any]
RUNS = Path(__file__).with_name("measured")
"""Has a folder for each arm, named after the arm and a hash of all that its runs depend on."""


class Store:
    """The stored runs of one arm of a benchmark, or of what else is measured once.

    `title`: names their folder. `inputs`, `sources`: what else a run depends on. With others it is
    another run: nothing measured under one set-up counts for another.
    """

    def __init__(
        self, title: str, inputs: Iterable[str] = (), sources: Iterable[Path] = ()
    ) -> None:
        slug = re.sub(r"[^a-z0-9.]+", "-", title.lower()).strip("-")
        self._folder = RUNS / f"{slug}-{key([title, *inputs, *files_below(*sources)])}"

    def find(self, name: str) -> Object | None:
        """Return what a run measured, None if it has not been stored."""
        path = self._folder / f"{name}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def put(self, name: str, measured: Object) -> None:
        """Store what a run measured."""
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._folder / f"{name}.unfinished"
        unfinished.write_text(json.dumps(measured, indent=1))
        unfinished.replace(self._folder / f"{name}.json")

    def forget(self) -> None:
        """Remove all of its runs."""
        for path in self._folder.glob("*.json"):
            path.unlink()
