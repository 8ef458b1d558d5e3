"""The files of Pollux's simulator: measured step times, training curves, workloads and results.

Each reader raises a UserError that names the file, the line, the field and the allowed values.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from e2e.bench.model.csv_rows import Row, rows
from e2e.bench.model.pollux.application import Application
from e2e.bench.model.pollux.cluster import Request
from e2e.bench.model.pollux.step_time import Placement, Sample, StepTimes
from kfext.errors import UserError

FOLDER = "pollux"
"""The subfolder in the folder of all published data."""
WORKLOADS = tuple(f"workload-{number}" for number in range(1, 9))
_FOLDERS = {0.5: "workloads-0.5", 1.0: "workloads", 1.5: "workloads-1.5"}
LOADS = tuple(_FOLDERS)
"""Multiples of the published evaluation's load, 160 jobs in eight hours."""
_TIMES = ("local_bsz", "step_time", "sync_time")
_CURVE = ("progress", "iteration", "grad_sqr", "grad_var")
_MAX_LOCAL = {"yolov3": 8}
"""The largest batch of a GPU, where the simulator allows less than was measured."""


class _Row:
    """A line of a CSV file."""

    def __init__(self, cells: Row, where: str) -> None:
        self._cells, self._where = cells, where

    def text(self, column: str) -> str:
        if not (cell := self._cells[column]):
            raise UserError(f"{self._where} has no {column}")
        return cell

    def number(self, column: str) -> float:
        """Return a number that is finite and not negative."""
        text = self.text(column)
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not 0 <= number < math.inf:
            raise UserError(f"{self._where}: {column} {text!r} is not a number from 0, e.g. 64")
        return number

    def refuse(self, column: str, allowed: str) -> UserError:
        return UserError(f"{self._where}: {column} {self.text(column)!r} is not {allowed}")


def read_applications(data: Path) -> dict[str, Application]:
    folder = data / FOLDER / "traces"
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if not names:
        raise UserError(f"{folder} has no folder of a model, e.g. cifar10")
    return {name: _application(folder / name) for name in names}


def read_workload(
    data: Path, applications: Mapping[str, Application], *, load: float, workload: str
) -> tuple[Request, ...]:
    """Return the jobs of a workload in the order of their submission."""
    path = data / FOLDER / _FOLDERS[load] / f"{workload}.csv"
    requests = []
    for row in _rows(path, ("name", "time", "application", "num_replicas", "batch_size")):
        if (model := row.text("application")) not in applications:
            raise row.refuse("application", f"one of {', '.join(applications)}")
        gpus, batch = int(row.number("num_replicas")), int(row.number("batch_size"))
        submitted = int(row.number("time"))
        requests.append(Request(row.text("name"), submitted, applications[model], gpus, batch))
    return tuple(requests)


def read_published(data: Path, scheduler: str, *, load: float, workload: str) -> dict[str, float]:
    """Return the published seconds from submission to end of each job of a workload."""
    path = data / FOLDER / "expected" / f"jobload_{scheduler}_{load:.1f}.json"
    try:
        times = json.loads(_text(path))["jcts"][workload]
        return {str(name): float(seconds) for name, seconds in times.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} has no times under jcts, {workload}: {error!r}") from error


def _application(folder: Path) -> Application:
    samples_by_placement: dict[Placement, list[Sample]] = defaultdict(list)
    for row in _rows(folder / "placements.csv", ("placement", *_TIMES)):
        if not (digits := row.text("placement")).isdecimal() or "0" in digits:
            raise row.refuse("placement", "the GPUs on each node, e.g. 22")
        placement = tuple(map(int, digits))
        samples_by_placement[placement].append(_sample(row, len(placement), sum(placement)))
    samples_on_more_nodes = [
        _sample(row, int(row.number("num_nodes")), int(row.number("num_replicas")))
        for row in _rows(folder / "scalability.csv", ("num_nodes", "num_replicas", *_TIMES))
    ]
    local = [sample.local for samples in samples_by_placement.values() for sample in samples]
    curves = _curves(folder)
    epochs = min(map(len, curves.values()))
    tables = np.array([rows[:epochs] for rows in curves.values()])  # (B, E, 4)
    progress, iterations, sqr, var = np.moveaxis(tables, 2, 0)
    return Application(
        folder.name,
        StepTimes(samples_by_placement, samples_on_more_nodes),
        batches=np.array([*curves], np.float64),
        iterations=iterations,
        sqr=sqr,
        var=var,
        ends=progress.min(axis=0),
        least_local=min(local),
        most_local=_MAX_LOCAL.get(folder.name, max(local)),
    )


def _curves(folder: Path) -> dict[int, list[list[float]]]:
    """Return the values of `_CURVE` for each epoch, by batch, ascending."""
    paths: dict[int, Path] = {}
    for path in folder.glob("validation-*.csv"):
        batch = path.stem.partition("-")[2]
        if not batch.isdecimal():
            raise UserError(f"{path} is not named after a batch, e.g. validation-128.csv")
        paths[int(batch)] = path
    if not paths:
        raise UserError(f"{folder} has no training curve, e.g. validation-128.csv")
    return {
        batch: [[row.number(column) for column in _CURVE] for row in _rows(path, _CURVE)]
        for batch, path in sorted(paths.items())
    }


def _sample(row: _Row, nodes: int, gpus: int) -> Sample:
    local, step, sync = (row.number(column) for column in _TIMES)
    return Sample(nodes, gpus, int(local), step, sync)


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[_Row]:
    for place, cells in rows(path, columns):
        yield _Row(cells, f"{path}, line {place}")


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
