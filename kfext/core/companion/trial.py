"""Whether a proposal that was carried out has helped the job that it was to serve."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from statistics import fmean, stdev

from kfext.core.companion.proposal import Measure, Proposal, give_back, measured
from kfext.core.companion.signals import Signals

WINDOWS = 4
"""Windows with a value after which a gain must have shown."""
WINDOWS_BEFORE = 2
"""Windows with a value that must be there before the change, unless it is known what to expect."""
_KEPT = 4
"""Windows before the change that are compared with."""
_CERTAIN = 2.0
"""Standard errors that a gain must exceed."""
_LEAST_GAIN = 0.02
"""The share that a gain must exceed where the windows do not show how much they scatter."""


class Outcome(Enum):
    """What a trial has shown: nothing yet, a gain, or none; it is moot if a job has gone."""

    RUNNING = "running"
    GAINED = "gained"
    FAILED = "failed"
    MOOT = "moot"


@dataclass(frozen=True, slots=True)
class Trial:
    """A proposal on trial: what its measure was in windows before it and in windows after."""

    proposal: Proposal
    before: tuple[float, ...]
    after: tuple[float, ...] = ()

    def with_window(self, signals: Signals) -> "Trial":
        """Return the trial after another window; one without a value changes nothing."""
        served, measure = signals.job(self.proposal.serves), self.proposal.measure
        value = None if served is None or measure is None else measured(served, measure)
        return self if value is None else replace(self, after=(*self.after, value))

    def outcome(self, signals: Signals) -> Outcome:
        """Return what is known; a gain ends the trial early, its absence after all windows."""
        if signals.job(self.proposal.serves) is None or signals.job(self.proposal.job) is None:
            return Outcome.MOOT
        if _gained(self.before, self.after):
            return Outcome.GAINED
        if len(self.after) < WINDOWS:
            return Outcome.RUNNING
        # One window with a checkpoint or another pause, on either side, shows nothing.
        gained = _gained(_without_lowest(self.before), _without_lowest(self.after))
        return Outcome.GAINED if gained else Outcome.FAILED

    def undo(self, signals: Signals) -> Proposal | None:
        """Return the proposal to undo it, after which the policy rests for the job."""
        job = signals.job(self.proposal.job)
        if job is None:
            return None
        reason = f"{self.proposal.policy} is undone: in {WINDOWS} intervals it has shown no gain"
        return give_back(self.proposal.policy, job, signals, reason=reason, rests=True)


def begin_trial(proposal: Proposal, history: Sequence[float | None]) -> Trial | None:
    """Return the trial of a proposal that is carried out; None if it is to show no gain.

    `history`: its measure in the last windows, the newest last. Without any it is compared with
    what is expected.
    """
    if proposal.measure is None:
        return None
    before = tuple(one for one in history if one is not None)[-_KEPT:]
    if not before and proposal.expected is not None:
        before = (proposal.expected,)
    return Trial(proposal, before)


def measure_for(rate: float | None) -> Measure:
    """Return the measure for a job: its rate if it reports one, else the CPU that it uses."""
    return Measure.USE if rate is None else Measure.RATE


def _gained(before: Sequence[float], after: Sequence[float]) -> bool:
    if not before or not after:
        return False
    noise = _CERTAIN * math.hypot(_error(before), _error(after))
    return fmean(after) - fmean(before) > max(noise, _LEAST_GAIN * abs(fmean(before)))


def _without_lowest(values: Sequence[float]) -> Sequence[float]:
    return sorted(values)[1:] if len(values) > WINDOWS_BEFORE else values


def _error(values: Sequence[float]) -> float:
    """Return the standard error of the mean; 0 for a single value, which shows none."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
