"""A world that a user describes by a CSV of jobs and a list of nodes.

Reading it returns the world, or raises a UserError with the line, the field, the value, the allowed
values and an example.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from kfext.errors import UserError
from kfext.sim.cluster import World
from kfext.sim.jobs import PYTORCH, TENSORFLOW, JobSpec, Pace, Saving, Style
from kfext.sim.nodes import MIB, NodeSize, read_nodes
from kfext.sim.worlds import JobClass, of_class

_PACE = Pace(1.0, 0.04, 0.005)
"""The step time of all jobs, relative to one worker; it is typical of the built-in worlds."""
_KINDS = (PYTORCH, TENSORFLOW)
MAX_JOBS = 20_000
_GPU_TYPE = re.compile(r"|[A-Za-z0-9]([-A-Za-z0-9]{0,40}[A-Za-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?")
_YEAR = 366 * 86_400
_DIGITS, _LONGEST_SHOWN = 9, 40
MIN_CPU = 50
"""Millicores that the operator's init container of a worker requests: no pod requests less."""
_NUMBERS = {
    "arrives": (0, _YEAR, "seconds since the start, e.g. 90"),
    "workers": (1, 256, "training pods, Master or Chief included, e.g. 4"),
    "servers": (0, 64, f"parameter servers of a {TENSORFLOW}, e.g. 1"),
    "min": (1, 256, "the fewest training pods of an elastic job, e.g. 2"),
    "max": (1, 256, "the most training pods of an elastic job, e.g. 8"),
    "cpu": (MIN_CPU, 1_000_000, "millicores that each pod requests, e.g. 1000"),
    "memory": (1, 4_000_000, "MiB that each pod requests, e.g. 8192"),
    "gpus": (0, 16, "GPUs that each pod requests, e.g. 1"),
    "seconds": (1, _YEAR, "seconds of training with `workers`, e.g. 600"),
}
"""Column -> its smallest and largest number, and what it means, with an example."""
_DEFAULTS = {"arrives": 0, "servers": 0, "cpu": 1000}
COLUMNS = ("name", "kind", *_NUMBERS, "gpu_type", "program")
_REQUIRED = ("name", "workers", "seconds")


def read_world(text: str, *, name: str, nodes: str) -> World:
    """Return the jobs of a CSV on nodes such as `4x4000m,2x8000m/64Gi/4xT4`. Raises UserError."""
    sizes = read_nodes(nodes)
    rows = csv.DictReader(io.StringIO(text, newline=""), skipinitialspace=True, restkey="")
    try:
        rows.fieldnames = [column.strip() for column in rows.fieldnames or ()]
        return World(sizes, _jobs(rows, name, sizes))
    except csv.Error as error:
        raise UserError(f"{name}, line {rows.line_num + 1} is not CSV: {error}") from error


def _jobs(
    rows: "csv.DictReader[str]", name: str, sizes: Mapping[str, NodeSize]
) -> tuple[JobSpec, ...]:
    head = list(rows.fieldnames or ())
    unknown = [column for column in head if column not in COLUMNS]
    missing = [column for column in _REQUIRED if column not in head]
    repeated = [column for column in head if head.count(column) > 1]
    problems = [
        *(f"lacks the column {column!r}" for column in missing),
        *(f"has an unknown column {column!r}" for column in unknown),
        *(f"has two columns {column!r}" for column in repeated),
    ]
    if problems:
        raise UserError(f"{name} {problems[0]}; the columns are {', '.join(COLUMNS)}")
    jobs, nodes_by_size = dict[str, JobSpec](), Counter(sizes.values())
    for row in rows:
        where = f"{name}, line {rows.line_num}"
        if len(jobs) == MAX_JOBS:
            raise UserError(f"{where}: there may be {MAX_JOBS:,} jobs at most")
        if "" in row:
            raise UserError(f"{where} has more cells than columns: {', '.join(COLUMNS)}")
        job = _job(row, where)
        if job.name in jobs:
            raise UserError(f"{where}: an earlier job has the name {job.name!r}")
        most = sum(number * _fitting(size, job) for size, number in nodes_by_size.items())
        if job.pods > most:
            each = NodeSize(job.cpu, job.memory, job.gpus, job.gpu_type)
            raise UserError(
                f"{where}: {job.name} has {job.pods} pods of {each}, and the nodes hold {most}: "
                f"add nodes, e.g. --nodes {job.pods}x{each}"
            )
        jobs[job.name] = job
    if not jobs:
        raise UserError(f"{name} has no jobs, e.g. a line for the columns name,workers,seconds")
    return tuple(sorted(jobs.values(), key=lambda job: job.arrives))


