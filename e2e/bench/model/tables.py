"""Benchmark: published tables, reproduced from public traces to validate the models.

A part is a paper with its own traces, model and schedulers. Each row has the published value, the
rebuilt value and the tolerance. The traces are not in this repository;
docs/reports/published-tables.md names their sources.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from e2e.bench.model import shapes
from e2e.bench.model.muri import measure as muri
from e2e.bench.model.openb import measure as openb
from e2e.bench.model.pollux import measure as pollux

PARTS: dict[str, Callable[..., str]] = {
    "muri": muri.measure,
    "openb": openb.measure,
    "pollux": pollux.measure,
    "shapes": shapes.measure,
}
"""The measurement of each part, by the folder of its traces; `shapes` needs no trace."""


def measure(data: Path, *, parts: Sequence[str], quick: bool) -> str:
    """Return the tables of the parts. `data`: the folder of the traces. Raises UserError."""
    return "\n\n".join(PARTS[part](data, quick=quick) for part in parts)
