"""Clusters with GPUs that jobs hold, and pods of no job."""

from collections.abc import Mapping

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.ledger import Ledger
from tests.builders import node

GPU = "nvidia.com/gpu"
Use = Mapping[str, Mapping[str, int]]
"""Node -> uid of a job, or "" for a pod of no job -> GPUs."""


def cluster(use: Use, *, gpus: int = 8) -> Ledger:
    ledger = Ledger([node(name, gpus=gpus) for name in use])
    for name, held in use.items():
        for uid, count in held.items():
            claim = Claim(node=name, requests={GPU: count}, job=uid)
            ledger.claim(("pod", name, uid), claim)
    return ledger
