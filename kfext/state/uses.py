"""The CPU that pods and nodes use, and how often each pod was measured anew."""

from collections.abc import Mapping
from dataclasses import dataclass

from kfext.model.cpu_use import CpuUse
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
