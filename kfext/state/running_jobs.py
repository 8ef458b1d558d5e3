"""The jobs that the companion follows, the signals that policies see, and the news to show."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from kfext import names
from kfext.core import words
from kfext.core.companion.operation import Phase
from kfext.core.companion.policy import Shown
from kfext.core.companion.proposal import Cause, Workers
from kfext.core.companion.registry import chosen_policies
from kfext.core.companion.restoring import Owner, asked_of, is_resized, owner_of
from kfext.core.companion.scale import SCALE, Sizes, sizes_of, workers_proposal
from kfext.core.companion.signals import JobSignal, NodeSignal, PodSignal, Signals
from kfext.core.companion.stand_down import why_no_resize, why_unread
from kfext.core.elastic import asked_workers, workers_of
from kfext.core.ledger.claims import pod_key, shifted_key
from kfext.core.progress.reported import GrowthState, Reported
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Range
from kfext.model.cpu_size import TrainerCpu
from kfext.model.cpu_state import CpuState
from kfext.model.moment import Moment
from kfext.model.pod import Pod
from kfext.model.policy import PolicyChoice
from kfext.model.quantity import CPU
from kfext.model.timestamps import past
from kfext.model.verdict import Verdict
from kfext.state.cluster import Cluster
from kfext.state.progress import JobsProgress
from kfext.state.running_job import (
    CpuRecord,
    RunningJob,
    all_measured,
    all_running,
    cpu_record,
    has_kfext_size,
    is_edited,
    is_whole,
    live_pods,
    size_record,
)
from kfext.state.tracked_job import Failures, TrackedJob
from kfext.state.uses import Uses

STEP_SECONDS = 120.0
"""The longest time to the first step at a new size; longer for a job that prints seldom."""
ADOPT_SECONDS = 600.0
"""A new controller follows a change that is younger than this to its end."""

News = tuple[TrackedJob, str, Shown | None]
"""A job, the type of a changed condition, and what to show; None: the condition is gone."""
_Jobs = dict[str, RunningJob]


class ShownJobs:
    """The conditions of jobs that are to be shown anew."""

    def __init__(self) -> None:
        self._news: dict[tuple[str, str], News] = {}
        self._hidden: dict[str, set[str]] = {}

    def show(self, job: RunningJob, type_: str, shown: Shown | None) -> None:
        """Set what a condition of a job is to show; None removes the condition."""
        if shown != job.shown.get(type_):
            job.shown[type_] = shown
            self._news[job.uid, type_] = job.tracked, type_, shown

    def hide(self, tracked: TrackedJob, type_: str) -> None:
        """Remove a condition of a job that an earlier controller may have shown."""
        self._news[tracked.job.uid, type_] = tracked, type_, None

    def follow(
        self, type_: str, followed: Collection[str], among: Mapping[str, TrackedJob]
    ) -> None:
        """Record the uids of the followed jobs, and hide the condition of other jobs once."""
        others = {uid for uid, tracked in among.items() if not tracked.busy}.difference(followed)
        for uid in others - self._hidden.get(type_, set()):
            self.hide(among[uid], type_)
        self._hidden[type_] = others

    def news(self) -> list[News]:
        """Return the news since the last call."""
        news, self._news = self._news, {}
        return list(news.values())


class RunningJobs:
    """The jobs that run, by uid: `resized` are followed for their CPU, `scaled` for their size.

    `shown` keeps the conditions to show.
    `settings_of` returns the settings of a job.
    `paused` returns whether nothing is tried on the CPU of a job for now.
    `adopted` is called with a job when a change by an earlier controller is adopted.
    """

    def __init__(
        self,
        cluster: Cluster,
        progress: JobsProgress,
        settings_of: Callable[[TrackedJob], Settings],
    ) -> None:
        self.resized: _Jobs = {}
        self.scaled: _Jobs = {}
        self.shown = ShownJobs()
        self.failures = Failures()
        self.paused: Callable[[RunningJob, float], bool] = lambda job, now: False
        self.adopted: Callable[[RunningJob, Moment], None] = lambda job, now: None
        self._cluster = cluster
        self._progress = progress
        self._settings_of = settings_of
        self._beside: dict[str, frozenset[str]] = {}

    def pods(self, job: RunningJob) -> tuple[Pod, ...]:
        """Return the pods of a job that have not ended and are not about to end."""
        return live_pods(self._cluster.pods(job.uid))

    @property
    def any_rescaled(self) -> bool:
        """Whether the size of a job is being changed."""
        return any(job.size.operation is not None for job in self.scaled.values())

    def any_moves(self, at: float) -> bool:
        """Return whether pods come or go for a change, or a job is on trial; `at` is monotonic.

        A job that is slow to make its first step at a new size, or prints seldom, does not count.
        """
        return any(
            operation.phase is not Phase.MEASURING or at - operation.since < STEP_SECONDS
            for job in self.scaled.values()
            if (operation := job.size.operation) is not None
        )

    # --- which jobs are followed ----------------------------------------------------------------

    def enrol_cpu(self, now: Moment) -> None:
        """Follow the CPU of jobs that opted in, or that have limits of kfext."""
        before = self.resized
        self.resized = self._enrolled(names.RESIZED, before, self._with_cpu, now)
        for uid in before.keys() - self.resized.keys():
            before[uid].cpu = CpuRecord()

    def enrol_sizes(self, now: Moment) -> None:
        """Follow the size of jobs that opted in, and of jobs that kfext gave another size.

        A job that opted out after a person edited the size that kfext gave it is followed too, so
        that its state forgets the size.
        """
        before = self.scaled
        self.scaled = self._enrolled(names.SCALED, before, self._with_size, now)
        for uid in before.keys() - self.scaled.keys():
            self._progress.await_checkpoint(uid, awaited=False)
            before[uid].size.end(at=now.monotonic)

    def _enrolled(
        self,
        type_: str,
        before: _Jobs,
        followed: Callable[[TrackedJob, RunningJob | None, Moment], RunningJob | None],
        now: Moment,
    ) -> _Jobs:
        """Return the jobs that are followed now; a job stays as it was if kfext fails on it."""
        jobs = {}
        for uid, tracked in self._cluster.jobs.items():
            job = before.get(uid)
            with self.failures.about(tracked):
                job = followed(tracked, job, now)
            if job is not None:
                jobs[uid] = job
        self.shown.follow(type_, jobs, self._cluster.jobs)
        return jobs

    def _with_cpu(
        self, tracked: TrackedJob, running: RunningJob | None, now: Moment
    ) -> RunningJob | None:
        job = tracked.job
        if job.finished or job.suspend or job.deleting:
            return None
        chosen = self._policies(tracked)
        if tracked.state.cpu == CpuState() and not chosen.keys() - {SCALE.name}:
            return None
        if running is None:
            running = self.scaled.get(job.uid) or RunningJob(tracked)
            running.shown.pop(names.RESIZED, None)
            running.cpu = cpu_record(tracked.state.cpu, now.monotonic)
        running.chosen = chosen
        return running

    def _with_size(
        self, tracked: TrackedJob, running: RunningJob | None, now: Moment
    ) -> RunningJob | None:
        job = tracked.job
        if job.finished or job.deleting or job.released:
            return None
        chosen = self._policies(tracked)
        changes = has_kfext_size(tracked) or (
            running is not None and running.size.operation is not None
        )
        edited = is_edited(tracked) and self.has_opted_out(tracked)
        marked = bool(tracked.state.scale.rests) or edited
        if SCALE.name not in chosen and not (changes or marked):
            return None
        if running is None:
            running = self.resized.get(job.uid) or RunningJob(tracked)
            self._meet(running, now)
        running.chosen = chosen
        return running

    def _policies(self, tracked: TrackedJob) -> dict[str, PolicyChoice]:
        """Return the policies that may visit a job."""
        if tracked.phase is None or tracked.job.released:
            return {}
        return chosen_policies(self._settings_of(tracked))

    # --- their sizes ----------------------------------------------------------------------------

    def sizes_of(self, tracked: TrackedJob) -> Sizes:
        """Return how many workers a job has and may have; a job without opt-in keeps its number."""
        asked = asked_workers(tracked.job, tracked.state)
        elastic = self._settings_of(tracked).elastic or Range(asked, asked)
        return sizes_of(tracked.job, elastic, asked=asked)

    def has_opted_out(self, tracked: TrackedJob) -> bool:
        """Return whether a job has opted out of scaling, whatever the mode of the policy."""
        return self._settings_of(tracked).elastic is None

    def adopt(self, job: RunningJob, now: Moment) -> None:
        """Follow a change that was written without an answer to this controller."""
        size, state, present = job.size, job.tracked.state.scale, workers_of(job.tracked.job)
        size.sizes = replace(size.sizes, now=state.before or present)
        cause = Cause(state.cause) if state.cause in tuple(Cause) else Cause.REGROW
        why = f"{words.workers(size.sizes.now)} become {present}"
        change = Workers(cause, present)
        proposal = workers_proposal(job.uid, change, why)
        size.begin(proposal, change, Phase.SETTLING, at=now.monotonic)
        size.expected, size.settled_at = present, now.monotonic
        size.changed_at = state.changed_at
        self.adopted(job, now)

    def _meet(self, job: RunningJob, now: Moment) -> None:
        """Begin to follow the size of a job; a change of an earlier controller goes on.

        The change does not go on if a person edited the job while no controller ran.
        """
        tracked = job.tracked
        self.shown.hide(tracked, names.SCALED)  # until kfext knows what to show
        job.shown.pop(names.SCALED, None)
        job.size = size_record(tracked, self.sizes_of(tracked))
        job.size.starts = not all_running(tracked, self._cluster.pods(job.uid))
        state = tracked.state.scale
        if is_edited(tracked):
            job.size.expected = tracked.state.admitted
        elif state.cause and now.wall - past(state.changed_at, now=now.wall) < ADOPT_SECONDS:
            self.adopt(job, now)

    def size_signals(self) -> Signals:
        """Return the signals that arbitration needs of jobs that may change their size."""
        signals = []
        for job in self.scaled.values():
            rests = frozenset({SCALE.name} if job.tracked.state.scale.rests else ())
            signal = JobSignal(job.uid, policies=job.chosen, rests=rests, in_flight=job.in_flight)
            signals.append(signal)
        return Signals({}, tuple(signals))

    # --- the signals of their CPU ---------------------------------------------------------------

    def signals(self, now: float) -> tuple[Signals, set[str]]:
        """Return the signals of all running jobs, and the uids of jobs with a window that ended.

        A job is left out if kfext fails on it.
        """
        jobs: list[JobSignal] = []
        ended = set()
        for uid, job in self.resized.items():
            with self.failures.about(job.tracked):
                signal, has_ended = self._signal(job, now)
                if has_ended:
                    ended.add(uid)
                if signal.pods:
                    jobs.append(signal)
                elif job.cpu_policies and job.cpu.unfit:
                    unfit = Verdict(names.REASON_STANDS_DOWN, job.cpu.unfit)
                    self.shown.show(job, names.RESIZED, Shown(holds=False, verdict=unfit))
        running = self._progress.running()
        signals = signals_of(self._cluster, jobs, self._progress.uses, measured=running)
        restricted = any(is_resized(job, signals) for job in signals.jobs)
        self._beside = {
            job.uid: frozenset(pod.uid for pod in job.pods) for job in signals.jobs if restricted
        }
        return signals, ended

    def any_has_left(self) -> bool:
        """Return whether a pod has ended beside restricted pods, which may get its CPU."""
        return any(
            not pods.issubset(pod.uid for pod in live_pods(self._cluster.pods(uid)))
            for uid, pods in self._beside.items()
        )

    def _signal(self, job: RunningJob, now: float) -> tuple[JobSignal, bool]:
        """Return the signal of a job, and whether its window has ended."""
        tracked, cpu, uses = job.tracked, job.cpu, self._progress.uses
        pods, reported = self._cluster.pods(job.uid), self._progress.reported(job.uid)
        cpu.unfit = why_no_resize(tracked.job, live_pods(pods), tracked.state.cpu)
        for pod in live_pods(pods):
            if (measured := uses.of(pod.uid)) is not None:
                cpu.work.measure(pod.uid, measured.use)
        if reported is not None:
            cpu.work.take(reported.progress)
        if is_whole(tracked, pods) and all_measured(pods, uses):
            cpu.measured_at = now
        rest, source = cpu.left(reported, now), self._settings_of(tracked).metrics
        cpu.unread = why_unread(reported, source=source, left=rest)
        signal = job_signal(
            job,
            pods,
            reported,
            uses,
            in_flight=self._in_flight(job, pods, now),
            settling=cpu.operation is not None and cpu.operation.is_set,
            left=rest,
        )
        if reported is None:
            return signal, False
        return signal, cpu.history.take(reported.progress, signal.use, now=now)

    def _in_flight(self, job: RunningJob, pods: tuple[Pod, ...], now: float) -> bool:
        """Return whether a job has to wait for a write, a kubelet, a pod or another size."""
        return (
            job.tracked.busy
            or job.size.operation is not None
            or (job.cpu.operation is not None and not job.cpu.operation.is_set)
            or self.paused(job, now)
            or not is_whole(job.tracked, pods)
            or not all_measured(pods, self._progress.uses)
        )


def signals_of(
    cluster: Cluster, jobs: Iterable[JobSignal], uses: Uses, *, measured: Iterable[Pod]
) -> Signals:
    """Return the signals of jobs, except jobs with a pod on an unknown node.

    `measured`: pods that may have a known use. Other pods on a node count with their requests,
    which they can claim against the jobs, or with their use if the use of the node shows less.
    """
    signals = tuple(jobs)
    nodes = {pod.node for job in signals for pod in job.pods}
    uids = {pod.uid for job in signals for pod in job.pods}
    job_use = dict.fromkeys(nodes, 0)
    for signal in (pod for job in signals for pod in job.pods):
        job_use[signal.node] += signal.use or 0
    others = dict.fromkeys(nodes, 0)
    counted = {pod_key(uid) for uid in uids}
    counted |= {shifted_key(job.uid, pod.node) for job in signals for pod in job.pods}
    for pod in measured:
        use = uses.of(pod.uid)
        if use is not None and pod.node_name in nodes and pod.uid not in uids:
            others[pod.node_name] += use.millicores
            counted.add(pod_key(pod.uid))
    for name in nodes:
        claims = cluster.ledger.claims_on([name], ignoring=counted)
        rest = sum(claim.requests.get(CPU, 0) for claim in claims)
        all_use = uses.of_node(name)
        if all_use is not None:
            rest = min(rest, max(0, all_use - others[name] - job_use[name]))
        others[name] += rest
    node_signals = {
        name: NodeSignal(allocatable=node.allocatable.get(CPU, 0), others=others[name])
        for name in nodes
        if (node := cluster.ledger.node(name)) is not None
    }
    followed = (job for job in signals if set(job.nodes) <= node_signals.keys())
    return Signals(node_signals, tuple(followed))


def job_signal(
    job: RunningJob,
    pods: tuple[Pod, ...],
    reported: Reported | None,
    uses: Uses,
    *,
    in_flight: bool,
    settling: bool = False,
    left: float | None = None,
) -> JobSignal:
    """Return the signal of a job with the given pods. No policy visits an unfit job.

    `left`: the core-seconds to its end.
    """
    cpu, state = job.cpu, job.tracked.state.cpu
    return JobSignal(
        uid=job.uid,
        pods=tuple(
            _pod_signal(pod, pod.trainer, state, uses)
            for pod in live_pods(pods)
            if pod.node_name and pod.trainer is not None
        ),
        policies={} if cpu.unfit else job.cpu_policies,
        rests=frozenset(state.rests),
        by=state.by,
        in_flight=in_flight,
        settling=settling,
        state=(reported.state if reported else None) or GrowthState.NEW,
        growth=reported.growth if reported else None,
        rate=cpu.history.rate,
        whole=is_whole(job.tracked, pods),
        left=left,
        peak=cpu.peak,
        unread=cpu.unread,
        budget=cpu.budget,
    )


def _pod_signal(pod: Pod, trainer: TrainerCpu, state: CpuState, uses: Uses) -> PodSignal:
    use = uses.of(pod.uid)
    # A value that another client has changed is the new wish.
    asked = None if owner_of(pod, state) is Owner.OTHER else asked_of(pod, state)
    return PodSignal(
        uid=pod.uid,
        component=pod.replica.type if pod.replica else "",
        node=pod.node_name,
        request=trainer.request,
        limit=trainer.limit,
        user_limit=trainer.limit if asked is None else asked.limit,
        use=use.millicores if use else None,
        qos=pod.qos,
        created=pod.created,
    )
