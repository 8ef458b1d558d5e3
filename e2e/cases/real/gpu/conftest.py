"""kfext shares the cards of one of the nodes, for all cases here."""

from collections.abc import Iterator

import pytest

from e2e.harness.gpu import install_sharing, play_cards, uninstall_sharing
from e2e.harness.gpu_jobs import Team
from e2e.testbed.cluster import Testbed
from e2e.testbed.realnodes import Node, nodes


@pytest.fixture(scope="package")
def gpu_node(bed: Testbed) -> Iterator[Node]:
    """A node with two cards, on which kfext shares them."""
    first, _ = nodes(bed)
    play_cards(first, 2)
    install_sharing(bed, first)
    yield first
    uninstall_sharing(bed, first)
    bed.stop_process(first.sandbox.process("cards"))


@pytest.fixture
def team(bed: Testbed, managed: str) -> Team:
    return Team(bed, managed)
