"""The CPU that pods, nodes and jobs use, and how often each pod was measured anew."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kfext.core.ledger.ledger import Ledger
from kfext.core.progress.followed import Followed
from kfext.model.cpu_use import CpuUse
from kfext.model.pod import Pod
from kfext.model.quantity import CPU
from kfext.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Measured:
    """The last use of a pod; `number` counts its measurements."""

    use: CpuUse
    number: int

    @property
    def millicores(self) -> int:
        """The use in millicores."""
        return round(1000 * self.use.cores)


class Uses:
    """The use of each pod and node that was measured in the last round."""

    def __init__(self) -> None:
        self._measured: dict[str, Measured] = {}
        self._nodes: dict[str, CpuUse] = {}

    def take(
        self, found: Mapping[str, CpuUse | Verdict], nodes: Mapping[str, CpuUse] | None = None
    ) -> None:
        """Take in a round of measurements: of pods by uid, and of nodes by name.

        What is not in it is not known any more.
        """
        self._nodes = dict(nodes or {})
        before, self._measured = self._measured, {}
        for uid, use in found.items():
            if isinstance(use, CpuUse):
                known = before.get(uid)
                if known is None or known.use.at != use.at:
                    known = Measured(use, number=known.number + 1 if known else 1)
                self._measured[uid] = known

    def of(self, uid: str) -> Measured | None:
        """Return the use of a pod, None if it is not known."""
        return self._measured.get(uid)

    def of_node(self, name: str) -> int | None:
        """Return the millicores that all that runs on a node uses, None if that is not known."""
        use = self._nodes.get(name)
        return None if use is None else round(1000 * use.cores)


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
