"""Which running jobs are stalled, by the reads of their logs and by what they post.

A job is judged after a read of its log, so a log that cannot be read makes no job stalled. The
history of a series is in memory: a new controller is as patient as with a new series.
"""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, replace
from statistics import median

from kfext.core.progress import stall
from kfext.core.progress.followed import Followed
from kfext.core.progress.stall import Habits, Start
from kfext.core.words import clock, cpus
from kfext.model.job import TrainingJob
from kfext.model.moment import Moment
from kfext.model.pod import Pod
from kfext.model.timestamps import past
from kfext.model.verdict import Verdict
from kfext.names import REASON_STALLED
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.reports.uses import Measured, Uses

_MOST_SERIES = 256
"""The series of a namespace with a history: the last that ended a start."""
_MEASUREMENTS = 3
"""The measurements in a row in which a pod differs before it is named."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A pod, by uid, with a CPU use unlike the pods that do the same work: how, in `words`.

    `number`: its last measurement. `times`: the measurements in a row in which it differed.
    """

    uid: str
    node: str
    words: str
    number: int
    times: int = 1


@dataclass(slots=True)
class _Record:
    """The present start of a job, by the creation of its newest pod.

    `at`: when a counter last moved, in epoch seconds. `hangs`: whether it may be restarted.
    """

    created: float
    start: Start
    at: float
    suspect: Suspect | None = None
    hangs: bool = False


