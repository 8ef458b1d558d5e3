"""The jobs that the companion follows: which they are, what policies see of them, what is news."""

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
    is_edited,
    is_ours,
    is_whole,
    live_pods,
    size_record,
)
from kfext.state.tracked_job import Failures, TrackedJob
from kfext.state.uses import Uses

STEP_SECONDS = 120.0
"""How long the first step at a new size may take; longer for a job that prints seldom."""
ADOPT_SECONDS = 600.0
"""How long after a change a new controller follows it to its end."""

News = tuple[TrackedJob, str, Shown | None]
"""A job, the type of the condition that is new, and what to show; None: the condition is gone."""
_Jobs = dict[str, RunningJob]


class ShownJobs:
    """The conditions of jobs of which something else is to be shown than before."""

    def __init__(self) -> None:
        self._news: dict[tuple[str, str], News] = {}
        self._left: dict[str, set[str]] = {}

    def show(self, job: RunningJob, type_: str, shown: Shown | None) -> None:
        """Set what a condition of a job is to show, None for nothing."""
        if shown != job.shown.get(type_):
            job.shown[type_] = shown
            self._news[job.uid, type_] = job.tracked, type_, shown

    def hide(self, tracked: TrackedJob, type_: str) -> None:
        """Show nothing of a job, of which an earlier controller may have shown something."""
        self._news[tracked.job.uid, type_] = tracked, type_, None

    def follow(
        self, type_: str, followed: Collection[str], among: Mapping[str, TrackedJob]
    ) -> None:
        """Record which jobs of all are followed, by their uids, and hide the others once."""
        left = {uid for uid, tracked in among.items() if not tracked.busy}.difference(followed)
        for uid in left - self._left.get(type_, set()):
            self.hide(among[uid], type_)
        self._left[type_] = left

    def news(self) -> list[News]:
        """Return what is to be shown since the last call."""
        news, self._news = self._news, {}
        return list(news.values())


