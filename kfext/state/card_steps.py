"""The pods that reserve GPUs for slots: when one is created, and when it is deleted."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from kfext.core.ledger.ledger import Ledger
from kfext.model.backoff import exponential_backoff
from kfext.model.gpu import Place
from kfext.model.pod import Pod
from kfext.state.card_demand import Tolerations
from kfext.state.cards import Cards

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_Key = tuple[type, Place]
"""What is done, and for which slot."""


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
    """Finds the steps that reserve GPUs and give them back. Times are monotonic seconds."""

    def __init__(self, cards: Cards, ledger: Ledger) -> None:
        self._cards = cards
        self._ledger = ledger
        self._tries: dict[_Key, int] = {}
        self._not_before: dict[_Key, float] = {}

    def due(self, now: float) -> Iterator[Reserve | Unreserve]:
        """Yield what is to be done now, at most one step for each slot; call `finish` after it.

        A GPU is given back at once when no plan has a replica in its slot and no pod has time of
        it. A pod that has ended reserves nothing, so it makes way for the next one of its name.
        """
        needed = {_key(step): step for step in self._needed()}
        # What is not needed any more is not waited for either, unless it is being written.
        waiting = {key for key, at in self._not_before.items() if math.isfinite(at)}
        for key in waiting - needed.keys():
            del self._not_before[key]
            self._tries.pop(key, None)
        for key, step in needed.items():
            if now >= self._not_before.get(key, now):
                self._not_before[key] = math.inf
                yield step

    def next_look(self) -> float:
        """Return when to try a step again that is still needed, infinity if there is none."""
        return min(self._not_before.values(), default=math.inf)

    def finish(self, step: Reserve | Unreserve, now: float) -> None:
        """Take in that a step was written or has failed.

        If nothing comes of it, it is tried again, later each time.
        """
        key = _key(step)
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        pause = exponential_backoff(tries, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        self._not_before[key] = now + pause

    def _needed(self) -> Iterator[Reserve | Unreserve]:
        wanted, cards = self._cards.wanted(), self._cards
        for place in sorted({*wanted, *cards.reserved()}):
            pod = cards.pod(place)
            if pod is None:
                if self._ledger.row(place[0]) is not None:
                    yield Reserve(place, wanted[place])
            elif pod.deleting:
                pass  # it makes way for the next one once it is gone
            elif pod.finished or not (place in wanted or cards.in_use(place)):
                yield Unreserve(place, pod)


def _key(step: Reserve | Unreserve) -> _Key:
    return type(step), step.place
