"""What the policies for CPU see of running jobs: their pods, their progress and their nodes."""

from collections.abc import Callable, Iterable, Sequence

from kfext.core.companion.cpu import RESIZED
from kfext.core.companion.restoring import Owner, asked_of, is_resized, owner_of
from kfext.core.companion.signals import JobSignal, NodeSignal, PodSignal, Signals
from kfext.core.companion.stand_down import why_no_resize, why_unread
from kfext.core.ledger.claims import pod_key, shifted_key
from kfext.core.progress.reported import Reported
from kfext.core.settings.table import Settings
from kfext.model.cpu_size import TrainerCpu
from kfext.model.cpu_state import CpuState
from kfext.model.pod import Pod
from kfext.model.quantity import CPU
from kfext.state.cluster import Cluster
from kfext.state.progress import JobsProgress
from kfext.state.running_job import RunningJob, all_measured, is_whole, live_pods
from kfext.state.tracked_job import TrackedJob
from kfext.state.uses import Uses


class CpuSignals:
    """Makes the signals of running jobs, and keeps what a later look has to compare.

    `settings_of` returns the settings of a job.
    `paused` returns whether nothing is tried on the CPU of a job for now.
    """

    def __init__(
        self,
        cluster: Cluster,
        progress: JobsProgress,
        settings_of: Callable[[TrackedJob], Settings],
        paused: Callable[[RunningJob, float], bool],
    ) -> None:
        self._cluster = cluster
        self._progress = progress
        self._settings_of = settings_of
        self._paused = paused
        self._beside: dict[str, frozenset[str]] = {}

    def together(self, jobs: Sequence[JobSignal]) -> Signals:
        """Return the signals of jobs and of their nodes."""
        running, uses = self._progress.running(), self._progress.uses
        signals = signals_of(self._cluster, jobs, uses, measured=running)
        restricted = any(is_resized(job, signals) for job in signals.jobs)
        self._beside = {
            job.uid: frozenset(pod.uid for pod in job.pods) for job in signals.jobs if restricted
        }
        return signals

    def any_has_left(self) -> bool:
        """Return whether a pod has ended beside restricted pods, which may get its CPU."""
        return any(
            not pods.issubset(pod.uid for pod in live_pods(self._cluster.pods(uid)))
            for uid, pods in self._beside.items()
        )

    def of(self, job: RunningJob, now: float) -> tuple[JobSignal, bool]:
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
            or job.move.operation is not None
            or (job.cpu.operation is not None and not job.cpu.operation.is_set)
            or self._paused(job, now)
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
        policies={} if cpu.unfit else job.policies_of(RESIZED),
        rests=frozenset(state.rests),
        by=state.by,
        in_flight=in_flight,
        settling=settling,
        reported=reported,
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
