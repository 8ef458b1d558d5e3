"""kfext in the same run: each pod is a gang of its own, placed by the solver on kfext's ledger.

Every GPU is a slot that may be shared. A pod with a part of a GPU has low priority, the default;
its slot is chosen as the controller does, and a slot with a part takes a whole GPU of the node. GPU
types are node labels and required node affinity. All settings are the defaults.

kfext counts parts in hundredths and rounds up. The trace states neither limits nor memory of GPUs:
pods may burst, and a part of a GPU has the same part of its memory.
"""

from collections.abc import Hashable, Sequence

from e2e.bench.model.openb import trace
from e2e.bench.model.openb.cluster import Cluster, Place
from e2e.bench.model.openb.trace import WHOLE, Pod
from kfext.core.ledger.cards import capacity, taken_by
from kfext.core.ledger.claims import replica_claim, reserved_gpu
from kfext.core.ledger.ledger import Ledger
from kfext.core.lifecycle.cards import slots_for
from kfext.core.placement.gang import Member, limits_of
from kfext.core.placement.place import place
from kfext.core.settings.table import Settings
from kfext.model import gpu as slots
from kfext.model.constraints import Constraints, Requirement, Term
from kfext.model.gpu import UNITS, GpuShare, resource_of, uncounted
from kfext.model.node import Node
from kfext.model.pod import ReplicaKey
from kfext.model.quantity import CPU, MEMORY, PODS, Resources
from kfext.model.verdict import Verdict
from kfext.names import NATIVE_GPU

UNIT = WHOLE // UNITS
"""The thousandths of a GPU in a unit of kfext."""
_TYPE = "gpu-type"
"""The label with the GPU type of a node."""
_MIB = 2**20
_CARD = 16 * 2**10
"""The MiB of each GPU: no pod states any, so the number decides nothing."""
_MOST_PODS = 110
"""The default of kubelet."""
_KEY = ReplicaKey("master", 0)


class ByKfext:
    """The solver of kfext with its ledger, which follows the cluster of the run."""

    def __init__(self, nodes: Sequence[trace.Node]) -> None:
        self._ledger = Ledger(_node(node, row) for row, node in enumerate(nodes))
        self._limits = limits_of(Settings(), excluded=())
        self._gpus: dict[slots.Place, int] = {}
        self._refused: set[Hashable] = set()
        self._placed = 0

    def __call__(self, cluster: Cluster, pod: Pod) -> Place | None:
        """Return where a pod goes, and claim it there; the run lets the pod take it at once.

        As in kfext, a refusal holds for all pods of its shape while nothing comes free.
        """
        member = _member(pod)
        shape = (tuple(member.requests.items()), member.constraints)
        if shape in self._refused:
            return None
        found = place([member], self._ledger, self._limits)
        if isinstance(found, Verdict):
            self._refused.add(shape)
            return None
        node = found[_KEY]
        chosen = slots_for([member], found, self._ledger)
        if chosen is None:
            raise RuntimeError(f"no slot of {node} has the part that the solver found there")
        row = self._ledger.row(node)
        assert row is not None
        requests: Resources = uncounted(member.requests)
        if member.card is not None:
            at = (node, chosen[_KEY])
            if at not in self._gpus:
                self._gpus[at] = int((cluster.gpu[row] == WHOLE).argmax())
                self._ledger.claim(("reservation", at), reserved_gpu(at))
            requests = {**requests, **taken_by(member.card, at[1])}
            gpus: Sequence[int] = [self._gpus[at]]
        else:
            gpus = cluster.fullest(row, pod)
        self._placed += 1
        claim = replica_claim(member.constraints, requests, node, job=str(self._placed), priority=0)
        self._ledger.claim(self._placed, claim)
        return row, gpus


def rounded_up(pod: Pod) -> bool:
    """Return whether kfext counts more of a GPU than a pod requests."""
    return pod.milli % UNIT > 0


def _node(node: trace.Node, row: int) -> Node:
    """Return a node of the ledger; its name puts it at its row in the order of ties."""
    amounts = {CPU: node.cpu, MEMORY: node.memory * _MIB, PODS: _MOST_PODS, NATIVE_GPU: node.gpus}
    for slot in range(node.gpus):
        amounts |= {resource_of(slot): UNITS, **capacity(slot, memory=_CARD)}
    return Node(f"{row:04}-{node.name}", amounts, {_TYPE: node.model})


def _member(pod: Pod) -> Member:
    requests = {CPU: pod.cpu, MEMORY: pod.memory * _MIB, PODS: 1}
    card = GpuShare(-(-pod.milli // UNIT)).need if pod.shares else None
    if card is not None:
        requests[card.name] = 1
    elif pod.gpus:
        requests[NATIVE_GPU] = pod.gpus
    terms = None
    if pod.types:
        terms = (Term((Requirement(_TYPE, "In", tuple(pod.types.split("|"))),)),)
    return Member(
        _KEY, requests, Constraints(terms=terms), guaranteed=False, cpu_limit=None, card=card
    )
