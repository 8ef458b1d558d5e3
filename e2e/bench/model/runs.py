"""Runs of arms in simulated worlds; each is stored at its end."""

from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path

import kfext
from e2e.bench.store import Store
from kfext.sim.arms import Arm
from kfext.sim.cluster import Ended
from kfext.sim.compare import Run, run
from kfext.sim.worlds import Draw

_PACKAGES = ("core", "model", "sim", "state")
"""The packages of kfext on which a run depends."""


class Runs:
    """The runs of a world by arm, seed and luck (the seed of the simulated cluster's chance).

    `modules`: the modules of this folder on which the runs depend, beside kfext.
    """

    def __init__(
        self, title: str, draw: Draw, arms: Mapping[str, Arm], modules: Collection[str]
    ) -> None:
        self._draw, self._arms = draw, arms
        package, here = Path(kfext.__file__).parent, Path(__file__).parent
        sources = [
            *(here / f"{module}.py" for module in modules),
            *(package / p for p in _PACKAGES),
        ]
        self._store = Store(title, sources=sources)

    def find(self, arm: str, seed: int, luck: int) -> Run:
        """Return a run from the store; if it is missing there, make and store it."""
        name = f"{arm}-{seed}-{luck}"
        stored = self._store.find(name)
        if stored is None:
            stored = asdict(run(self._arms[arm], self._draw(seed), luck=luck))
            self._store.put(name, stored)
        jobs = {name: Ended(**job) for name, job in stored.pop("jobs").items()}
        return Run(jobs=jobs, **stored)
