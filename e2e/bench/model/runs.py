"""Runs of arms in model worlds, each stored once it has ended."""

from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path

import kfext
from e2e.bench.store import Store
from kfext.sim.arms import Arm
from kfext.sim.cluster import Ended
from kfext.sim.compare import Run, run
from kfext.sim.worlds import Draw

_PARTS = ("core", "model", "sim", "state")
"""The packages of kfext that a run depends on."""


class Runs:
    """The runs of a world, by arm, seed and luck.

    `modules`: the files of this folder that they depend on beside kfext, without `.py`.
    """

    def __init__(
        self, title: str, draw: Draw, arms: Mapping[str, Arm], modules: Collection[str]
    ) -> None:
        self._draw, self._arms = draw, arms
        package, here = Path(kfext.__file__).parent, Path(__file__).parent
        sources = [*(here / f"{module}.py" for module in modules), *(package / p for p in _PARTS)]
        self._store = Store(title, sources=sources)

    def find(self, arm: str, seed: int, luck: int) -> Run:
        """Return a run, from the store if possible."""
        name = f"{arm}-{seed}-{luck}"
        stored = self._store.find(name)
        if stored is None:
            stored = asdict(run(self._arms[arm], self._draw(seed), luck=luck))
            self._store.put(name, stored)
        jobs = {name: Ended(**job) for name, job in stored.pop("jobs").items()}
        return Run(jobs=jobs, **stored)
