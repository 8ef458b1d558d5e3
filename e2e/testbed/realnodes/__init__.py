"""Real nodes: several kubelets on one machine, each with a containerd that runs real containers.

Each node gets an equal share of the CPU and memory that the machine can spare.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from e2e.testbed import gpus, preflight, progress
from e2e.testbed.images import recipes
from e2e.testbed.images.layers import Image
from e2e.testbed.realnodes import containerd, network
from e2e.testbed.realnodes.node import Node, machine_memory

if TYPE_CHECKING:
    from e2e.testbed.cluster import Testbed

__all__ = [
    "BINARIES",
    "Node",
    "cpu_budget",
    "memory_budget",
    "nodes",
    "planned",
    "prepare",
    "renew_images",
    "start_nodes",
]

BINARIES = ("kubelet", "coredns", "kubectl")
_GIB = 2**30
# Kept for the control plane, kubelets, containerds and observers: with less, the API server answers
# so late that its delay dominates measurements.
_RESERVED_CORES = 0.6
_RESERVED_FRACTION = 0.1
_MIN_MILLICORES = 100
_ROUNDED_TO = 50
_RESERVED_MEMORY = 4 * _GIB
_MAX_MEMORY = 3 * _GIB
_MAX_MEMORY_WITH_GPUS = 32 * _GIB
"""A process that uses CUDA also needs some GiB of the machine's memory."""
_MIN_MEMORY = _GIB // 2


def cpu_budget(cores: int, nodes: int) -> int:
    """Return the millicores for each of `nodes` real nodes on a machine with `cores` cores."""
    reserved = max(_RESERVED_CORES, _RESERVED_FRACTION * cores)
    each = (cores - reserved) * 1000 / nodes
    budget = int(each) // _ROUNDED_TO * _ROUNDED_TO
    if budget < _MIN_MILLICORES:
        raise ValueError(f"{nodes} real nodes are too many for {cores} cores: {each:.0f}m for each")
    return budget


def memory_budget(machine: int, nodes: int) -> int:
    """Return the bytes for each of `nodes` real nodes on a machine with `machine` bytes."""
    most = _MAX_MEMORY_WITH_GPUS if gpus.used() else _MAX_MEMORY
    budget = min(most, (machine - _RESERVED_MEMORY) // nodes)
    if budget < _MIN_MEMORY:
        raise ValueError(f"{nodes} real nodes are too many for {machine / _GIB:.1f} GiB of memory")
    return budget


def planned() -> list[progress.Planned]:
    """Return the steps that `prepare` will take. Raises Unavailable as `prepare` does."""
    packages, layers = containerd.planned_packages(), recipes.missing_recipes()
    # The name of a template depends on its images, so they must be made.
    images = None if packages or layers else recipes.all_images()
    steps = [recipe.step for recipe in layers if recipe.step]
    return [*packages, *steps, *containerd.planned_template(images)]


def prepare() -> None:
    """Install and build the missing parts. Raises Unavailable."""
    preflight.require_linux()
    preflight.require_root()
    containerd.install_packages()
    containerd.template(recipes.all_images())


def start_nodes(testbed: Testbed, count: int) -> list[Node]:
    """Start `count` real nodes with DNS, and return them once all are ready."""
    new = _nodes(testbed, count)
    template = containerd.template(recipes.all_images())
    testbed.record.add("mounts", str(testbed.folder))
    with progress.step(f"starting {count} real nodes", expect="5 seconds"):
        network.make_network(testbed, count)
        network.start_dns(testbed, count)
        for node in new:
            node.make(template)
            node.start()
        for node in new:
            node.wait()
    return new


def renew_images(testbed: Testbed, images: Sequence[Image] = ()) -> None:
    """Import images into the running nodes; by default the testbed's, from the present code."""
    images = images or recipes.all_images()
    with progress.step("renewing the images of the real nodes", expect="5 seconds"):
        for node in nodes(testbed):
            containerd.renew(node.sandbox, images)


def nodes(testbed: Testbed) -> list[Node]:
    """Return the real nodes of a running testbed, whichever process started it."""
    return _nodes(testbed, testbed.real_nodes)


def _nodes(testbed: Testbed, count: int) -> list[Node]:
    if count == 0:
        return []
    try:
        millicores = cpu_budget(os.cpu_count() or 1, count)
        memory = memory_budget(machine_memory(), count)
    except ValueError as error:
        raise preflight.Unavailable(str(error)) from error
    return [Node.of(testbed, index, millicores=millicores, memory=memory) for index in range(count)]
