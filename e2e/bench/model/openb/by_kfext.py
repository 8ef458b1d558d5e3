"""kfext as a scheduler of these runs: each pod is a gang, placed by the solver on kfext's ledger.

Every GPU is a slot that may be shared. A pod with a share of a GPU has low priority, the default;
its slot is chosen as by the controller, and a slot with a share uses a whole GPU of the node. GPU
types are node labels and required node affinity. All settings are the defaults.

kfext counts shares in hundredths and rounds up. The trace has neither limits nor GPU memory, so
pods may burst, and a share of a GPU has the same share of its memory.
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
from kfext.model.gpu import UNITS, GpuShare, resource_of, without_card_counts
from kfext.model.node import Node
from kfext.model.pod import ReplicaKey
from kfext.model.quantity import CPU, MEMORY, PODS, Resources
from kfext.model.verdict import Verdict
from kfext.names import NATIVE_GPU

UNIT = WHOLE // UNITS
"""The thousandths of a GPU in one of kfext's units."""
_TYPE_LABEL = "gpu-type"
"""The label with the GPU type of a node."""
_MIB = 2**20
_CARD_MIB = 16 * 2**10
"""The MiB of each GPU; no pod requests GPU memory, so the number has no effect."""
_MAX_PODS = 110
"""kubelet's default."""
_KEY = ReplicaKey("master", 0)


class ByKfext:
    """kfext's solver, with a ledger of its own that has the same pods as the run's cluster."""

    def __init__(self, nodes: Sequence[trace.Node]) -> None:
        self._ledger = Ledger(_node(node, row) for row, node in enumerate(nodes))
        self._limits = limits_of(Settings(), excluded=())
        self._gpus: dict[slots.Place, int] = {}
        self._refused: set[Hashable] = set()
        self._placed = 0

    def __call__(self, cluster: Cluster, pod: Pod) -> Place | None:
        """Return the place of a pod, and claim it; the run then places the pod at once.

        As in kfext, a refusal holds for all pods of the same shape until capacity is freed.
        """
        member = _member(pod)
        shape = (tuple(member.requests.items()), member.constraints)
        if shape in self._refused:
            return None
        assignment = place([member], self._ledger, self._limits)
        if isinstance(assignment, Verdict):
            self._refused.add(shape)
            return None
        node = assignment[_KEY]
        chosen = slots_for([member], assignment, self._ledger)
        if chosen is None:
            raise RuntimeError(f"no slot of {node} has the part that the solver found there")
        row = self._ledger.row(node)
        assert row is not None
        requests: Resources = without_card_counts(member.requests)
        if member.card is not None:
            slot = (node, chosen[_KEY])
            if slot not in self._gpus:
                self._gpus[slot] = int((cluster.gpu[row] == WHOLE).argmax())
                self._ledger.claim(("reservation", slot), reserved_gpu(slot))
            requests = {**requests, **taken_by(member.card, slot[1])}
            gpus: Sequence[int] = [self._gpus[slot]]
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
    """Return a node of the ledger; its name begins with its row, which decides ties."""
    amounts = {CPU: node.cpu, MEMORY: node.memory * _MIB, PODS: _MAX_PODS, NATIVE_GPU: node.gpus}
    for slot in range(node.gpus):
        amounts |= {resource_of(slot): UNITS, **capacity(slot, memory=_CARD_MIB)}
    return Node(f"{row:04}-{node.name}", amounts, {_TYPE_LABEL: node.model})


def _member(pod: Pod) -> Member:
    requests = {CPU: pod.cpu, MEMORY: pod.memory * _MIB, PODS: 1}
    card = GpuShare(-(-pod.milli // UNIT)).need if pod.shares else None
    if card is not None:
        requests[card.name] = 1
    elif pod.gpus:
        requests[NATIVE_GPU] = pod.gpus
    terms = None
    if pod.types:
        terms = (Term((Requirement(_TYPE_LABEL, "In", tuple(pod.types.split("|"))),)),)
    return Member(
        _KEY, requests, Constraints(terms=terms), guaranteed=False, cpu_limit=None, card=card
    )
