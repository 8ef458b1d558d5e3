"""The pods that reserve GPUs for slots: when one is created, and when it is deleted."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from kfext.core.ledger.ledger import Ledger
from kfext.model.backoff import exponential_backoff
from kfext.model.pod import Pod
from kfext.model.shared_gpu import Place
from kfext.state.cards import Cards, Tolerations

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


@dataclass(frozen=True, slots=True)
class Reserve:
    """Create the pod that reserves a GPU for a slot; that it exists is a success too."""

    place: Place
    tolerations: Tolerations


@dataclass(frozen=True, slots=True)
class Unreserve:
    """Delete such a pod, which nothing uses or which has ended."""

    place: Place
    pod: Pod


class CardSteps:
    """Finds them. Times are monotonic seconds."""

    def __init__(self, cards: Cards, ledger: Ledger) -> None:
        self._cards = cards
        self._ledger = ledger
        self._failures: dict[Place, int] = {}
        self._not_before: dict[Place, float] = {}

    def due(self, now: float) -> Iterator[Reserve | Unreserve]:
        """Yield what is to be done now, at most one step for each slot; call `finish` after it.

        A GPU is given back at once when no plan has a replica in its slot and no pod has time of
        it. A pod that has ended reserves nothing, so it makes way for the next one of its name.
        """
        wanted, cards = self._cards.wanted(), self._cards
        for place in sorted({*wanted, *cards.reserved()}):
            pod = cards.pod(place)
            if now < self._not_before.get(place, now) or (pod is not None and pod.deleting):
                continue
            if pod is None:
                if self._ledger.row(place[0]) is not None:
                    yield self._begun(Reserve(place, wanted[place]))
            elif pod.finished or not (place in wanted or cards.in_use(place)):
                yield self._begun(Unreserve(place, pod))

    def next_look(self) -> float:
        """Return when to try a step again that failed, infinity if none did."""
        return min(self._not_before.values(), default=math.inf)

    def finish(self, step: Reserve | Unreserve, now: float, *, done: bool) -> None:
        """Take in the outcome of a step; one that failed is tried again, later each time."""
        if done:
            self._failures.pop(step.place, None)
            self._not_before.pop(step.place, None)
            return
        failures = self._failures[step.place] = self._failures.get(step.place, 0) + 1
        pause = exponential_backoff(failures, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        self._not_before[step.place] = now + pause

    def _begun(self, step: Reserve | Unreserve) -> Reserve | Unreserve:
        self._not_before[step.place] = math.inf
        return step
