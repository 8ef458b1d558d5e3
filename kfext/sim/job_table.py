"""A world that a user wrote: a CSV of jobs, and nodes such as 4x4000m.

Reading it returns the world, or raises a UserError with the line, the field, the value, what is
allowed and an example.
"""

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import replace

from kfext.errors import UserError
from kfext.sim.cluster import World
from kfext.sim.jobs import PYTORCH, TENSORFLOW, JobSpec, Pace, Saving, Style
from kfext.sim.worlds import JobClass, of_class

_PACE = Pace(1.0, 0.04, 0.005)
"""The usual gain of workers in the shipped worlds."""
_KINDS = (PYTORCH, TENSORFLOW)
MOST_JOBS, MOST_NODES = 1000, 500
_NODES = re.compile(r"([1-9][0-9]{0,2})x([1-9][0-9]{0,6})m")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?")
_WEEK = 7 * 86_400
_DIGITS, _LONGEST_SHOWN = 9, 40
_INIT = 50
"""Millicores that the operator's init container of a worker requests: no pod requests less."""
_NUMBERS = {
    "arrives": (0, _WEEK, "seconds since the start, e.g. 90"),
    "workers": (1, 256, "training pods, Master or Chief included, e.g. 4"),
    "servers": (0, 64, f"parameter servers of a {TENSORFLOW}, e.g. 1"),
    "min": (1, 256, "the fewest training pods of an elastic job, e.g. 2"),
    "max": (1, 256, "the most training pods of an elastic job, e.g. 8"),
    "cpu": (_INIT, 1_000_000, "millicores that each pod requests, e.g. 1000"),
    "seconds": (1, _WEEK, "seconds of training with `workers`, e.g. 600"),
}
"""Column -> the smallest and largest number, and what it is."""
_DEFAULTS = {"arrives": 0, "servers": 0, "cpu": 1000}
_COLUMNS = ("name", "kind", *_NUMBERS)
_REQUIRED = ("name", "workers", "seconds")


def read_world(text: str, *, name: str, nodes: str) -> World:
    """Return the jobs of a CSV on nodes such as `4x4000m,2x8000m`. Raises UserError."""
    sizes = _nodes(nodes)
    rows = csv.DictReader(io.StringIO(text, newline=""), skipinitialspace=True, restkey="")
    try:
        rows.fieldnames = [column.strip() for column in rows.fieldnames or ()]
        return World(sizes, _jobs(rows, name, sizes))
    except csv.Error as error:
        raise UserError(f"{name}, line {rows.line_num} is not CSV: {error}") from error


def _jobs(rows: "csv.DictReader[str]", name: str, sizes: Mapping[str, int]) -> tuple[JobSpec, ...]:
    head = list(rows.fieldnames or ())
    unknown = [column for column in head if column not in _COLUMNS]
    lacks = [column for column in _REQUIRED if column not in head]
    twice = [column for column in head if head.count(column) > 1]
    wrong = [
        *(f"no column {column}" for column in lacks),
        *(f"an unknown column {column!r}" for column in unknown),
        *(f"two columns {column!r}" for column in twice),
    ]
    if wrong:
        raise UserError(f"{name} has {wrong[0]}; the columns are {', '.join(_COLUMNS)}")
    jobs: dict[str, JobSpec] = {}
    for row in rows:
        where = f"{name}, line {rows.line_num}"
        if len(jobs) == MOST_JOBS:
            raise UserError(f"{where}: there may be {MOST_JOBS:,} jobs at most")
        if "" in row:
            raise UserError(f"{where} has more cells than columns: {', '.join(_COLUMNS)}")
        job = _job(row, where)
        if job.name in jobs:
            raise UserError(f"{where}: a job before has the name {job.name!r}")
        if job.pods > (most := sum(size // job.cpu for size in sizes.values())):
            raise UserError(
                f"{where}: {job.name} has {job.pods} pods of {job.cpu}m, and the nodes "
                f"hold {most}: give more nodes, e.g. --nodes {job.pods}x{job.cpu}m"
            )
        jobs[job.name] = job
    if not jobs:
        raise UserError(f"{name} has no jobs, e.g. a line for the columns name,workers,seconds")
    return tuple(sorted(jobs.values(), key=lambda job: job.arrives))


def _nodes(text: str) -> dict[str, int]:
    found = [_NODES.fullmatch(part.strip()) for part in text.split(",")]
    sizes = [int(match[2]) for match in found if match for _ in range(int(match[1]))]
    if not all(found) or len(sizes) > MOST_NODES:
        raise UserError(
            f"--nodes {text!r} is not a list of NUMBERxMILLICORESm with at most {MOST_NODES} "
            "nodes, e.g. 4x4000m or 4x4000m,2x8000m"
        )
    return {f"node-{number}": size for number, size in enumerate(sizes)}


def _job(row: Mapping[str, str | None], where: str) -> JobSpec:
    name, kind = row["name"] or "", row.get("kind") or _KINDS[0]
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{where}: name {name!r} is not a DNS label of up to 52 characters, e.g. a-1"
        )
    if kind not in _KINDS:
        raise UserError(f"{where}: kind {kind!r} is none of {', '.join(_KINDS)}")
    given = {column: _number(row, column, where) for column in _NUMBERS}
    workers, servers, low, high = (given[it] for it in ("workers", "servers", "min", "max"))
    if workers is None or given["seconds"] is None:
        raise UserError(f"{where}: {name} needs workers and seconds, e.g. 4 and 600")
    if servers and kind != TENSORFLOW:
        raise UserError(f"{where}: servers {servers} is for a {TENSORFLOW}, not for a {kind}")
    if (low is None) != (high is None) or (low and high and not low <= workers <= high):
        raise UserError(
            f"{where}: min {low} and max {high} must both be given, with min <= workers "
            f"({workers}) <= max, e.g. 2 and 8; neither for a job that keeps its size"
        )
    elastic = low is not None and high is not None
    style = Style.SERVERS if servers else Style.TORCHRUN if kind == PYTORCH else Style.GANG
    of = JobClass(given["seconds"], workers, style if elastic else Style.GANG, _PACE)
    made = of_class(name, of, trains=name)
    leaders = int(style is not Style.SERVERS and not elastic)
    return replace(
        made,
        kind=kind,
        arrives=float(given["arrives"] or 0),
        workers=workers - leaders,
        leaders=leaders,
        servers=servers or 0,
        saving=Saving.ON_REQUEST if elastic and style is Style.GANG else made.saving,
        bounds=(low, high) if low is not None and high is not None else None,
        cpu=given["cpu"] or 1000,
        uses=given["cpu"] or 1000,
    )


def _number(row: Mapping[str, str | None], column: str, where: str) -> int | None:
    """Return the number in a column; its default, or None, if it is empty."""
    text = (row.get(column) or "").strip()
    if not text:
        return _DEFAULTS.get(column)
    low, high, what = _NUMBERS[column]
    digits = text if text.isascii() and text.isdecimal() else ""
    if not digits or len(digits) > _DIGITS or not low <= int(digits) <= high:
        shown = text[:_LONGEST_SHOWN]
        raise UserError(f"{where}: {column} {shown!r} is not a number from {low} to {high}: {what}")
    return int(digits)
