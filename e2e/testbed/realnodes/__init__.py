"""Real nodes: kubelets with containerds that run real containers, several on one machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from e2e.testbed import preflight, progress
from e2e.testbed.images.recipes import all_images
from e2e.testbed.realnodes import containerd, dns, network, packages
from e2e.testbed.realnodes.budget import cpu_budget, memory_budget
from e2e.testbed.realnodes.kubelet import machine_memory
from e2e.testbed.realnodes.node import Node

if TYPE_CHECKING:
    from e2e.testbed.cluster import Testbed
    from e2e.testbed.images.archive import Image

__all__ = ["BINARIES", "Node", "give_image", "nodes", "prepare", "renew_images", "start_nodes"]

BINARIES = ("kubelet", "coredns", "kubectl")


def prepare() -> None:
    """Install and build what is missing; raise Unavailable if this machine cannot have it."""
    preflight.require_linux()
    preflight.require_root()
    packages.install()
    containerd.template(all_images())


def start_nodes(testbed: Testbed, count: int) -> list[Node]:
    """Start `count` real nodes with DNS, and return them once all are ready."""
    made = _nodes(testbed, count)
    template = containerd.template(all_images())
    testbed.record.add("mounts", str(testbed.folder))
    with progress.step(f"starting {count} real nodes", expect="5 seconds"):
        network.make_network(testbed, count)
        dns.start(testbed, count)
        for node in made:
            node.make(template)
            node.start()
        for node in made:
            node.wait()
    return made


def renew_images(testbed: Testbed) -> None:
    """Give running nodes the images as they are made now: what was edited since `up` counts."""
    images = all_images()
    with progress.step("renewing the images of the real nodes", expect="5 seconds"):
        for node in nodes(testbed):
            containerd.renew(node.sandbox, images)


def give_image(testbed: Testbed, image: Image) -> None:
    """Give running nodes one more image."""
    for node in nodes(testbed):
        containerd.renew(node.sandbox, [image])


def nodes(testbed: Testbed) -> list[Node]:
    """Return the real nodes of a testbed that is up, whoever brought it up."""
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
