"""The rule for a stalled job: a running job that is silent for much longer than it ever was.

Harmless silences are long: a first step compiles for an hour, a checkpoint is written to a slow
disk. So a silence is compared with the longest silence of the same start, and of earlier starts of
the series. All times are in seconds. Source of the constants: docs/reports/stalled-jobs.md.
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
    """The bound on the silence of a job: `times` the longest silence, but at least `least` seconds.

    `early`: replaces `least` in the first EARLY_SECONDS after the first step, if the job has
        trained for twice as long as all jobs of its series before. `first`: replaces `least` before
        the first step of a series without history.
    """

    times: float
    least: float
    early: float
    first: float


REPORT, RESTART = Rule(3.0, 900.0, 1800.0, 7200.0), Rule(6.0, 1800.0, 7200.0, math.inf)
"""The bounds for showing a job as stalled and for restarting it, where a false alarm costs work."""
EARLY_SECONDS = 7200.0
SETTLED_SECONDS = 120.0
"""After a change of the size, the silence begins only after so many seconds."""
_SAVE_FACTOR = 4.0
"""The factor on the bound while a save is announced, which may take longer."""
_FIRST_FRACTION = 0.4
"""This fraction of the time to the first step counts as a silence: a program may start again inside
its pods, and then takes about as long again."""


class Habits(NamedTuple):
    """The longest silence, time to the first step and time after it in a series; 0.0: unknown."""

    silence: float = 0.0
    first: float = 0.0
    lasted: float = 0.0


class Suspect(NamedTuple):
    """A pod that differs in its CPU use from the pods that do the same work.

    `words`: the difference, in words. `number`: the number of its last measurement. `times`: in how
        many measurements in a row it differed.
    """

    uid: str
    node: str
    words: str
    number: int
    times: int = 1


@dataclass(slots=True)
class Start:
    """The silences of a job since all its pods run; the times are times of reads of its log.

    `began`: when all pods ran, or this controller first read the log. `read`: the last read.
    `moved`: the last read that showed a moved counter. `alive`: whether there was such a read.
    `stepped`: the read that showed the first step, or None before it.
    `longest`: the longest time without a movement, since the first step if it is known.
    `unread`: whether a read has failed since the last successful read.
    `created`, `at`: when the newest pod was created, and the last movement; in epoch seconds.
    `hangs`: whether the silence is so long that the job may be restarted.
    `inherited`: whether an earlier controller showed the silence, from its own evidence.
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
        """Record a read: whether a counter moved, and whether a step was shown."""
        if self.unread:  # the time in which the log could not be read does not count
            self.moved += now - self.read
        if moved and steps and self.stepped is None:
            self.stepped, self.longest = now, 0.0
        elif moved:
            self.longest = max(self.longest, now - self.moved)
        self.read, self.unread, self.alive = now, False, self.alive or moved
        self.moved = now if moved else self.moved

    @property
    def silent(self) -> float:
        """The seconds from the last movement of a counter to the last read."""
        return self.read - self.moved

    @property
    def first(self) -> float:
        """The seconds to the first step, or 0.0 while unknown."""
        return 0.0 if self.late or self.stepped is None else self.stepped - self.began

    @property
    def cause(self) -> Suspect | None:
        """The pod that is the likely cause of the silence, if any."""
        return self.suspect if self.suspect and self.suspect.times >= _MEASUREMENTS else None

    def limit(self, rule: Rule, known: Habits, *, saving: bool) -> float:
        """Return the most seconds of silence; infinite if the log may never show anything.

        `known`: the habits of its series. `saving`: whether a save is announced and not complete.
        """
        if self.stepped is None:
            least = rule.least if known.first else rule.first if self.alive else math.inf
            return max(rule.times * max(self.longest, known.first), least)
        early = 2 * known.lasted <= self.moved - self.stepped < EARLY_SECONDS
        least = rule.early if early else rule.least
        restart = _FIRST_FRACTION * max(self.first, known.first)
        limit = max(rule.times * max(self.longest, known.silence, restart), least)
        return limit * _SAVE_FACTOR if saving else limit


_FAR = 0.4
"""The least difference of an odd pod from the median, as a fraction of the median."""
_MIN_PODS = 3
"""Among fewer pods, no pod is odd: of two pods, either may be."""
_TINY = 0.001  # cores; avoids the logarithm of 0
_MEASUREMENTS = 3
"""A pod must differ in so many measurements in a row before it is named as the cause."""


def stalled(moves: Verdict | None) -> Verdict | None:
    """Return why a job is stalled, or None for any other job."""
    return moves if moves and moves.reason == REASON_STALLED else None


def odd_pod(uses: Mapping[str, float]) -> str | None:
    """Return the uid of the pod with the most unusual CPU use, or None; `uses`: cores by uid."""
    middle = median(uses.values()) if len(uses) >= _MIN_PODS else math.inf
    far = [uid for uid, use in uses.items() if abs(use - middle) > _FAR * middle]
    ratios = {uid: abs(math.log((uses[uid] + _TINY) / (middle + _TINY))) for uid in far}
    return max(ratios, key=lambda uid: ratios[uid], default=None)
