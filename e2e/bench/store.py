"""Stores each run at its end, so that an interrupted benchmark can continue.

Stored runs are in `measured`, which git ignores. A release contains the runs behind the tables of
docs/reports; once they are unpacked there, a benchmark makes only the missing runs.
"""

import json
import random
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from e2e.testbed.images.layers import files_below, key
from e2e.testbed.progress import say

Object = dict[str, Any]
RUNS = Path(__file__).with_name("measured")
"""The folder with a folder for each arm, named by the arm and a hash of its inputs and sources."""
_Run = TypeVar("_Run")
_TRIES = 3


class Store:
    """The stored runs of an arm of a benchmark, or of a different measurement.

    `title`: the base of the folder's name. `inputs`, `sources`: everything else that a run depends
    on; a run is found only with the same inputs and the same bytes of the source files.
    """

    def __init__(
        self, title: str, inputs: Iterable[str] = (), sources: Iterable[Path] = ()
    ) -> None:
        slug = re.sub(r"[^a-z0-9.]+", "-", title.lower()).strip("-")
        self._folder = RUNS / f"{slug}-{key([title, *inputs, *files_below(*sources)])}"

    def find(self, name: str) -> Object | None:
        path = self._folder / f"{name}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def put(self, name: str, measured: Object) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._folder / f"{name}.unfinished"
        unfinished.write_text(json.dumps(measured, indent=1))
        unfinished.replace(self._folder / f"{name}.json")

    def forget(self) -> None:
        for path in self._folder.glob("*.json"):
            path.unlink()


class SpoiledError(Exception):
    """A run does not count, because of a failure, a restart or a timeout."""


def unspoiled(title: str, attempt: Callable[[], _Run]) -> _Run:
    """Return the result of the first run that counts. Raises RuntimeError after a few tries."""
    return first_unspoiled(title, attempt)[0]


def first_unspoiled(title: str, attempt: Callable[[], _Run]) -> tuple[_Run, int]:
    """Return the result of the first run that counts, and the number of runs before it."""
    for spoiled in range(_TRIES):
        try:
            return attempt(), spoiled
        except SpoiledError as error:
            say(f"    once more: {error}")
    raise RuntimeError(f"{title}: {_TRIES} runs were spoiled")


class Interleaved:
    """The arms of a benchmark by name, each with its store, run in turn `repeats` times.

    Each repeat has a new random order, so that no arm always follows the same arm. The arms in
    `once` run in the first repeat only.
    """

    def __init__(
        self, stores: Mapping[str, Store], *, repeats: int, once: Collection[str] = ()
    ) -> None:
        self.repeats = repeats
        self._stores = dict(stores)
        self._once = once

    def missing(self) -> list[tuple[int, str]]:
        """Return the repeat and the arm of each missing run, in the order of their execution."""
        order, turns = random.Random(1), list[tuple[int, str]]()
        for repeat in range(self.repeats):
            names = [name for name in self._stores if not repeat or name not in self._once]
            turns += [(repeat, name) for name in order.sample(names, len(names))]
        return [turn for turn in turns if self._find(*turn) is None]

    def measure(self, run: Callable[[int, str], Object]) -> None:
        """Make the missing runs with `run(repeat, arm)`, and store each at its end."""
        while turns := self.missing():
            repeat, name = turns[0]
            self.keep(repeat, name, run(repeat, name))

    def keep(self, repeat: int, name: str, measured: Object) -> None:
        self._stores[name].put(_repeat_name(repeat), measured)

    def runs(self) -> dict[str, list[Object]]:
        """Return the stored runs of each arm that has runs, in order of repeats."""
        stored = {
            name: [run for repeat in range(self.repeats) if (run := self._find(repeat, name))]
            for name in self._stores
        }
        return {name: stored_runs for name, stored_runs in stored.items() if stored_runs}

    def forget(self) -> None:
        for store in self._stores.values():
            store.forget()

    def _find(self, repeat: int, name: str) -> Object | None:
        return self._stores[name].find(_repeat_name(repeat))


def _repeat_name(repeat: int) -> str:
    return f"repeat-{repeat}"
