"""A mirror of two nodes."""

import pytest

from kfext.state.cluster import Cluster
from tests.builders import node


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    for name in "ab":
        made.observe_node(None, node(name, cpu="4"))
    return made
