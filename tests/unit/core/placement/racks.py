"""Clusters with nodes in zones and racks."""

from collections.abc import Mapping

from kfext.core.ledger.ledger import Ledger
from tests.builders import ledger, node

KEYS = ("zone", "rack")

Where = tuple[str, str, int]
"""Zone, rack and GPUs of a node; no label if empty."""


def cluster(nodes: Mapping[str, Where]) -> Ledger:
    return ledger(
        *(
            node(name, gpus=count, labels={k: v for k, v in zip(KEYS, path, strict=True) if v})
            for name, (*path, count) in nodes.items()
        )
    )
