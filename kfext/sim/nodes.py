"""The nodes of a simulated cluster, with their CPU, memory and GPUs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kfext.errors import UserError
from kfext.model.node import Node, parse_node
from kfext.model.quantity import CPU, MEMORY
from kfext.names import NATIVE_GPU

GPU_TYPE = "nvidia.com/gpu.product"
"""The label that names the type of the GPUs of a node."""
MIB = 2**20
_GIB = 2**30
_AMPLE = 256 * _GIB
MAX_NODES = 2000
_SIZE = re.compile(
    r"(?P<number>[1-9][0-9]{0,3})x(?P<cpu>[1-9][0-9]{0,6})m"
    r"(/(?P<memory>[1-9][0-9]{0,5})Gi)?"
    r"(/(?P<gpus>[1-9][0-9]?)x(?P<type>[A-Za-z0-9]([-A-Za-z0-9]{0,40}[A-Za-z0-9])?))?"
)


@dataclass(frozen=True, slots=True)
class NodeSize:
    """A node's capacity, or a pod's requests: millicores, bytes of memory, and GPUs of a type."""

    cpu: int
    memory: int = _AMPLE
    gpus: int = 0
    gpu_type: str = ""

    def __str__(self) -> str:
        """Return the size as `read_nodes` reads it, without the number of nodes."""
        memory = f"/{max(1, self.memory // _GIB)}Gi" if self.memory not in {0, _AMPLE} else ""
        gpus = f"/{self.gpus}x{self.gpu_type or 'gpu'}" if self.gpus else ""
        return f"{self.cpu}m{memory}{gpus}"


def encode_nodes(sizes: Mapping[NodeSize, int]) -> str:
    """Return the list that `read_nodes` reads; `sizes`: size -> the number of nodes."""
    return ",".join(f"{number}x{size}" for size, number in sizes.items())


def read_nodes(text: str) -> dict[str, NodeSize]:
    """Return the nodes of a list such as `4x4000m,2x64000m/512Gi/8xV100`. Raises UserError."""
    matches = [_SIZE.fullmatch(part.strip()) for part in text.split(",")]
    sizes = [_size(match) for match in matches if match for _ in range(int(match["number"]))]
    if not all(matches) or len(sizes) > MAX_NODES:
        raise UserError(
            f"--nodes {text!r} is not a list of NUMBERxMILLICORESm[/MEMORYGi][/NUMBERxGPUTYPE] "
            f"with at most {MAX_NODES:,} nodes, e.g. 4x4000m or 4x4000m,2x64000m/512Gi/8xV100"
        )
    return {f"node-{number}": size for number, size in enumerate(sizes)}


def _size(match: re.Match[str]) -> NodeSize:
    memory = int(match["memory"]) * _GIB if match["memory"] else _AMPLE
    return NodeSize(int(match["cpu"]), memory, int(match["gpus"] or 0), match["type"] or "")


def node(name: str, size: NodeSize) -> Node:
    """Return a node as kfext reads it, with ample disk and for any number of pods."""
    ample = {"ephemeral-storage": "1Ti", "pods": "100000"}
    gpus = {NATIVE_GPU: str(size.gpus)} if size.gpus else {}
    allocatable = {CPU: f"{size.cpu}m", MEMORY: str(size.memory), **gpus, **ample}
    labels = {"name": name, "kubernetes.io/hostname": name}
    if size.gpu_type:
        labels[GPU_TYPE] = size.gpu_type
    metadata = {"name": name, "uid": f"uid-{name}", "labels": labels}
    return parse_node({"metadata": metadata, "status": {"allocatable": allocatable}})
