"""kfext with GPU sharing on one of the two real nodes, for all cases of this folder."""

from collections.abc import Iterator

import pytest

from e2e.harness.gpu import (
    TRAINING_SCRIPT,
    install_sharing,
    sharer_files,
    simulate_cards,
    stop_cards,
    uninstall_sharing,
    wait_unreserved,
)
from e2e.harness.gpu_jobs import Team
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from e2e.testbed.realnodes import Node, nodes


@pytest.fixture(scope="package")
def gpu_node(bed: Testbed) -> Iterator[Node]:
    """A node with two simulated cards that kfext shares."""
    first, _ = nodes(bed)
    simulate_cards(first, 2)
    install_sharing(bed, first)
    yield first
    uninstall_sharing(bed, first)
    stop_cards(bed, first)


@pytest.fixture
def nothing_left(bed: Testbed, gpu_node: Node) -> Iterator[None]:
    """Check after the end of a case's namespace that no card is reserved and no process trains."""
    yield
    wait_unreserved(bed)
    until(lambda: not sharer_files(gpu_node), what="the agent has no files about sharers")
    until(lambda: not gpu_node.processes(running=TRAINING_SCRIPT), what="no process trains")


@pytest.fixture
def team(bed: Testbed, managed: str) -> Team:
    return Team(bed, managed)
