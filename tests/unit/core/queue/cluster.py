"""Nodes with GPUs that jobs, and pods of no job, use."""

from collections.abc import Mapping

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.ledger import Ledger
from tests.builders import node

GPU = "nvidia.com/gpu"
Use = Mapping[str, Mapping[str, int]]
"""The used GPUs by node, then by the uid of the job; the uid is "" for a pod of no job."""


def cluster(use: Use, *, gpus: int = 8) -> Ledger:
    ledger = Ledger([node(name, gpus=gpus) for name in use])
    for name, by_job in use.items():
        for uid, count in by_job.items():
            claim = Claim(node=name, requests={GPU: count}, job=uid)
            ledger.claim(("pod", name, uid), claim)
    return ledger
