"""The signals of the CPU policies: the pods, the progress and the nodes of running jobs."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from kfext.core.ledger.claims import pod_key
from kfext.core.progress.reported import Reported
from kfext.core.queue.quota import NO_RAISE
from kfext.model.cpu_size import TrainerCpu
from kfext.model.cpu_state import CpuState
from kfext.model.cpu_use import CpuUse
from kfext.model.moment import Moment
from kfext.model.pod import Pod
from kfext.model.quantity import CPU
from kfext.state.mirror.cluster import Cluster
from kfext.state.reports.uses import Uses
from kfext.state.running.cpu.contest import fair_ends
from kfext.state.running.cpu.record import EARLY_SECONDS, all_measured, cpu_policies, record_of
from kfext.state.running.cpu.refused_pods import RefusedPods
from kfext.state.running.cpu.restoring import Owner, owner_of, requested_of
from kfext.state.running.cpu.words import why_no_resize, why_unread
from kfext.state.running.executor import TURN_SECONDS
from kfext.state.running.operation import ResizeOperation
from kfext.state.running.running_job import RunningJob, is_whole, live_pods
from kfext.state.running.running_jobs import RunningJobs
from kfext.state.running.signals import JobSignal, NodeSignal, PodSignal, Sharer, Signals, use_of

_CROWDED = 0.9
"""Jobs contend for the CPU of a node if at least this fraction of it is in use."""
_REMEMBERED = 32
"""The number of ended jobs that are remembered for each node."""
_MEASURED_SECONDS = 60.0
"""metrics-server measures every pod at least once in this time."""
UNMEASURED_SECONDS = 300.0
"""Policies do not visit a job with a missing pod, or unknown CPU use, for longer than this."""
_UNMEASURED = f"the CPU use of all its pods has been unknown for {UNMEASURED_SECONDS:g} s"


class CpuSignals:
    """Builds the signals of running jobs, and remembers ended jobs that shared their nodes.

    `paused` returns whether the back-off after a failed change of a job lasts.
    """

    def __init__(self, running: RunningJobs, paused: Callable[[RunningJob, float], bool]) -> None:
        self._cluster, self._queue = running.cluster, running.queue
        self._progress = running.progress
        self._settings_of = running.settings_of
        self._paused = paused
        self._resized_beside: dict[str, frozenset[str]] = {}
        self._boosts: dict[str, int] = {}
        self._refused = RefusedPods(running.cluster)
        self._sharers: dict[str, dict[str, Sharer]] = {}
        self._crowded_at: dict[str, float] = {}
        self._equal_shares: dict[str, float] = {}

    def with_nodes(self, jobs: Sequence[JobSignal], now: float) -> Signals:
        """Return the signals of jobs and of their nodes; `now`: in epoch seconds."""
        running, uses = self._progress.running(), self._progress.uses
        signals = signals_of(self._cluster, jobs, uses, measured=running)
        resized = any(job.resized for job in signals.jobs)
        self._resized_beside = {
            job.uid: frozenset(pod.uid for pod in job.pods) for job in signals.jobs if resized
        }
        self._boosts = _boosts(signals)
        free = {name: node.free for name, node in signals.nodes.items()}
        awaited = self._refused.awaited(free, self._boosts, now=now)
        awaited |= {name for name, raised in self._boosts.items() if free[name] < raised}
        nodes = {
            name: self._with_ended_jobs(name, signals, now, awaited=name in awaited)
            for name in signals.nodes
        }
        self._sharers = {name: sharers for name, (_, sharers) in nodes.items()}
        self._equal_shares = _equal_shares(signals)
        self._crowded_at = {
            name: self._crowded_at[name] for name in nodes.keys() & self._crowded_at.keys()
        }
        return Signals(
            {name: node for name, (node, _) in nodes.items()}, signals.jobs, self._headroom(signals)
        )

    def _with_ended_jobs(
        self, name: str, signals: Signals, now: float, *, awaited: bool
    ) -> tuple[NodeSignal, dict[str, Sharer]]:
        """Return a node with its ended jobs, and all jobs that share its CPU, by uid.

        An ended job counts if it would still run beside a present job under equal shares.
        """
        node = signals.nodes[name]
        present = {job.uid: job.sharer(name) for job in signals.on(name)}
        sharers = self._sharers.get(name, {}) | present
        ends = fair_ends(sharers.values(), cores=max(1, node.allocatable - node.others) / 1000)
        first = min((sharer.began for sharer in present.values()), default=math.inf)
        ended = [uid for uid in sharers if uid not in present and first < ends[uid] < math.inf]
        gone = {uid: sharers[uid] for uid in ended[-_REMEMBERED:]}
        crowded = self._is_crowded(name, signals, now)
        with_gone = replace(node, crowded=crowded, awaited=awaited, gone=tuple(gone.values()))
        return with_gone, present | gone

    def _is_crowded(self, name: str, signals: Signals, now: float) -> bool:
        """Return whether jobs contend for a node, or did so within the last _MEASURED_SECONDS.

        A job of unknown use counts with an equal share. After a job has ended, the higher use of
        the others shows only at their next measurement.
        """
        node, jobs = signals.nodes[name], signals.on(name)
        uses = [use_of(job.on(name)) for job in jobs]
        equal = node.allocatable // max(1, len(jobs))
        used = node.others + sum(equal if use is None else use for use in uses)
        if len(jobs) > 1 and used >= _CROWDED * node.allocatable:
            self._crowded_at[name] = now
        return now - self._crowded_at.get(name, -math.inf) < _MEASURED_SECONDS

    def _headroom(self, signals: Signals) -> dict[str, int]:
        """Return the headroom of each namespace with a quota on each node, in equal shares."""
        nodes: dict[str, set[str]] = {}
        for job in signals.jobs:
            nodes.setdefault(job.namespace, set()).update(job.nodes)
        return {
            namespace: most if most == NO_RAISE else most // max(1, len(names))
            for namespace, names in nodes.items()
            if (most := self._queue.headroom(namespace)) is not None
        }

    def needs_early_scan(self) -> bool:
        """Return whether a pod ended beside resized pods, or a node lacks the CPU of its boosts."""
        if any(free_on(self._cluster, name) < raised for name, raised in self._boosts.items()):
            return True
        return any(
            not pods.issubset(pod.uid for pod in live_pods(self._cluster.pods(uid)))
            for uid, pods in self._resized_beside.items()
        )

    def signal_of(self, job: RunningJob, now: Moment) -> tuple[JobSignal, bool]:
        """Return the signal of a job, and whether its window has ended."""
        tracked, cpu, uses = job.tracked, record_of(job), self._progress.uses
        pods, reported = self._cluster.pods(job.uid), self._progress.reported(job.uid)
        cpu.unfit = why_no_resize(tracked.job, live_pods(pods), tracked.state.cpu)
        measured = {pod.uid: seen.use for pod in live_pods(pods) if (seen := uses.use_of(pod.uid))}
        for uid, use in (measured or self._assumed(pods, now)).items():
            cpu.work.measure(uid, use, assumed=not measured)
        if reported is not None:
            cpu.work.add_progress(reported.progress)
        if is_whole(tracked, pods) and all_measured(pods, uses):
            cpu.measured_at = now.monotonic
        elif not cpu.unfit and now.monotonic - cpu.measured_at >= UNMEASURED_SECONDS:
            cpu.unfit = _UNMEASURED
        remaining = cpu.remaining(reported, now, started=tracked.job.started)
        source = self._settings_of(tracked).metrics
        cpu.unread = why_unread(reported, source=source, remaining=remaining)
        paused = self._paused(job, now.monotonic)
        signal = job_signal(
            job,
            pods,
            reported,
            uses,
            in_flight=paused or _in_flight(job, pods),
            paused=paused,
            now=now.wall,
            settling=cpu.operation is not None and cpu.operation.is_set,
            remaining=remaining,
            followed=now.monotonic - cpu.began,
        )
        if reported is None:
            return signal, False
        return signal, cpu.history.add_interval(reported.progress, signal.use, now=now.monotonic)

    def _assumed(self, pods: Iterable[Pod], now: Moment) -> dict[str, CpuUse]:
        """Return an assumed use for each running pod, by uid: an equal share of its node.

        metrics-server measures a new pod only after half a minute or more.
        """
        running = ((pod.uid, pod.node_name) for pod in pods if pod.phase == "Running")
        shares = ((uid, self._equal_shares.get(node)) for uid, node in running)
        return {uid: CpuUse(cpu, at=now.wall, window=TURN_SECONDS) for uid, cpu in shares if cpu}


def _in_flight(job: RunningJob, pods: tuple[Pod, ...]) -> bool:
    """Return whether a job waits for a write, a kubelet, a pod or another change."""
    changing = any(
        not (isinstance(operation, ResizeOperation) and operation.is_set)
        for operation in job.operations
    )
    return job.tracked.busy or changing or not is_whole(job.tracked, pods)


def _equal_shares(signals: Signals) -> dict[str, float]:
    """Return the cores that each pod of a node would have under equal shares, by node."""
    count = Counter(pod.node for job in signals.jobs for pod in job.pods)
    return {
        name: (node.allocatable - node.others) / 1000 / max(1, count[name])
        for name, node in signals.nodes.items()
    }


def _boosts(signals: Signals) -> dict[str, int]:
    """Return the sum of the boosts on each node with a boost, by node."""
    raised = dict.fromkeys(signals.nodes, 0)
    for pod in (pod for job in signals.jobs for pod in job.pods):
        raised[pod.node] += pod.extra
    return {name: amount for name, amount in raised.items() if amount > 0}


def free_on(cluster: Cluster, name: str) -> int:
    """Return the CPU of a node less all requests as users wrote them; 0 for an unknown node.

    A reservation does not count, because its job does not fit yet.
    """
    node = cluster.ledger.node(name)
    if node is None:
        return 0
    claims = (claim for claim in cluster.ledger.claims_on([name]) if not claim.kept)
    return node.allocatable.get(CPU, 0) - sum(claim.requests.get(CPU, 0) for claim in claims)


def signals_of(
    cluster: Cluster, jobs: Iterable[JobSignal], uses: Uses, *, measured: Iterable[Pod]
) -> Signals:
    """Return the signals of jobs, except jobs with a pod on an unknown node.

    `measured`: the pods that may have a known use. Other pods on a node count with their requests,
    or with the rest of the node's use if that is less.
    """
    signals = tuple(jobs)
    nodes = {pod.node for job in signals for pod in job.pods}
    uids = {pod.uid for job in signals for pod in job.pods}
    job_use = dict.fromkeys(nodes, 0)
    for signal in (pod for job in signals for pod in job.pods):
        job_use[signal.node] += signal.use or 0
    others = dict.fromkeys(nodes, 0)
    counted = {pod_key(uid) for uid in uids}
    for pod in measured:
        use = uses.use_of(pod.uid)
        if use is not None and pod.node_name in nodes and pod.uid not in uids:
            others[pod.node_name] += use.millicores
            counted.add(pod_key(pod.uid))
    for name in nodes:
        claims = cluster.ledger.claims_on([name], ignoring=counted)
        unmeasured = sum(claim.requests.get(CPU, 0) for claim in claims)
        all_use = uses.of_node(name)
        if all_use is not None:
            unmeasured = min(unmeasured, max(0, all_use - others[name] - job_use[name]))
        others[name] += unmeasured
    node_signals = {
        name: NodeSignal(
            allocatable=node.allocatable.get(CPU, 0),
            others=others[name],
            free=free_on(cluster, name),
        )
        for name in nodes
        if (node := cluster.ledger.node(name)) is not None
    }
    return Signals(
        node_signals, tuple(job for job in signals if set(job.nodes) <= node_signals.keys())
    )


def job_signal(
    job: RunningJob,
    pods: tuple[Pod, ...],
    reported: Reported | None,
    uses: Uses,
    *,
    in_flight: bool,
    paused: bool = False,
    settling: bool = False,
    remaining: float | None = None,
    followed: float = math.inf,
    now: float = 0.0,
) -> JobSignal:
    """Return the signal of a job with its pods. An unfit job has no policies.

    `now`: the time in epoch seconds. The other arguments are fields of the JobSignal.
    """
    cpu, state = record_of(job), job.tracked.state.cpu
    signals = tuple(
        _pod_signal(pod, pod.trainer, state, uses)
        for pod in live_pods(pods)
        if pod.node_name and pod.trainer is not None
    )
    signal = JobSignal(
        uid=job.uid,
        namespace=job.tracked.job.namespace,
        pods=signals,
        policies={} if cpu.unfit else cpu_policies(job),
        disabled=frozenset(state.disabled),
        in_flight=in_flight,
        paused=paused,
        settling=settling,
        rate=cpu.history.rate,
        whole=is_whole(job.tracked, pods),
        remaining=remaining,
        followed=followed,
        done=cpu.work.completed(reported.progress) if reported else 0.0,
        unread=cpu.unread,
    )
    return replace(signal, young=now - signal.began < EARLY_SECONDS)


def _pod_signal(pod: Pod, trainer: TrainerCpu, state: CpuState, uses: Uses) -> PodSignal:
    use = uses.use_of(pod.uid)
    # A value that another client has set is the new requested value.
    requested = None if owner_of(pod, state) is Owner.OTHER else requested_of(pod, state)
    return PodSignal(
        uid=pod.uid,
        component=pod.replica.type if pod.replica else "",
        node=pod.node_name,
        request=trainer.request,
        limit=trainer.limit,
        allocated=trainer.allocated,
        user=requested,
        use=use.millicores if use else None,
        qos=pod.qos,
        created=pod.created,
    )
