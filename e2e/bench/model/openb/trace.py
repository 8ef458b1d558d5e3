"""The files of the trace `openb`: nodes, pods, and the published results.

Source: cluster-trace-gpu-v2023 (alibaba/clusterdata), with the results of Weng et al., "Beware of
Fragmentation", USENIX ATC 2023 (FGD), from hkust-adsl/kubernetes-scheduler-simulator.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.bench.model.csv_rows import Row, rows
from kfext.errors import UserError

WHOLE = 1000
"""A whole GPU, in thousandths."""
_PREFIX = "openb_pod_list_"
"""The prefix of a workload's name in the published files."""
_NODES = "openb_node_list_gpu_node.csv"


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the trace.

    `cpu`: millicores. `memory`: MiB. `gpus`: the number of GPUs. `model`: their type.
    """

    name: str
    cpu: int
    memory: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class Pod:
    """The requests of a pod of the trace.

    `cpu`: millicores. `memory`: MiB. `gpus`: the number of GPUs, 0 to 8. `milli`: the thousandths
    of each, below WHOLE only for a single GPU. `types`: the allowed GPU types as written, separated
    by `|`; empty means any type.
    """

    cpu: int
    memory: int
    gpus: int
    milli: int
    types: str = ""

    @property
    def shares(self) -> bool:
        return self.gpus == 1 and self.milli < WHOLE

    @property
    def requested(self) -> int:
        return self.gpus * self.milli


Key = tuple[str, str, int]
"""A workload, a scheduler, and the load: the requests of all pods so far in percent of all GPUs."""


def read_nodes(folder: Path) -> list[Node]:
    """Return the nodes with GPUs, in the order of the file. Raises UserError."""
    numbered = _rows(folder / _NODES, ("sn", "cpu_milli", "memory_mib", "gpu", "model"))
    return [
        Node(
            name=row["sn"],
            cpu=_number(row, "cpu_milli", where),
            memory=_number(row, "memory_mib", where),
            gpus=_number(row, "gpu", where),
            model=row["model"],
        )
        for where, row in numbered
    ]


def read_pods(folder: Path, workload: str) -> list[Pod]:
    """Return the pods of a workload, in the order of the file. Raises UserError."""
    columns = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
    return [_pod(row, where) for where, row in _rows(folder / f"{_PREFIX}{workload}.csv", columns)]


def _pod(row: Row, where: str) -> Pod:
    pod = Pod(
        cpu=_number(row, "cpu_milli", where),
        memory=_number(row, "memory_mib", where),
        gpus=_number(row, "num_gpu", where),
        milli=_number(row, "gpu_milli", where),
        types=row.get("gpu_spec") or "",
    )
    whole = pod.milli == (WHOLE if pod.gpus else 0)
    if not (whole or (pod.shares and pod.milli)):
        raise UserError(
            f"{where}: num_gpu {pod.gpus} with gpu_milli {pod.milli} is not allowed; allowed: "
            f"1 to {WHOLE} for one GPU, {WHOLE} for several, 0 for none"
        )
    return pod


def read_published(
    folder: Path, results: str, keys: Collection[Key]
) -> Mapping[Key, Sequence[float]]:
    """Return the published results of all seeds, in percent. Raises UserError.

    `results`: the name of the file without its ending. `keys`: the results to read.
    """
    by_key: dict[Key, list[float]] = {key: [] for key in keys}
    loads = sorted({load for _, _, load in keys})
    path = folder / "expected" / f"{results}.csv"
    for where, row in _rows(path, ("workload", "sc_policy", *map(str, loads))):
        workload = row["workload"].removeprefix(_PREFIX)
        policy = row["sc_policy"].partition("-")[2]
        for load in loads:
            if (values := by_key.get((workload, policy, load))) is not None:
                values.append(_decimal(row, str(load), where))
    for (workload, policy, _), values in by_key.items():
        if not values:
            raise UserError(f"{path} has no line for workload {workload} and policy {policy}")
    return by_key


def _rows(path: Path, columns: Collection[str]) -> Iterator[tuple[str, Row]]:
    """Yield the file and line of each row of a CSV, and its cells by column."""
    for line, row in rows(path, columns):
        yield f"{path}, line {line}", {name: text or "" for name, text in row.items()}


def _number(row: Row, column: str, where: str) -> int:
    if not row[column].isdecimal():
        raise UserError(f"{where}: {column} {row[column]!r} is not a whole number from 0 on")
    return int(row[column])


def _decimal(row: Row, column: str, where: str) -> float:
    try:
        return float(row[column])
    except ValueError:
        raise UserError(f"{where}: {column} {row[column]!r} is not a number") from None
