"""The schedule of log reads, and the progress that the logs and posts of jobs show.

`due` returns the logs to read now; `read_lines` and `fail` record the outcome of each read, `post`
records the posts of a program.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kfext import names
from kfext.core.progress.followed import Followed
from kfext.core.progress.posted import MAX_POSTS, PodPosts, Post, Posted
from kfext.core.progress.reported import Reported
from kfext.core.progress.stall import stalled
from kfext.core.settings.table import Settings
from kfext.core.settings.values import AUTO, OFF, PUSH
from kfext.model.backoff import exponential_backoff
from kfext.model.cpu_use import CpuUse
from kfext.model.job import TrainingJob
from kfext.model.log_line import LogLine
from kfext.model.moment import Moment
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.timers import FairQueue, Timers
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.reports.printers import PrintingPods, printing_container, printing_pods
from kfext.state.reports.silences import Silences
from kfext.state.reports.uses import Uses, record_use

OPTED_IN, USUAL, SELDOM = 10.0, 30.0, 300.0
"""Seconds between two reads: of a log of a job that opted in to a policy, of a log of another job,
and of a log that shows nothing or is forbidden to kfext."""
SOON = 3.0
"""Seconds between two reads of a log until two have shown progress; more if over 60 jobs run."""
_FRUITFUL_READS = 2
"""The reads that show progress before a log is read as usual: a single line shows no rate."""
MAX_A_SECOND = 20
"""The most reads that begin in a second."""
_PATIENCE, _SHORT_PATIENCE = 1800.0, 300.0
"""Seconds without progress after which a log is read seldom; the second if over 200 jobs run."""
RESIZED_SECONDS, MEASURED_SECONDS = 15.0, 30.0
"""Seconds between two measurements of CPU: while `resize` may move CPU (as often as metrics-server
measures), and otherwise."""
AWAITED = 2.0
"""Seconds between two reads while a checkpoint is awaited."""
_RETRY_SECONDS = 10.0
"""Seconds until a job without a log to read is checked again."""
_FRUITLESS_READS = 10
"""A log is also read seldom only after this many reads in a row that recognise nothing."""
MAX_PER_NODE = 2
"""The most reads at once from one node: a kubelet that does not answer blocks few reads."""
_MAX_CHECKED = 1000
"""The most jobs that one call of `due` checks: most queued jobs have no log."""


@dataclass(frozen=True, slots=True)
class LogRead:
    """The log of a container, to be read for a job."""

    tracked: TrackedJob
    pod: Pod
    container: str

    @property
    def uid(self) -> str:
        """The uid of the job."""
        return self.tracked.job.uid


class JobsProgress:
    """The progress of the jobs of a cluster. `settings_of` returns the settings of a job.

    `uses`: the CPU that each pod uses. `silences`: the detection of stalled jobs.
    """

    def __init__(self, cluster: Cluster, settings_of: Callable[[TrackedJob], Settings]) -> None:
        self.uses = Uses()
        self.silences = Silences(cluster, self.uses)
        self._cluster = cluster
        self._settings_of = settings_of
        self._alarms = Timers()
        self._known: frozenset[str] = frozenset()
        self._waiting = FairQueue()
        self._followed: dict[str, Followed] = {}
        self._adopted: Mapping[str, Reported] = {}
        self._statuses: dict[str, PodPosts] = {}
        # The posts that preceded the first decision on their job, with their sources and pod.
        self._early: dict[str, tuple[tuple[Post, ...], set[str], str]] = {}
        self._unread = Followed()
        self._printers = PrintingPods(cluster)
        self._read: dict[str, float] = {}  # when each log was last read
        self._awaited: set[str] = set()
        self._reading: dict[str, str] = {}  # the node of each read in progress
        self._at_node: dict[str, list[str]] = {}  # jobs that wait for a read from their node
        self._running: set[str] = set()
        self._soon = SOON
        self._finished: set[str] = set()

    def due(self, now: float, *, most: int) -> list[LogRead]:
        """Return at most `most` logs to read now; `now` is monotonic.

        Namespaces take turns, so that the jobs of a namespace do not delay other namespaces.
        """
        self._enrol(now)
        jobs = self._cluster.jobs
        started = {uid for uid in self._running if not jobs[uid].job.suspend}
        self._soon = max(SOON, len(started) / MAX_A_SECOND)
        for uid in self._alarms.due(now):
            self._waiting.add(self._cluster.jobs[uid].job.namespace, uid)
        chosen: list[LogRead] = []
        nodes = [*self._reading.values()]
        for _ in range(_MAX_CHECKED):
            if len(chosen) >= most or not self._waiting:
                break
            uid = self._waiting.next()
            if uid not in self._cluster.jobs:
                continue
            read = self._read_of(uid)
            if read is None and jobs[uid].job.finished and uid not in self._finished:
                continue  # its last lines were read, or can no longer be read
            if read is None:
                pause = min(_RETRY_SECONDS, self._soon) if uid in started else _RETRY_SECONDS
                self._alarms.set(uid, now + pause)
            elif nodes.count(read.pod.node_name) >= MAX_PER_NODE:
                self._at_node.setdefault(read.pod.node_name, []).append(uid)
            else:
                chosen.append(read)
                nodes.append(read.pod.node_name)
                self._reading[uid] = read.pod.node_name
        return chosen

    def stand_by(self, now: float) -> None:
        """Forget the jobs that are gone, while another controller leads; `now` is monotonic."""
        self._enrol(now)

    def read_lines(self, read: LogRead, lines: Sequence[LogLine], now: Moment) -> None:
        """Record the new lines of a log, in the order printed."""
        followed = self._end(read)
        if followed is None:
            return
        others = (pod for pod in self._cluster.pods(read.uid) if pod.uid != read.pod.uid)
        neighbours = {pod.uid for pod in others if not pod.finished}
        followed.read_lines(lines, now=now, source=read.pod.uid, neighbours=neighbours)
        self._printers.record_read(read.uid, read.pod, shows_progress=not followed.fruitless)
        self._read[read.uid] = now.monotonic
        self.silences.observe(read.tracked, followed, now)
        posts = followed.posts(now.monotonic)
        period = self._period(read.tracked, followed, posts=posts)
        self._alarms.set(read.uid, now.monotonic + period)

    def post(self, uid: str, posted: Posted, now: Moment) -> TrackedJob | None:
        """Record the posts of a program; return its job if they count.

        They count for a job with `push`, from a pod that may be rank 0: any pod may post.
        """
        return self._post(uid, posted.posts, now, sources={PUSH}, pod=posted.pod)

    def post_status(self, uid: str, status: Mapping[str, Any], now: Moment) -> TrackedJob | None:
        """Record the posts of a program that Trainer shows; return its job if they count."""
        if uid not in self._cluster.jobs:
            return None
        posts = self._statuses.setdefault(uid, PodPosts())
        posts.read_status(status)
        new = tuple(posts.posts)
        posts.posts.clear()
        return self._post(uid, new, now, sources={AUTO, PUSH}) if new else None

    def _post(
        self, uid: str, posts: Sequence[Post], now: Moment, *, sources: set[str], pod: str = ""
    ) -> TrackedJob | None:
        """Record posts of `pod`, by default the likeliest rank 0, if they count."""
        tracked = self._cluster.jobs.get(uid)
        if tracked is None or tracked.phase is None:  # not listed yet, or not decided on
            before, _, _ = self._early.get(uid, ((), sources, pod))
            self._early[uid] = (*before, *posts)[-MAX_POSTS:], sources, pod
            return None
        if tracked.job.suspend:
            return None
        if tracked.job.finished and uid not in self._followed:
            return None  # its last progress stays
        source, pods = self._settings_of(tracked).metrics, self._cluster.pods(uid)
        ranked = [printer.uid for printer in printing_pods(tracked.job, pods)]
        pod = pod or next(iter(ranked), "")
        if source.source not in sources or pod not in ranked:
            return None
        neighbours = {other.uid for other in pods if other.uid != pod and not other.finished}
        followed = self._followed.setdefault(uid, Followed(source.pattern))
        followed.add_posts(posts, now=now, source=pod, neighbours=neighbours)
        self.silences.observe(tracked, followed, now)
        return tracked

    def record_early_posts(self, now: Moment) -> list[TrackedJob]:
        """Record the posts that preceded the first decision on their jobs; return the jobs."""
        early, self._early = self._early, {}
        tracked_jobs = [
            self._post(uid, posts, now, sources=sources, pod=pod)
            for uid, (posts, sources, pod) in early.items()
        ]
        return [tracked for tracked in tracked_jobs if tracked is not None]

    def fail(self, read: LogRead, why: Verdict | None, now: Moment) -> None:
        """Record that a log could not be read; None as the reason means that it does not exist yet.

        Each failure in a row doubles the time to the next read.
        """
        followed = self._end(read)
        if followed is None:
            return
        followed.record_failed_read(why)
        pause = _RETRY_SECONDS
        if why is None and read.pod.finished:
            self._printers.record_read(read.uid, read.pod, shows_progress=False)  # never started
        if why is not None:
            pause = exponential_backoff(followed.failures, first=USUAL, longest=SELDOM)
            if read.uid in self._awaited:
                pause = _RETRY_SECONDS
            if why.reason == names.REASON_LOG_FORBIDDEN:
                pause = SELDOM
        self._alarms.set(read.uid, now.monotonic + pause)

    def await_checkpoint(self, uid: str, *, awaited: bool) -> None:
        """Read the log of a job at once and every AWAITED seconds, or as usual again."""
        if not awaited:
            self._awaited.discard(uid)
        elif uid in self._known and uid not in self._awaited:
            self._awaited.add(uid)
            if uid in self._alarms:  # else the log is being read, or about to be read
                self._alarms.set(uid, 0.0)

    def followed(self, uid: str) -> Followed:
        """Return the state of the log of a job; it is empty for a log that is not read."""
        return self._followed.get(uid, self._unread)

    def last_read(self, uid: str) -> float | None:
        """Return when the log of a job was last read, in monotonic seconds, or None."""
        return self._read.get(uid)

    def printer(self, uid: str) -> Pod | None:
        """Return the running pod that prints the progress of a job, if any."""
        tracked = self._cluster.jobs.get(uid)
        return self._printers.live(tracked.job) if tracked else None

    def reported(self, uid: str) -> Reported | None:
        """Return the progress to show for a job, or None for a job with no log that is read."""
        followed = self._followed.get(uid)
        return followed.reported() if followed else self._adopted.get(uid)

    def adopt(self, shown: Mapping[str, Reported]) -> None:
        """Adopt the progress that TrainingPlans show, by uid, in a process that reads no log."""
        self._adopted = shown

    def reports(self) -> Iterator[tuple[TrainingJob, Reported]]:
        """Yield the jobs with known progress, and the progress to show."""
        for uid, followed in self._followed.items():
            if followed.recognised and uid in self._cluster.jobs:
                yield self._cluster.jobs[uid].job, followed.reported()

    @property
    def stalled(self) -> int:
        """The number of stalled jobs that still run."""
        uids = [uid for uid, followed in self._followed.items() if stalled(followed.moves)]
        jobs = [self._cluster.jobs[uid].job for uid in uids if uid in self._cluster.jobs]
        return sum(not (job.suspend or job.finished) for job in jobs)

    def running(self) -> list[Pod]:
        """Return the running pods of jobs with a log that is read; their use of CPU is measured."""
        pods = (pod for uid in self._followed for pod in self._cluster.pods(uid))
        return [pod for pod in pods if pod.phase == "Running"]

    def shared_nodes(self) -> set[str]:
        """Return the nodes where `resize` may move CPU; their use of CPU is measured."""
        jobs = ((uid, self._cluster.jobs.get(uid)) for uid in self._followed)
        resized = [
            uid for uid, tracked in jobs if tracked and self._settings_of(tracked).resize != OFF
        ]
        pods = (pod for uid in resized for pod in self._cluster.pods(uid))
        return {pod.node_name for pod in pods if pod.phase == "Running"}

    @property
    def measure_seconds(self) -> float:
        """The seconds until the next measurement of CPU."""
        return RESIZED_SECONDS if self.shared_nodes() else MEASURED_SECONDS

    def record_measurements(
        self, pods: Mapping[str, CpuUse | Verdict], nodes: Mapping[str, CpuUse] | None = None
    ) -> None:
        """Record the use of pods by uid, or why it is unknown, and of nodes by name."""
        self.uses.record(pods, nodes)
        for uid, followed in self._followed.items():
            record_use(followed, self._cluster.pods(uid), pods, ledger=self._cluster.ledger)

    def _enrol(self, now: float) -> None:
        """Schedule reads for new jobs and jobs that just finished; forget jobs that are gone.

        The last lines are read at once, because the operator may delete the pods. They are the only
        read of a job that ended between two reads.
        """
        present = self._cluster.jobs.keys()
        for uid in present - self._known:
            self._alarms.set(uid, now)
            if not self._cluster.jobs[uid].job.finished:
                self._running.add(uid)
        memories = (self._followed, self._statuses, self._early, self._reading, self._read)
        for uid in self._known.union(*memories) - present:
            for memory in memories:
                memory.pop(uid, None)
            self._printers.forget(uid)
            self._awaited.discard(uid)
            self._running.discard(uid)
            self._finished.discard(uid)
            self._alarms.forget(uid)
        self._known = frozenset(present)
        for uid in [uid for uid in self._running if self._cluster.jobs[uid].job.finished]:
            if uid in self._alarms:
                self._running.discard(uid)
                self._finished.add(uid)
                self._alarms.set(uid, now)

    def _read_of(self, uid: str) -> LogRead | None:
        """Return the log to read for a job, if any."""
        tracked = self._cluster.jobs[uid]
        if tracked.job.suspend:
            return None
        source, finished = self._settings_of(tracked).metrics, tracked.job.finished
        followed = self._followed.get(uid)
        pod = self._printers.next(tracked.job, fruitless=followed.fruitless if followed else 0)
        if tracked.phase is None or not source.is_log or (finished and pod is None):
            if self._followed.pop(uid, None) is not None:
                self._finished.discard(uid)  # the last lines were read
            return None
        ended_before = finished and uid not in self._finished
        if pod is None or (followed is None and ended_before):
            return None
        if followed is None or followed.expression != source.pattern:
            self._followed[uid] = Followed(source.pattern)
        return LogRead(tracked, pod, printing_container(tracked.job, pod))

    def _end(self, read: LogRead) -> Followed | None:
        """Record that a read has ended; return the progress of its job, unless the job is gone.

        Jobs that waited for the node stay ahead of the other jobs of their namespaces.
        """
        self._reading.pop(read.uid, None)
        for uid in reversed(self._at_node.pop(read.pod.node_name, [])):
            if uid in self._cluster.jobs:
                self._waiting.add_first(self._cluster.jobs[uid].job.namespace, uid)
        return self._followed.get(read.uid) if read.uid in self._cluster.jobs else None

    def _period(self, tracked: TrackedJob, followed: Followed, *, posts: bool) -> float:
        """Return the seconds to the next read, which after `posts` only seeks checkpoints."""
        if tracked.job.uid in self._awaited:
            return AWAITED
        settings = self._settings_of(tracked)
        saves = settings.asks_to_save
        if posts and not saves:
            return SELDOM
        usual = OPTED_IN if saves or settings.resize != OFF else USUAL
        if posts or followed.fruitful >= _FRUITFUL_READS:
            return usual
        patience = _PATIENCE if self._soon <= _RETRY_SECONDS else _SHORT_PATIENCE
        if followed.fruitless >= _FRUITLESS_READS and followed.silent >= patience:
            return usual if followed.fruitful or followed.checkpoints.shown else SELDOM
        return min(usual, self._soon)
