"""The running jobs that are stalled, by the reads of their logs and by their posts.

A job is judged only after a read of its log, so a log that cannot be read makes no job stalled. The
history of a series is in memory: a new controller has the patience of a new series.
"""

from collections import OrderedDict
from collections.abc import Collection
from statistics import median

from kfext.core.progress import stall
from kfext.core.progress.followed import Followed
from kfext.core.progress.stall import Habits, Start, Suspect
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

_MAX_SERIES = 256
"""The most series of a namespace with a history; the series with the last ended starts remain."""
_LATE_SECONDS = 300.0
"""A start is late if its log is first read later than this: a slow pull, or a new controller."""


class Silences:
    """Judges the silences of the jobs of a cluster."""

    def __init__(self, cluster: Cluster, uses: Uses) -> None:
        self._cluster = cluster
        self._uses = uses
        self._habits: dict[str, OrderedDict[str, Habits]] = {}

    def observe(self, tracked: TrackedJob, followed: Followed, now: Moment) -> None:
        """Judge a job after a read of its log, or after a post."""
        job, pods, read = tracked.job, self._cluster.pods(tracked.job.uid), now.monotonic
        moved, steps = followed.moved, followed.steps
        followed.moved = followed.steps = False
        created, start = _newest_creation(job, pods), followed.start
        if start is not None and created != start.created:
            self._record_habits(job, start)
            followed.start, followed.judged, start = None, stall.MOVES, None
        if created is None:
            return
        changed = past(tracked.state.scale.changed_at, now=now.wall)
        settles = now.wall - changed < stall.SETTLED_SECONDS
        if start is None:  # the lines of the first read may be old
            start = followed.start = Start(read, read, read, created=created, at=now.wall)
            start.late = now.wall - created > _LATE_SECONDS
        elif moved or settles:
            start.at, start.suspect = now.wall, None
            start.hangs = start.inherited = False
            followed.judged = stall.MOVES
        if created - min((pod.created for pod in pods), default=0.0) > stall.SETTLED_SECONDS:
            # The older pods continue to train until they notice the new pod.
            steps &= read - start.began >= stall.SETTLED_SECONDS
        start.observe(read, moved=moved, steps=steps)
        if settles:
            start.moved = read
        elif not moved:
            self._judge(job, start, pods, followed)

    def _judge(
        self, job: TrainingJob, start: Start, pods: Collection[Pod], followed: Followed
    ) -> None:
        """Judge a job after a read without a sign of life."""
        known = self._habits.get(job.namespace, OrderedDict()).get(job.series, Habits())
        report_limit, restart_limit = (
            start.limit(rule, known, saving=followed.life.saving)
            for rule in (stall.REPORT, stall.RESTART)
        )
        if start.silent > report_limit / 2:
            start.suspect = self._differing(job, pods, start.suspect)
        start.hangs = start.silent > restart_limit
        if start.silent > report_limit and not start.inherited:
            pause = f"its longest pause before was {start.longest:.0f} s"
            clauses = [
                f"no counter of its log has moved since {clock(start.at)}",
                pause if start.stepped is not None else "it has shown no step since its start",
                "" if followed.course.step is None else f"its last step is {followed.course.step}",
                start.cause.words if start.cause else "",
            ]
            followed.judged = Verdict(REASON_STALLED, "; ".join(filter(None, clauses)))

    def inherit(self, followed: Followed, shown: Verdict | None, *, since: float) -> None:
        """Continue a stall that an earlier controller has shown, until a counter moves.

        `since`: when it was first shown, in epoch seconds. If a pod was created later, it is over.
        """
        start = followed.start
        if followed.judged is None and start is not None and stall.stalled(shown):
            start.inherited = start.created <= since
            followed.judged = shown if start.inherited else stall.MOVES

    def hangs(self, job: TrainingJob, followed: Followed) -> bool:
        """Return whether the present pods of a job were silent long enough to restart the job."""
        start, created = followed.start, _newest_creation(job, self._cluster.pods(job.uid))
        return start is not None and start.hangs and start.created == created

    def _differing(
        self, job: TrainingJob, pods: Collection[Pod], last: Suspect | None
    ) -> Suspect | None:
        """Return the pod that differs most from the pods that do the same work, or None."""
        trains = {type_.lower() for type_ in job.kind.training_types}
        alike: dict[str, dict[str, Measured]] = {}
        for pod in pods:
            if pod.replica and (measured := self._uses.use_of(pod.uid)):
                work = "" if pod.replica.type in trains else pod.replica.type
                alike.setdefault(work, {})[pod.uid] = measured
        for measures in alike.values():
            uses = {uid: measured.use.cores for uid, measured in measures.items()}
            if (odd := stall.odd_pod(uses)) is None:
                continue
            number = measures[odd].number
            if last is not None and last.uid == odd:
                times = last.times + (number != last.number)
                return last._replace(number=number, times=times)
            pod = next(pod for pod in pods if pod.uid == odd)
            used, usual = (cpus(round(1000 * use)) for use in (uses[odd], median(uses.values())))
            words = f"{pod.name} on {pod.node_name} uses {used}, and the median is {usual}"
            return Suspect(odd, pod.node_name, words, number)
        return None

    def _record_habits(self, job: TrainingJob, start: Start) -> None:
        """Record the habits of a start that was long, or of a job that has succeeded."""
        lasted = 0.0 if start.stepped is None else start.moved - start.stepped
        if start.stepped is None or not (job.has("Succeeded") or lasted >= stall.EARLY_SECONDS):
            return
        habits = self._habits.setdefault(job.namespace, OrderedDict())
        known = habits.pop(job.series, Habits())
        habits[job.series] = Habits(*map(max, known, (start.longest, start.first, lasted)))
        if len(habits) > _MAX_SERIES:
            habits.popitem(last=False)


def _newest_creation(job: TrainingJob, pods: Collection[Pod]) -> float | None:
    """Return when the newest pod of a job was created, or None before all its pods run."""
    present = [pod for pod in pods if not pod.deleting]
    enough = len(present) >= job.pods and not (job.suspend or job.finished)
    runs = enough and all(pod.finished or pod.phase == "Running" for pod in present)
    return max((pod.created for pod in pods), default=0.0) if runs else None