def _fitting(size: NodeSize, job: JobSpec) -> int:
    """Return the number of a job's pods that fit on an empty node."""
    if job.gpu_type not in {"", size.gpu_type}:
        return 0
    amounts = ((size.cpu, job.cpu), (size.memory, job.memory), (size.gpus, job.gpus))
    return min(has // amount for has, amount in amounts if amount)


def _job(row: Mapping[str, str | None], where: str) -> JobSpec:
    name, kind = row["name"] or "", row.get("kind") or _KINDS[0]
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{where}: name {name!r} is not a DNS label of up to 52 characters, e.g. a-1"
        )
    if kind not in _KINDS:
        raise UserError(f"{where}: kind {kind!r} is none of {', '.join(_KINDS)}")
    gpu_type = (row.get("gpu_type") or "").strip()
    if not _GPU_TYPE.fullmatch(gpu_type):
        raise UserError(
            f"{where}: gpu_type {gpu_type[:_LONGEST_SHOWN]!r} is not the value of a label, e.g. T4"
        )
    program = (row.get("program") or "").strip() or name
    if not _NAME.fullmatch(program):
        raise UserError(f"{where}: program {program[:_LONGEST_SHOWN]!r} is not a name, e.g. resnet")
    numbers = {column: _number(row, column, where) for column in _NUMBERS}
    workers, servers, low, high = (numbers[key] for key in ("workers", "servers", "min", "max"))
    if workers is None or numbers["seconds"] is None:
        raise UserError(f"{where}: {name} needs workers and seconds, e.g. 4 and 600")
    if servers and kind != TENSORFLOW:
        raise UserError(f"{where}: servers {servers} is for a {TENSORFLOW}, not for a {kind}")
    if (low is None) != (high is None) or (low and high and not low <= workers <= high):
        raise UserError(
            f"{where}: min {low} and max {high} must both be set, with min <= workers "
            f"({workers}) <= max, e.g. 2 and 8; set neither for a job of fixed size"
        )
    elastic = low is not None and high is not None
    style = Style.SERVERS if servers else Style.TORCHRUN if kind == PYTORCH else Style.GANG
    class_ = JobClass(numbers["seconds"], workers, style if elastic else Style.GANG, _PACE)
    spec = of_class(name, class_, trains=program)
    leaders = int(style is not Style.SERVERS and not elastic)
    return replace(
        spec,
        kind=kind,
        arrives=float(numbers["arrives"] or 0),
        workers=workers - leaders,
        leaders=leaders,
        servers=servers or 0,
        saving=Saving.ON_REQUEST if elastic and style is Style.GANG else spec.saving,
        bounds=(low, high) if low is not None and high is not None else None,
        cpu=numbers["cpu"] or 1000,
        uses=numbers["cpu"] or 1000,
        memory=(numbers["memory"] or 0) * MIB,
        gpus=numbers["gpus"] or 0,
        gpu_type=gpu_type,
    )


def _number(row: Mapping[str, str | None], column: str, where: str) -> int | None:
    """Return the number in a column; if it is empty, its default or None."""
    text = (row.get(column) or "").strip()
    if not text:
        return _DEFAULTS.get(column)
    low, high, hint = _NUMBERS[column]
    digits = text if text.isascii() and text.isdecimal() else ""
    if not digits or len(digits) > _DIGITS or not low <= int(digits) <= high:
        shown = text[:_LONGEST_SHOWN]
        raise UserError(f"{where}: {column} {shown!r} is not a number from {low} to {high}: {hint}")
    return int(digits)