class RunningJobs:
    """The jobs that run, by uid: `resized` are followed for their CPU, `scaled` for their size.

    `shown` keeps what is to be shown of them.
    `settings_of` returns what holds for a job.
    `paused` returns whether nothing is tried on the CPU of a job for now.
    `adopted` is called with a job whose written change was begun by an earlier controller.
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
        """Whether the size of any job is being changed."""
        return any(job.size.operation is not None for job in self.scaled.values())

    def any_moves(self, at: float) -> bool:
        """Return whether pods come or go for a change, or a job is on trial; `at` is monotonic.

        A job that is slow to its first step at a new size, or prints seldom, is not waited for.
        """
        return any(
            operation.phase is not Phase.MEASURING or at - operation.since < STEP_SECONDS
            for job in self.scaled.values()
            if (operation := job.size.operation) is not None
        )

    # --- which jobs are followed ----------------------------------------------------------------

    def enrol_cpu(self, now: Moment) -> None:
        """Follow the CPU of jobs that opted in, or that have not got back what was taken."""
        before = self.resized
        self.resized = self._enrolled(names.RESIZED, before, self._with_cpu, now)
        for uid in before.keys() - self.resized.keys():
            before[uid].cpu = CpuRecord()

    def enrol_sizes(self, now: Moment) -> None:
        """Follow the size of jobs that opted in, and of jobs to which kfext gave another size.

        Jobs that a person edited after kfext, and that opted out, are followed so that their state
        forgets the edit.
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
        found = {}
        for uid, tracked in self._cluster.jobs.items():
            job = before.get(uid)
            with self.failures.about(tracked):
                job = followed(tracked, job, now)
            if job is not None:
                found[uid] = job
        self.shown.follow(type_, found, self._cluster.jobs)
        return found

    def _with_cpu(
        self, tracked: TrackedJob, known: RunningJob | None, now: Moment
    ) -> RunningJob | None:
        job = tracked.job
        if job.finished or job.suspend or job.deleting:
            return None
        chosen = self._policies(tracked)
        if tracked.state.cpu == CpuState() and not chosen.keys() - {SCALE.name}:
            return None
        if known is None:
            known = self.scaled.get(job.uid) or RunningJob(tracked)
            known.shown.pop(names.RESIZED, None)
            known.cpu = cpu_record(tracked.state.cpu, now.monotonic)
        known.chosen = chosen
        return known

    def _with_size(
        self, tracked: TrackedJob, known: RunningJob | None, now: Moment
    ) -> RunningJob | None:
        job = tracked.job
        if job.finished or job.deleting or job.released:
            return None
        chosen = self._policies(tracked)
        changes = is_ours(tracked) or (known is not None and known.size.operation is not None)
        edited = is_edited(tracked) and self.has_opted_out(tracked)
        noted = bool(tracked.state.scale.rests) or edited
        if SCALE.name not in chosen and not (changes or noted):
            return None
        if known is None:
            known = self.resized.get(job.uid) or RunningJob(tracked)
            self._meet(known, now)
        known.chosen = chosen
        return known

    def _policies(self, tracked: TrackedJob) -> dict[str, PolicyChoice]:
        """Return the policies that may look at a job."""
        if tracked.phase is None or tracked.job.released:
            return {}
        return chosen_policies(self._settings_of(tracked))

    # --- their sizes ----------------------------------------------------------------------------

    def sizes_of(self, tracked: TrackedJob) -> Sizes:
        """Return how many workers a job has and may have; no others if it has not opted in."""
        asked = asked_workers(tracked.job, tracked.state)
        elastic = self._settings_of(tracked).elastic or Range(asked, asked)
        return sizes_of(tracked.job, elastic, asked=asked)

    def has_opted_out(self, tracked: TrackedJob) -> bool:
        """Return whether a job has opted out of scaling, whatever the policy may do."""
        return self._settings_of(tracked).elastic is None

    def adopt(self, job: RunningJob, now: Moment) -> None:
        """Follow a change that was written, though its answer never came."""
        size, known, present = job.size, job.tracked.state.scale, workers_of(job.tracked.job)
        size.sizes = replace(size.sizes, now=known.before or present)
        cause = Cause(known.cause) if known.cause in tuple(Cause) else Cause.REGROW
        why = f"{words.workers(size.sizes.now)} become {present}"
        change = Workers(cause, present)
        proposal = workers_proposal(job.uid, change, why)
        size.begin(proposal, change, Phase.SETTLING, at=now.monotonic)
        size.expected, size.settled_at = present, now.monotonic
        size.changed_at = known.changed_at
        self.adopted(job, now)

    def _meet(self, job: RunningJob, now: Moment) -> None:
        """Begin to follow the size of a job; a change of an earlier controller goes on.

        Unless a person edited the job since, while no controller was there.
        """
        tracked = job.tracked
        self.shown.hide(tracked, names.SCALED)  # until it is known what to show
        job.shown.pop(names.SCALED, None)
        job.size = size_record(tracked, self.sizes_of(tracked))
        job.size.starts = not all_running(tracked, self._cluster.pods(job.uid))
        known = tracked.state.scale
        if is_edited(tracked):
            job.size.expected = tracked.state.admitted
        elif known.cause and now.wall - past(known.changed_at, now=now.wall) < ADOPT_SECONDS:
            self.adopt(job, now)

    def size_signals(self) -> Signals:
        """Return what arbitration has to know of jobs whose size may change."""
        found = []
        for job in self.scaled.values():
            rests = frozenset({SCALE.name} if job.tracked.state.scale.rests else ())
            signal = JobSignal(job.uid, policies=job.chosen, rests=rests, in_flight=job.in_flight)
            found.append(signal)
        return Signals({}, tuple(found))

    # --- what policies see of their CPU ---------------------------------------------------------

    def signals(self, now: float) -> tuple[Signals, set[str]]:
        """Return the signals of all jobs that run, and the uids of jobs whose window has ended.

        A job is left out if kfext fails on it.
        """
        found: list[JobSignal] = []
        ended = set()
        for uid, job in self.resized.items():
            with self.failures.about(job.tracked):
                signal, has_ended = self._signal(job, now)
                if has_ended:
                    ended.add(uid)
                if signal.pods:
                    found.append(signal)
                elif job.cpu_policies and job.cpu.unfit:
                    unfit = Verdict(names.REASON_STANDS_DOWN, job.cpu.unfit)
                    self.shown.show(job, names.RESIZED, Shown(holds=False, verdict=unfit))
        running = self._progress.running()
        signals = signals_of(self._cluster, found, self._progress.uses, measured=running)
        restricted = any(is_resized(job, signals) for job in signals.jobs)
        self._beside = {
            job.uid: frozenset(pod.uid for pod in job.pods) for job in signals.jobs if restricted
        }
        return signals, ended

    def any_has_left(self) -> bool:
        """Return whether a pod has ended beside pods that are restricted: they may have its CPU."""
        return any(
            not pods.issubset(pod.uid for pod in live_pods(self._cluster.pods(uid)))
            for uid, pods in self._beside.items()
        )

    def _signal(self, job: RunningJob, now: float) -> tuple[JobSignal, bool]:
        """Return the signal of a job, and whether a window of it has ended."""
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
        left, source = cpu.left(reported, now), self._settings_of(tracked).metrics
        cpu.unread = why_unread(reported, source=source, left=left)
        signal = job_signal(
            job,
            pods,
            reported,
            uses,
            in_flight=self._in_flight(job, pods, now),
            settling=cpu.operation is not None and cpu.operation.is_set,
            left=left,
        )
        if reported is None:
            return signal, False
        return signal, cpu.history.take(reported.progress, signal.use, now=now)

    def _in_flight(self, job: RunningJob, pods: tuple[Pod, ...], now: float) -> bool:
        """Return whether a job has to wait: for a write, a kubelet, a pod or another size."""
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
    """Return the signals of jobs, without jobs that have a pod on a node that is not known.

    `measured`: pods whose use may be known. Of all others on a node the requests count, which they
    can hold against the jobs; or what they use, where the use of the node shows less.
    """
    found = tuple(jobs)
    nodes = {pod.node for job in found for pod in job.pods}
    own = {pod.uid for job in found for pod in job.pods}
    own_use = dict.fromkeys(nodes, 0)
    for signal in (pod for job in found for pod in job.pods):
        own_use[signal.node] += signal.use or 0
    others = dict.fromkeys(nodes, 0)
    counted = {pod_key(uid) for uid in own}
    counted |= {shifted_key(job.uid, pod.node) for job in found for pod in job.pods}
    for pod in measured:
        use = uses.of(pod.uid)
        if use is not None and pod.node_name in nodes and pod.uid not in own:
            others[pod.node_name] += use.millicores
            counted.add(pod_key(pod.uid))
    for name in nodes:
        claims = cluster.ledger.claims_on([name], ignoring=counted)
        rest = sum(claim.requests.get(CPU, 0) for claim in claims)
        all_use = uses.of_node(name)
        if all_use is not None:
            rest = min(rest, max(0, all_use - others[name] - own_use[name]))
        others[name] += rest
    known = {
        name: NodeSignal(allocatable=node.allocatable.get(CPU, 0), others=others[name])
        for name in nodes
        if (node := cluster.ledger.node(name)) is not None
    }
    return Signals(known, tuple(job for job in found if set(job.nodes) <= known.keys()))


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
    """Return the signal of a job; `pods` are all of its pods. No policy looks at an unfit job.

    `left`: the core-seconds that it still takes.
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
    # What another hand has changed is what is wished for now.
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
