"""What the policies of the companion see: the watched jobs, their pods and nodes at one moment."""

from collections.abc import Iterable

from kfext.core.companion.restoring import Owner, asked_of, owner_of
from kfext.core.companion.signals import JobSignal, NodeSignal, PodSignal, Signals
from kfext.core.ledger.claims import pod_key, shifted_key
from kfext.core.progress.reported import GrowthState, Reported
from kfext.model.cpu_size import TrainerCpu
from kfext.model.cpu_state import CpuState
from kfext.model.pod import Pod
from kfext.model.quantity import CPU
from kfext.state.cluster import Cluster
from kfext.state.uses import Uses
from kfext.state.watched_job import WatchedJob, is_whole, live_pods


def signals_of(
    cluster: Cluster, jobs: Iterable[JobSignal], uses: Uses, *, measured: Iterable[Pod]
) -> Signals:
    """Return the signals of jobs; those with a pod on a node that is not known are left out.

    `measured`: pods of which the use may be known. Of all others on a node the requests count,
    which they can hold against the jobs; or what they use, where the use of the node shows less.
    """
    found = tuple(jobs)
    names = {pod.node for job in found for pod in job.pods}
    own = {pod.uid for job in found for pod in job.pods}
    own_use = dict.fromkeys(names, 0)
    for one in (pod for job in found for pod in job.pods):
        own_use[one.node] += one.use or 0
    others = dict.fromkeys(names, 0)
    counted = {pod_key(uid) for uid in own}
    counted |= {shifted_key(job.uid, pod.node) for job in found for pod in job.pods}
    for pod in measured:
        use = uses.of(pod.uid)
        if use is not None and pod.node_name in names and pod.uid not in own:
            others[pod.node_name] += use.millicores
            counted.add(pod_key(pod.uid))
    for name in names:
        claims = cluster.ledger.claims_on([name], ignoring=counted)
        rest = sum(claim.requests.get(CPU, 0) for claim in claims)
        all_use = uses.of_node(name)
        if all_use is not None:
            rest = min(rest, max(0, all_use - others[name] - own_use[name]))
        others[name] += rest
    nodes = {
        name: NodeSignal(allocatable=node.allocatable.get(CPU, 0), others=others[name])
        for name in names
        if (node := cluster.ledger.node(name)) is not None
    }
    return Signals(nodes, tuple(job for job in found if set(job.nodes) <= nodes.keys()))


def job_signal(
    watched: WatchedJob,
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
    tracked = watched.tracked
    job, state = tracked.job, tracked.state.cpu
    return JobSignal(
        uid=job.uid,
        pods=tuple(
            _pod_signal(pod, pod.trainer, state, uses)
            for pod in live_pods(pods)
            if pod.node_name and pod.trainer is not None
        ),
        policies={} if watched.unfit else watched.chosen,
        rests=frozenset(state.rests),
        by=state.by,
        in_flight=in_flight,
        settling=settling,
        state=(reported.state if reported else None) or GrowthState.NEW,
        growth=reported.growth if reported else None,
        rate=watched.history.rate,
        whole=is_whole(watched, pods),
        left=left,
        peak=watched.peak,
        unread=watched.unread,
        budget=watched.budget,
    )


def _pod_signal(pod: Pod, trainer: TrainerCpu, state: CpuState, uses: Uses) -> PodSignal:
    use = uses.of(pod.uid)
    # What somebody else has changed is what is wished for now.
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
