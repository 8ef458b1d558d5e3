"""When a running job counts as stalled: it is silent for much longer than it ever was before.

Innocent silences are long: a first step compiles for an hour, a checkpoint goes to a slow disk. So
a silence is measured by the longest of the same start, and of ended starts of the series. All times
are in seconds. Source of the constants: trials on random courses, docs/reports/stalled-jobs.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from kfext.model.verdict import Verdict
from kfext.names import REASON_STALLED

MOVES = Verdict("", "")
"""A counter of the log moves."""


class Rule(NamedTuple):
    """A job is silent for too long after `times` the longest silence, `least` at least.

    `early`: the least in the first EARLY_SECONDS after the first step, once it trains for twice as
        long as any job of its series before. `first`: the least before the first step of a series
        without history.
    """

    times: float
    least: float
    early: float
    first: float


REPORT, RESTART = Rule(3.0, 900.0, 1800.0, 7200.0), Rule(6.0, 1800.0, 7200.0, math.inf)
"""When a job is shown as stalled, and when it may be restarted: a false alarm then costs work."""
EARLY_SECONDS = 7200.0
SETTLED_SECONDS = 120.0
"""The silence begins so long after a change of the size."""
_OF_SAVES = 4.0
"""A save that was announced may take so many times longer."""
_OF_FIRST = 0.4
"""This part of the time to a first step counts as a silence: a program may begin anew in its pods,
and then takes about as long again."""


class Habits(NamedTuple):
    """The longest silence, time to a first step, and time after it, of a series; 0.0: unknown."""

    silence: float = 0.0
    first: float = 0.0
    lasted: float = 0.0


class Suspect(NamedTuple):
    """A pod, by uid, with a CPU use unlike the pods that do the same work: how, in `words`.

    `number`: its last measurement. `times`: the measurements in a row in which it differed.
    """

    uid: str
    node: str
    words: str
    number: int
    times: int = 1


@dataclass(slots=True)
class Start:
    """The silences of a job since all its pods run, by the times of the reads of its log.

    `began`: when all ran, or this controller first read the log. `read`: the last read.
    `moved`: the last read that showed that a counter had moved, `alive` if there is any.
    `stepped`: the read that showed the first step; None: no read did.
    `longest`: the longest time without a movement, since the first step if there is any.
    `unread`: whether a read has failed since the last read.
    `created`: the creation of the newest pod, and `at`: the last movement; in epoch seconds.
    `hangs`: whether the silence is so long that the job may be restarted.
    `inherited`: whether an earlier controller has shown the silence, with its evidence.
    `late`: whether the job had run for long before this controller first read its log.
    """

    began: float
    read: float
    moved: float
    alive: bool = False
    stepped: float | None = None
    longest: float = 0.0
    unread: bool = False
    created: float = 0.0
    at: float = 0.0
    hangs: bool = False
    inherited: bool = False
    late: bool = False
    suspect: Suspect | None = None

    def observe(self, now: float, *, moved: bool, steps: bool) -> None:
        """Register a read: whether a counter moved, and whether a step was shown.

        The time in which the log could not be read does not count.
        """
        if self.unread:
            self.moved += now - self.read
        if moved and steps and self.stepped is None:
            self.stepped, self.longest = now, 0.0
        elif moved:
            self.longest = max(self.longest, now - self.moved)
        self.read, self.unread, self.alive = now, False, self.alive or moved
        self.moved = now if moved else self.moved

    @property
    def silent(self) -> float:
        """For how long no counter had moved at the last read."""
        return self.read - self.moved

    @property
    def first(self) -> float:
        """The time to the first step; 0.0: unknown."""
        return 0.0 if self.late or self.stepped is None else self.stepped - self.began

    @property
    def cause(self) -> Suspect | None:
        """The pod that is the likely cause of the silence, if any."""
        return self.suspect if self.suspect and self.suspect.times >= _MEASUREMENTS else None

    def limit(self, rule: Rule, known: Habits, *, saving: bool) -> float:
        """Return how long the job may be silent, infinity if its log may show nothing at all.

        `known`: of its series. `saving`: whether a save is announced and not complete.
        """
        if self.stepped is None:
            least = rule.least if known.first else rule.first if self.alive else math.inf
            return max(rule.times * max(self.longest, known.first), least)
        early = 2 * known.lasted <= self.moved - self.stepped < EARLY_SECONDS
        least = rule.early if early else rule.least
        again = _OF_FIRST * max(self.first, known.first)
        limit = max(rule.times * max(self.longest, known.silence, again), least)
        return limit * _OF_SAVES if saving else limit


_FAR = 0.4
"""The least difference from the median, as a part of it."""
_FEWEST = 3
"""Of two pods, either may be the odd pod."""
_TINY = 0.001
_MEASUREMENTS = 3
"""The measurements in a row in which a pod differs before it is named."""


def stalled(moves: Verdict | None) -> Verdict | None:
    """Return why a job is stalled; None: it is not, or this is not known."""
    return moves if moves and moves.reason == REASON_STALLED else None


def odd_pod(uses: Mapping[str, float]) -> str | None:
    """Return the pod with the CPU use that differs most from the median, or None without any.

    `uses`: of pods that do the same work, in cores by uid.
    """
    middle = median(uses.values()) if len(uses) >= _FEWEST else math.inf
    far = [uid for uid, use in uses.items() if abs(use - middle) > _FAR * middle]
    ratios = {uid: abs(math.log((uses[uid] + _TINY) / (middle + _TINY))) for uid in far}
    return max(ratios, key=lambda uid: ratios[uid], default=None)
