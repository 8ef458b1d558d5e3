"""Clusters with nodes in zones and racks."""

from collections.abc import Mapping

from kfext.core.ledger.ledger import Ledger
from tests.builders import ledger, node

KEYS = ("zone", "rack")

Where = tuple[str, str, int]
"""The zone, the rack and the number of GPUs of a node; "" means that it lacks the label."""


def cluster(nodes: Mapping[str, Where]) -> Ledger:
    return ledger(
        *(
            node(name, gpus=count, labels={k: v for k, v in zip(KEYS, path, strict=True) if v})
            for name, (*path, count) in nodes.items()
        )
    )
