"""kfext shares the cards of one of the nodes, for all cases here."""

from collections.abc import Iterator

import pytest

from e2e.harness.gpu import (
    TRAINING,
    install_sharing,
    left_over,
    simulate_cards,
    stop_cards,
    uninstall_sharing,
    unreserved,
)
from e2e.harness.gpu_jobs import Team
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from e2e.testbed.realnodes import Node, nodes


@pytest.fixture(scope="package")
def gpu_node(bed: Testbed) -> Iterator[Node]:
    """A node with two cards that kfext shares."""
    first, _ = nodes(bed)
    simulate_cards(first, 2)
    install_sharing(bed, first)
    yield first
    uninstall_sharing(bed, first)
    stop_cards(bed, first)


@pytest.fixture
def nothing_left(bed: Testbed, gpu_node: Node) -> Iterator[None]:
    """After each case and the end of its namespace: no reserved card, and no training process."""
    yield
    unreserved(bed)
    until(lambda: not left_over(gpu_node), what="the agent has forgotten all sharers")
    until(lambda: not gpu_node.processes(running=TRAINING), what="no training is left")


@pytest.fixture
def team(bed: Testbed, managed: str) -> Team:
    return Team(bed, managed)
