"""The CPU that pods, nodes and jobs use, and how often each pod was measured."""

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
    """The last measured use of a pod; `number`: how many measurements it had."""

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

    def record(
        self, pods: Mapping[str, CpuUse | Verdict], nodes: Mapping[str, CpuUse] | None = None
    ) -> None:
        """Record a round of measurements: pods by uid, nodes by name.

        The use of all other pods and nodes is then unknown.
        """
        self._nodes = dict(nodes or {})
        before, self._measured = self._measured, {}
        for uid, use in pods.items():
            if isinstance(use, CpuUse):
                last = before.get(uid)
                if last is None or last.use.at != use.at:
                    last = Measured(use, number=last.number + 1 if last else 1)
                self._measured[uid] = last

    def use_of(self, uid: str) -> Measured | None:
        """Return the use of a pod, or None for a pod without a measurement in the last round."""
        return self._measured.get(uid)

    def of_node(self, name: str) -> int | None:
        """Return the millicores in use on a node, or None for a node without a measurement."""
        use = self._nodes.get(name)
        return None if use is None else round(1000 * use.cores)


def record_use(
    followed: Followed, pods: Iterable[Pod], uses: Mapping[str, CpuUse | Verdict], *, ledger: Ledger
) -> None:
    """Record the CPU use of a job from its pods; a verdict says why a use is unknown."""
    measured = [pod for pod in pods if pod.uid in uses]
    results = [uses[pod.uid] for pod in measured]
    cores = [use.cores for use in results if isinstance(use, CpuUse)]
    why = next((use for use in results if isinstance(use, Verdict)), None)
    if why is not None or not cores:
        followed.use(None, share=None, why=why)
    else:
        followed.use(sum(cores), share=_share(sum(cores), measured, ledger))


def _share(cores: float, pods: Iterable[Pod], ledger: Ledger) -> float | None:
    """Return the cores as a fraction of the CPU of the pods' nodes, or None for unknown nodes."""
    nodes = map(ledger.node, {pod.node_name for pod in pods})
    total = sum(node.allocatable.get(CPU, 0) for node in nodes if node is not None)
    return 1000 * cores / total if total else None
