"""Four real nodes that share what the machine has left, with kfext beside them."""

from collections.abc import Iterator
from contextlib import contextmanager

from e2e.bench.bed import Bench
from e2e.bench.companion.site import Site
from e2e.testbed import lifecycle
from e2e.testbed.progress import step
from e2e.testbed.realnodes import nodes

COUNT = 4


@contextmanager
def four_nodes(name: str) -> Iterator[Site]:
    """Run a testbed of four real nodes for the time of a `with` block; 350m each on two cores.

    The `Pods` of its namespaces are on any of them; the first one is what they call their node.
    """
    with lifecycle.running(name, real_nodes=COUNT) as bed:
        with step("kfext"):
            installed = Bench(bed)
            installed.install()
        yield Site(bed, nodes(bed)[0], installed)
