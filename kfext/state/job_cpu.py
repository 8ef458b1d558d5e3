"""The CPU that a job uses: the sum of what its pods use, and the share that is of its nodes."""

from collections.abc import Iterable, Mapping

from kfext.core.ledger.ledger import Ledger
from kfext.core.progress.followed import Followed
from kfext.model.cpu_use import CpuUse
from kfext.model.pod import Pod
from kfext.model.quantity import CPU
from kfext.model.verdict import Verdict


def note_use(
    followed: Followed,
    pods: Iterable[Pod],
    found: Mapping[str, CpuUse | Verdict],
    *,
    ledger: Ledger,
) -> None:
    """Note what the pods of a job use, by uid, or why that is not known."""
    measured = [pod for pod in pods if pod.uid in found]
    used = [found[pod.uid] for pod in measured]
    cores = [use.cores for use in used if isinstance(use, CpuUse)]
    why = next((use for use in used if isinstance(use, Verdict)), None)
    if why is not None or not cores:
        followed.use(None, share=None, why=why)
    else:
        followed.use(sum(cores), share=_share(sum(cores), measured, ledger))


def _share(cores: float, pods: Iterable[Pod], ledger: Ledger) -> float | None:
    """Return the share of the CPU of the nodes of some pods, None if that is not known."""
    nodes = map(ledger.node, {pod.node_name for pod in pods})
    there = sum(node.allocatable.get(CPU, 0) for node in nodes if node is not None)
    return 1000 * cores / there if there else None
