"""What the agents before this one have counted against pods of low priority, as the slots show it.

Without that, an agent that ends again and again would never have anybody leave a card.
"""

from collections.abc import Callable

from kfext.agent.report import Pod
from kfext.model.shared_gpu import SharedGpu


class EarlierStrikes:
    """Strikes by the uids of two pods: who has them, and the one of high priority beside which.

    Each is given out once: from then on the card counts. `uid`: of a pod, empty if it is not known.
    """

    def __init__(self, uid: Callable[[Pod], str]) -> None:
        self._uid = uid
        self._left: dict[tuple[str, str], int] = {}

    def read(self, slot: SharedGpu) -> None:
        """Take in a slot as another agent has left it, before it is written again."""
        high = next((one.pod for one in slot.sharers if one.high), "")
        for one in slot.sharers:
            if high and one.pod and one.strikes:
                self._left[one.pod, high] = one.strikes

    def take(self, low: Pod, high: Pod) -> int:
        """Return the strikes of a pod beside another one, 0 from the second time on."""
        if not self._left:
            return 0
        return self._left.pop((self._uid(low), self._uid(high)), 0)