class Silences:
    """The silences of the jobs of a cluster.

    `verdicts`: by uid, that a job is stalled, or why that is unknown; None: it progresses. A job
        that is not in it cannot be judged yet.
    """

    def __init__(self, cluster: Cluster, uses: Uses) -> None:
        self.verdicts: dict[str, Verdict | None] = {}
        self._cluster = cluster
        self._uses = uses
        self._records: dict[str, _Record] = {}
        self._habits: dict[str, OrderedDict[str, Habits]] = {}

    def observe(self, tracked: TrackedJob, followed: Followed, now: Moment) -> None:
        """Judge a job after a read of its log, or after a post."""
        job, pods, at = tracked.job, self._cluster.pods(tracked.job.uid), now.monotonic
        moved, steps = followed.moved, followed.steps
        followed.moved = followed.steps = False
        runs, created = _all_run(job, pods), _newest(pods)
        record = self._records.get(job.uid)
        if record is not None and not (runs and created == record.created):
            self._keep(job, self._records.pop(job.uid).start)
            self.verdicts[job.uid], record = None, None
        if not runs:
            return
        changed = past(tracked.state.scale.changed_at, now=now.wall)
        moved |= now.wall - changed < stall.SETTLED_SECONDS
        if record is None:  # the lines of the first read may be old
            record = self._records[job.uid] = _Record(created, Start(at, at, at), now.wall)
        elif moved:
            record.at, record.suspect, record.hangs = now.wall, None, False
            self.verdicts[job.uid] = None
        record.start.observe(at, moved=moved, steps=steps)
        if not moved:
            self._judge(job, record, pods, followed)

    def _judge(
        self, job: TrainingJob, record: _Record, pods: Collection[Pod], followed: Followed
    ) -> None:
        """Judge a job after a read that showed no life."""
        start, shown = record.start, self.verdicts.get(job.uid)
        known = self._habits.get(job.namespace, OrderedDict()).get(job.series, Habits())
        limit, most = (
            start.limit(rule, known, saving=followed.life.saving)
            for rule in (stall.REPORT, stall.RESTART)
        )
        if start.silent > limit / 2:
            record.suspect = self._differing(job, pods, record.suspect)
        record.hangs = start.silent > most
        if start.silent > limit:
            words = f"its longest pause before was {start.longest:.0f} s"
            parts = [
                f"no counter of its log has moved since {clock(record.at)}",
                words if start.stepped is not None else "it has shown no step since its start",
                "" if followed.course.step is None else f"its last step is {followed.course.step}",
                suspect.words if (suspect := self.suspect(job.uid)) else "",
            ]
            self.verdicts[job.uid] = Verdict(REASON_STALLED, "; ".join(filter(None, parts)))
        elif shown is not None and not _is_stalled(shown):
            self.verdicts[job.uid] = None  # the log can be read again

    @property
    def stalled(self) -> int:
        """The number of stalled jobs that still run."""
        shown = [uid for uid, verdict in self.verdicts.items() if _is_stalled(verdict)]
        jobs = [self._cluster.jobs[uid].job for uid in shown if uid in self._cluster.jobs]
        return sum(not (job.suspend or job.finished) for job in jobs)

    def fail(self, uid: str, why: Verdict | None) -> None:
        """Record that the log of a job could not be read; `why`: once that is to be shown."""
        if record := self._records.get(uid):
            record.start.unread, record.hangs = True, False
        if why is not None:
            self.verdicts[uid] = why

    def forget(self, uid: str) -> None:
        """Forget a job that is gone."""
        self._records.pop(uid, None)
        self.verdicts.pop(uid, None)

    def hangs(self, uid: str) -> bool:
        """Return whether the present pods of a job have been silent so long that it may restart."""
        record = self._records.get(uid)
        if record is None or not record.hangs:
            return False
        return record.created == _newest(self._cluster.pods(uid))

    def suspect(self, uid: str) -> Suspect | None:
        """Return the pod that is the likely cause of a silence, if any."""
        suspect = self._records[uid].suspect
        return suspect if suspect and suspect.times >= _MEASUREMENTS else None

    def _differing(
        self, job: TrainingJob, pods: Collection[Pod], last: Suspect | None
    ) -> Suspect | None:
        """Return the pod that differs most from the pods that do the same work, or None."""
        trains = {type_.lower() for type_ in job.kind.trains}
        alike: dict[str, dict[str, Measured]] = {}
        for pod in pods:
            if pod.replica and (measured := self._uses.of(pod.uid)):
                work = "" if pod.replica.type in trains else pod.replica.type
                alike.setdefault(work, {})[pod.uid] = measured
        for measures in alike.values():
            uses = {uid: measured.use.cores for uid, measured in measures.items()}
            if (odd := stall.odd_pod(uses)) is None:
                continue
            number = measures[odd].number
            if last is not None and last.uid == odd:
                return replace(last, number=number, times=last.times + (number != last.number))
            pod = next(pod for pod in pods if pod.uid == odd)
            used, usual = (cpus(round(1000 * use)) for use in (uses[odd], median(uses.values())))
            words = f"{pod.name} on {pod.node_name} uses {used}, and the median is {usual}"
            return Suspect(odd, pod.node_name, words, number)
        return None

    def _keep(self, job: TrainingJob, start: Start) -> None:
        """Keep the habits of a start that was long, or of a job that has succeeded."""
        lasted = 0.0 if start.stepped is None else start.moved - start.stepped
        if start.stepped is None or not (job.has("Succeeded") or lasted >= stall.EARLY_SECONDS):
            return
        habits = self._habits.setdefault(job.namespace, OrderedDict())
        known, first = habits.pop(job.series, Habits()), start.stepped - start.began
        habits[job.series] = Habits(max(known.silence, start.longest), max(known.first, first))
        if len(habits) > _MOST_SERIES:
            habits.popitem(last=False)


def _is_stalled(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.reason == REASON_STALLED


def _newest(pods: Collection[Pod]) -> float:
    """Return when the newest of the pods was created."""
    return max((pod.created for pod in pods), default=0.0)


def _all_run(job: TrainingJob, pods: Collection[Pod]) -> bool:
    """Return whether all pods of a job exist, and run or have ended."""
    present = [pod for pod in pods if not pod.deleting]
    enough = len(present) >= job.pods and not (job.suspend or job.finished)
    return enough and all(pod.finished or pod.phase == "Running" for pod in present)
