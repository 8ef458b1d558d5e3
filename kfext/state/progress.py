"""Which logs are read when, and the progress of the jobs that follows from them.

It is pulled: `due` returns the logs to read now, `take` and `fail` take in what came of each.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kfext import names
from kfext.core.progress.checkpoints import Checkpoints
from kfext.core.progress.followed import Followed
from kfext.core.progress.reported import Reported
from kfext.core.settings.table import Settings
from kfext.core.settings.values import NEVER, OFF
from kfext.model.backoff import exponential_backoff
from kfext.model.cpu_use import CpuUse
from kfext.model.job import TrainingJob
from kfext.model.log_line import LogLine
from kfext.model.moment import Moment
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.state.cluster import Cluster
from kfext.state.printers import Printers
from kfext.state.tracked_job import TrackedJob
from kfext.state.turns import Alarms, Turns
from kfext.state.uses import Uses, note_use

OPTED_IN, USUAL, SELDOM = 10.0, 30.0, 300.0
"""Seconds between two reads: of a job with an opted-in policy, of others, and of those in whose log
nothing is recognised, or may be read."""
AWAITED = 2.0
"""The same while a checkpoint is awaited."""
_LOOK_AGAIN = 10.0
_FRUITLESS = 10
"""Reads in a row that recognise nothing, after which a log is read seldom."""
MOST_PER_NODE = 2
"""Reads at once from one node, so that few wait for a kubelet that does not answer."""
_MOST_LOOKED = 1000
"""Jobs that are looked at for one answer: most of those that wait in the queue have no log."""


@dataclass(frozen=True, slots=True)
class LogRead:
    """A log that is to be read: of a container of a pod of a job."""

    tracked: TrackedJob
    pod: Pod
    container: str

    @property
    def uid(self) -> str:
        """The uid of the job."""
        return self.tracked.job.uid


class JobsProgress:
    """The progress of the jobs of a cluster. `settings_of` returns what holds for a job.

    `uses`: the CPU that each pod uses.
    """

    def __init__(self, cluster: Cluster, settings_of: Callable[[TrackedJob], Settings]) -> None:
        self.uses = Uses()
        self._cluster = cluster
        self._settings_of = settings_of
        self._alarms = Alarms()
        self._known: frozenset[str] = frozenset()
        self._waiting = Turns()
        self._followed: dict[str, Followed] = {}
        self._unread = Followed()
        self._printers = Printers(cluster)
        self._read: dict[str, float] = {}
        self._awaited: set[str] = set()
        self._reading: dict[str, str] = {}
        self._at_node: dict[str, list[str]] = {}
        self._running: set[str] = set()
        self._finished: set[str] = set()

    def due(self, now: float, *, most: int) -> list[LogRead]:
        """Return at most `most` logs to read now; `now` is monotonic.

        Namespaces take turns, so that the jobs of one do not keep those of others from being read.
        """
        self._enrol(now)
        for uid in self._alarms.due(now):
            self._waiting.add(self._cluster.jobs[uid].job.namespace, uid)
        chosen: list[LogRead] = []
        nodes = [*self._reading.values()]
        for _ in range(_MOST_LOOKED):
            if len(chosen) >= most or not self._waiting:
                break
            uid = self._waiting.next()
            if uid not in self._cluster.jobs:
                continue
            read = self._read_of(uid)
            if read is None:
                self._alarms.set(uid, now + _LOOK_AGAIN)
            elif nodes.count(read.pod.node_name) >= MOST_PER_NODE:
                self._at_node.setdefault(read.pod.node_name, []).append(uid)
            else:
                chosen.append(read)
                nodes.append(read.pod.node_name)
                self._reading[uid] = read.pod.node_name
        return chosen

    def take(self, read: LogRead, lines: Sequence[LogLine], now: Moment) -> None:
        """Take in the lines that are new in a log, in the order printed."""
        followed = self._end(read)
        if followed is None:
            return
        others = (pod for pod in self._cluster.pods(read.uid) if pod.uid != read.pod.uid)
        beside = {pod.uid for pod in others if not pod.finished}
        followed.take(lines, now=now, source=read.pod.uid, beside=beside)
        self._printers.read(read.uid, read.pod, shown=not followed.fruitless)
        self._read[read.uid] = now.monotonic
        self._alarms.set(read.uid, now.monotonic + self._period(read.tracked, followed))

    def fail(self, read: LogRead, why: Verdict | None, now: Moment) -> None:
        """Take in that a log could not be read, without a reason if it does not exist yet.

        Each failure in a row doubles the time to the next read.
        """
        followed = self._end(read)
        if followed is None:
            return
        pause = _LOOK_AGAIN
        if why is not None:
            followed.fail(why)
            pause = exponential_backoff(followed.failures, first=USUAL, longest=SELDOM)
            if read.uid in self._awaited:
                pause = _LOOK_AGAIN
            if why.reason == names.REASON_LOG_FORBIDDEN:
                pause = SELDOM
        self._alarms.set(read.uid, now.monotonic + pause)

    def await_checkpoint(self, uid: str, *, awaited: bool) -> None:
        """Have the log of a job read at once and every AWAITED seconds, or as usual again."""
        if not awaited:
            self._awaited.discard(uid)
        elif uid in self._known and uid not in self._awaited:
            self._awaited.add(uid)
            if uid in self._alarms:  # else it is being read, or about to be
                self._alarms.set(uid, 0.0)

    def checkpoints(self, uid: str) -> Checkpoints:
        """Return what the log of a job has shown of checkpoints."""
        return self._of(uid).checkpoints

    def restarts(self, uid: str) -> int:
        """Return how often the steps of a job went back."""
        return self._of(uid).restarts

    def pause(self, uid: str) -> float:
        """Return the longest time between two lines with progress, in seconds; 0.0 if unknown."""
        return self._of(uid).pause

    def resumed(self, uid: str, *, since: float, after: float) -> float | None:
        """Return when the steps of a job went on after its longest silence; see Course."""
        return self._of(uid).resumed(since=since, after=after)

    def last_read(self, uid: str) -> float | None:
        """Return when the log of a job was last read, in monotonic seconds; None: never."""
        return self._read.get(uid)

    def printer(self, uid: str) -> Pod | None:
        """Return the running pod whose log showed progress last, else rank 0; None without any."""
        tracked = self._cluster.jobs.get(uid)
        return self._printers.live(tracked.job) if tracked else None

    def _of(self, uid: str) -> Followed:
        return self._followed.get(uid, self._unread)

    def reported(self, uid: str) -> Reported | None:
        """Return what to show of a job, None if its log is not read."""
        followed = self._followed.get(uid)
        return followed.reported() if followed else None

    def reports(self) -> Iterator[tuple[TrainingJob, Reported]]:
        """Yield the jobs of which anything is known, with what to show of them."""
        for uid, followed in self._followed.items():
            if followed.recognised and uid in self._cluster.jobs:
                yield self._cluster.jobs[uid].job, followed.reported()

    def running(self) -> list[Pod]:
        """Return the pods that run of the jobs whose log is read, for their use of CPU."""
        pods = (pod for uid in self._followed for pod in self._cluster.pods(uid))
        return [pod for pod in pods if pod.phase == "Running"]

    def shared_nodes(self) -> set[str]:
        """Return the nodes on which CPU is to be moved between jobs, for their use of CPU."""
        jobs = ((uid, self._cluster.jobs.get(uid)) for uid in self._followed)
        resized = [uid for uid, one in jobs if one and self._settings_of(one).resize != OFF]
        pods = (pod for uid in resized for pod in self._cluster.pods(uid))
        return {pod.node_name for pod in pods if pod.phase == "Running"}

    def measured(
        self, found: Mapping[str, CpuUse | Verdict], nodes: Mapping[str, CpuUse] | None = None
    ) -> None:
        """Take in what pods use, by uid, or why that is not known; and nodes, by name."""
        self.uses.take(found, nodes)
        for uid, followed in self._followed.items():
            note_use(followed, self._cluster.pods(uid), found, ledger=self._cluster.ledger)

    def _enrol(self, now: float) -> None:
        """Have new jobs looked at, and those that have just finished; forget those that are gone.

        The last lines are read at once, as the operator may delete the pods. They are all that is
        read of a job that was over between two looks.
        """
        present = self._cluster.jobs.keys()
        for uid in present - self._known:
            self._alarms.set(uid, now)
            if not self._cluster.jobs[uid].job.finished:
                self._running.add(uid)
        for uid in self._known - present:
            for memory in (self._followed, self._reading, self._read):
                memory.pop(uid, None)
            self._printers.forget(uid)
            self._awaited.discard(uid)
            self._running.discard(uid)
            self._finished.discard(uid)
            self._alarms.forget(uid)
        self._known = frozenset(present)
        for uid in [one for one in self._running if self._cluster.jobs[one].job.finished]:
            if uid in self._alarms:
                self._running.discard(uid)
                self._finished.add(uid)
                self._alarms.set(uid, now)

    def _read_of(self, uid: str) -> LogRead | None:
        """Return the log of a job that is to be read, None if there is none."""
        tracked = self._cluster.jobs[uid]
        if tracked.job.suspend:
            return None
        source, finished = self._settings_of(tracked).metrics, tracked.job.finished
        followed = self._followed.get(uid)
        pod = self._printers.next(tracked.job, fruitless=followed.fruitless if followed else 0)
        if tracked.phase is None or not source.is_log or (finished and pod is None):
            if self._followed.pop(uid, None) is not None:
                self._finished.discard(uid)  # its last lines were read
            return None
        ended_before = finished and uid not in self._finished
        if pod is None or (followed is None and ended_before):
            return None
        if followed is None or followed.expression != source.pattern:
            self._followed[uid] = Followed(source.pattern)
        return LogRead(tracked, pod, tracked.job.kind.container)

    def _end(self, read: LogRead) -> Followed | None:
        """Take in that a read has ended; return the job that it is of, None if it is gone.

        Those that waited for the node keep their place before the others of their namespaces.
        """
        self._reading.pop(read.uid, None)
        for uid in reversed(self._at_node.pop(read.pod.node_name, [])):
            if uid in self._cluster.jobs:
                self._waiting.add_first(self._cluster.jobs[uid].job.namespace, uid)
        return self._followed.get(read.uid)

    def _period(self, tracked: TrackedJob, followed: Followed) -> float:
        if tracked.job.uid in self._awaited:
            return AWAITED
        shown = followed.recognised or followed.checkpoints.shown
        if not shown and followed.fruitless >= _FRUITLESS:
            return SELDOM
        settings = self._settings_of(tracked)
        opted_in = settings.resize != OFF or settings.migrate != NEVER or settings.elastic
        return OPTED_IN if opted_in else USUAL
