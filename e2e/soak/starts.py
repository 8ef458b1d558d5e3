"""Judges the start times that TrainingPlans expect, once the jobs have started."""

from statistics import fmean

from e2e.bench.model.starts import Look, judged
from e2e.bench.report import quantile
from e2e.soak.facts import Cluster, Gang
from kfext.core.queue.expected import Accuracy, ExpectedStart, decode_expected

_SECONDS_BETWEEN_LOOKS = 10.0
"""Seconds between two readings of all waiting jobs; few jobs wait for a minute."""


class Starts:
    """The expected starts read so far, and the actual starts of jobs, in epoch seconds."""

    def __init__(self) -> None:
        self._looks: list[Look] = []
        self._started: dict[str, float] = {}
        self._next = 0.0

    def record(self, cluster: Cluster, *, now: float) -> None:
        """Record the jobs that have started, and every few seconds the expected starts."""
        shown = {look.job for look in self._looks} - self._started.keys()
        for uid in shown & cluster.gangs.keys():
            gang = cluster.gangs[uid]
            if not (gang.suspended or gang.released or gang.over):
                self._started[uid] = now
        if now >= self._next:
            self._next = now + _SECONDS_BETWEEN_LOOKS
            waiting = (gang for gang in cluster.gangs.values() if gang.suspended)
            starts = ((gang, decode_expected(gang.view.get("expectedStart"))) for gang in waiting)
            self._looks += [_look(gang, start, now=now) for gang, start in starts if start]

    def summary(self) -> str:
        judgements = judged(self._looks, self._started)
        known = [judgement for judgement in judgements if judgement.error is not None]
        if not known:
            return f"expected starts: none of {len(judgements)} looks was known"
        errors = [
            judgement.error / judgement.wait for judgement in known if judgement.error is not None
        ]
        within = fmean(judgement.was is Accuracy.WITHIN for judgement in known)
        width = fmean(judgement.width for judgement in known) / fmean(
            judgement.wait for judgement in known
        )
        return (
            f"expected starts: error / wait {quantile(errors, 0.5):.0%}, p90 "
            f"{quantile(errors, 0.9):.0%}; {within:.0%} within the range, width / wait "
            f"{width:.1f}; {len(known)} of {len(judgements)} looks known"
        )


def _look(gang: Gang, start: ExpectedStart, *, now: float) -> Look:
    times = (start.time, start.earliest, start.latest)
    return Look(now, gang.uid, 0.0, *(None if at is None else at - now for at in times))
