"""Conversion of a planner to a snapshot and back, for `kfext plan`, bug reports and tests.

The progress of a round is not recorded. A planner from a snapshot begins a round with every job and
offers the capacity that became free during the old round. So a job may get a different node than in
the old round.
"""

import math
from collections.abc import Iterable, Iterator

from kfext.core.ledger.cards import as_written
from kfext.core.ledger.claims import pod_of
from kfext.core.queue.reservation import Reservation, kept_claims
from kfext.core.queue.usage import decode_usage
from kfext.model.moment import Moment
from kfext.model.plan import decode_plan
from kfext.model.pod import Pod
from kfext.model.quota import LimitRange
from kfext.model.snapshot import (
    JobClocks,
    RefusalRecord,
    ReservationRecord,
    Snapshot,
    UnreservedRecord,
)
from kfext.state.mirror.cards import without_cards
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.tracked_job import Refusal, TrackedJob
from kfext.state.planner.planner import Planner


def planner_of(snapshot: Snapshot, now: Moment) -> Planner:
    """Return a planner with the state of a snapshot; every job will be decided on."""
    planner = Planner()
    for _ in restoring(planner, snapshot, now):
        pass
    return planner


def restoring(planner: Planner, snapshot: Snapshot, now: Moment) -> Iterator[None]:
    """Restore a snapshot in a new planner, in many short steps: a large cluster takes seconds."""
    cluster, settings, queue = planner.cluster, planner.settings, planner.queue
    for namespace in snapshot.namespaces.values():
        settings.observe_namespace(None, namespace)
    for policy in snapshot.policies:
        settings.observe_policy(policy)
    for network_policy in snapshot.network_policies:
        settings.observe_network_policy(None, network_policy)
    for priority_class in snapshot.classes.values():
        queue.observe_class(None, priority_class)
    for quota in snapshot.quotas:
        queue.quotas.observe_quota(None, quota)
    for namespace_name in snapshot.limit_ranges:
        queue.quotas.observe_limit_range(None, LimitRange(namespace_name))
    queue.observe_autoscaler(present=snapshot.autoscaler, can_ask=snapshot.can_ask)
    _observe_volumes(cluster, snapshot)
    for node in snapshot.nodes:
        cluster.observe_node(None, node)
    yield
    for card in snapshot.cards:
        cluster.observe_card(None, card)
    for pod in snapshot.pods:
        cluster.observe_pod(None, pod)
        yield
    for job in snapshot.jobs:
        cluster.record_job(job, {})
        _restore_claim_state(cluster.jobs[job.uid], snapshot.clocks.get(job.uid, JobClocks()))
        cluster.sync_claims(cluster.jobs[job.uid])
        yield
    cluster.set_time(now.wall)
    cluster.settle(now.monotonic)
    planner.starts.restore(snapshot.failed_starts)
    cluster.backlog.restore(snapshot.creating, crowded=snapshot.crowded, now=now.monotonic)
    for uid, tracked in cluster.jobs.items():
        _restore_clocks(tracked, snapshot.clocks.get(uid, JobClocks()), now)
        if tracked.not_before > now.monotonic:
            planner.alarms.set(uid, tracked.not_before)
    _restore_queue(planner, snapshot, now)


def _restore_queue(planner: Planner, snapshot: Snapshot, now: Moment) -> None:
    queue = planner.queue
    queue.usage.restore(decode_usage(snapshot.usage))
    planner.cluster.holds.restore(snapshot.promises, now=now.wall)
    record = snapshot.reservation
    if record is not None:
        reservation = _reservation(record)
        queue.reservations.adopt(
            reservation, outdated=record.outdated, held_for=record.held_for, now=now.wall
        )
    if snapshot.on_break:
        queue.reservations.on_break = True


def _observe_volumes(cluster: Cluster, snapshot: Snapshot) -> None:
    for claim in snapshot.volume_claims:
        cluster.volumes.observe_claim(None, claim)
    for volume in snapshot.volumes:
        cluster.volumes.observe_volume(None, volume)
    for storage_class in snapshot.storage_classes:
        cluster.volumes.observe_class(None, storage_class)


def snapshot_of(planner: Planner, now: Moment) -> Snapshot:
    """Return the whole state of a planner. Later changes to the planner do not affect it.

    Nodes and jobs are as Kubernetes shows them, without the resources that kfext adds for cards.
    """
    cluster, settings, queue = planner.cluster, planner.settings, planner.queue
    cluster.set_time(now.wall)
    cluster.settle(now.monotonic)
    for tracked in cluster.jobs.values():
        cluster.refresh_volumes(tracked)
    reservations, cards = queue.reservations, cluster.claim_tracker.cards
    current, outdated = reservations.current, reservations.is_outdated(now=now.wall)
    return Snapshot(
        nodes=tuple(
            without_cards(node) if node.name in cards.slots else node
            for node in filter(None, cluster.ledger.nodes)
        ),
        pods=(*cluster.members(), *_foreign_pods(cluster)),
        jobs=tuple(
            as_written(tracked.job) if tracked.job.shares_gpus else tracked.job
            for tracked in cluster.jobs.values()
        ),
        policies=tuple(settings.policies.values()),
        namespaces=dict(settings.namespaces),
        classes=dict(cluster.classes),
        cards=tuple(cards.known.values()),
        quotas=queue.quotas.all(),
        limit_ranges=queue.quotas.limit_ranges(),
        network_policies=settings.network_policies(),
        volume_claims=tuple(cluster.volumes.claims.values()),
        volumes=tuple(cluster.volumes.volumes.values()),
        storage_classes=tuple(cluster.volumes.classes.values()),
        autoscaler=queue.autoscaler,
        can_ask=queue.asks.possible,
        clocks={
            uid: _clocks(tracked, cluster.pods(uid), now) for uid, tracked in cluster.jobs.items()
        },
        reservation=None
        if current is None
        else _record(current, outdated=outdated, held_for=reservations.reserved_for(now=now.wall)),
        on_break=reservations.on_break,
        promises=tuple(cluster.holds.record()),
        creating=tuple(cluster.backlog.record(now.monotonic)),
        crowded=cluster.backlog.crowded,
        usage=queue.usage.record.encode() if queue.usage.on else "",
        failed_starts=planner.starts.all,
    )


def _foreign_pods(cluster: Cluster) -> Iterator[Pod]:
    """Yield the pods without a training job, with only the fields that their claims have.

    Pods that are pinned and not bound have all fields, because their claims depend on the time.
    Reservation pods and placeholders have all fields too.
    """
    pinned = {pod.uid: pod for pod in cluster.claim_tracker.pinned() if not pod.owner_uid}
    whole = {**pinned, **{pod.uid: pod for pod in cluster.claim_tracker.cards.reserved.values()}}
    whole |= {pod.uid: pod for pod in cluster.claim_tracker.placeholders.all()}
    yield from whole.values()
    recorded = {pod.uid for pod in (*cluster.members(), *whole.values())}
    for key, claim in cluster.ledger.claims().items():
        uid = pod_of(key)
        if uid is not None and uid not in recorded:
            yield Pod(
                namespace="",
                name="",
                uid=uid,
                node_name=claim.node,
                requests=claim.requests,
                host_ports=claim.host_ports,
                priority=claim.priority or 0,
            )


def _clocks(tracked: TrackedJob, pods: Iterable[Pod], moment: Moment) -> JobClocks:
    now = moment.monotonic
    # While a step is being written, a pod that has been bound meanwhile keeps its clock.
    waiting = {pod.uid for pod in pods if not pod.node_name}
    return JobClocks(
        waited=now - tracked.progressed_at,
        unbound={uid: now - at for (uid, _), at in tracked.unbound_since.items() if uid in waiting},
        unreserved=tuple(
            UnreservedRecord(node, slot, now - since)
            for (node, slot), since in sorted(tracked.unreserved_since.items())
        ),
        settled=now - tracked.settled_at if math.isfinite(tracked.settled_at) else None,
        hopeless=None if tracked.never_fits_since is None else now - tracked.never_fits_since,
        resting=max(tracked.not_before - now, 0.0),
        enlarged=moment.wall - tracked.enlarged_at if tracked.enlarged_at else None,
        turns=tracked.turns_used,
        lapsed=tracked.lapsed,
        writing=tracked.busy,
        assumed="" if tracked.assumed is None else tracked.assumed.encode(),
        assumed_workers=tracked.assumed_workers,
        refusals=tuple(
            RefusalRecord(step, refusal.count, refusal.message, max(refusal.until - now, 0.0))
            for step, refusal in sorted(tracked.refusals.items())
        ),
        unclaimed=tracked.unclaimed,
        succeeded=tuple(sorted(tracked.succeeded, key=lambda key: (key.type, key.index))),
    )


def _restore_clocks(tracked: TrackedJob, clocks: JobClocks, moment: Moment) -> None:
    now = moment.monotonic
    tracked.progressed_at = now - clocks.waited
    for uid, gated in tracked.unbound_since:
        if uid in clocks.unbound:
            tracked.unbound_since[uid, gated] = now - clocks.unbound[uid]
    for record in clocks.unreserved:
        if (record.node, record.slot) in tracked.unreserved_since:
            tracked.unreserved_since[record.node, record.slot] = now - record.seconds
    tracked.settled_at = -math.inf if clocks.settled is None else now - clocks.settled
    tracked.never_fits_since = None if clocks.hopeless is None else now - clocks.hopeless
    tracked.not_before = now + clocks.resting if clocks.resting else 0.0
    tracked.refusals = {
        refusal.step: Refusal(
            refusal.count, refusal.message, now + refusal.left if refusal.left else 0.0
        )
        for refusal in clocks.refusals
    }
    tracked.enlarged_at = 0.0 if clocks.enlarged is None else moment.wall - clocks.enlarged
    tracked.turns_used = clocks.turns
    tracked.succeeded = set(clocks.succeeded)


def _restore_claim_state(tracked: TrackedJob, clocks: JobClocks) -> None:
    tracked.lapsed, tracked.unclaimed = clocks.lapsed, clocks.unclaimed
    tracked.busy = clocks.writing
    tracked.assumed = decode_plan(clocks.assumed, job_uid=tracked.job.uid)
    tracked.assumed_workers = clocks.assumed_workers


def _record(reservation: Reservation, *, outdated: bool, held_for: float) -> ReservationRecord:
    return ReservationRecord(
        job_uid=reservation.job,
        nodes=reservation.nodes,
        waits_for=reservation.waits_for,
        until=reservation.until if math.isfinite(reservation.until) else None,
        to_free=reservation.to_free,
        kept={claim.node: claim.requests for claim in reservation.claims.values()},
        outdated=outdated,
        held_for=held_for,
    )


def _reservation(record: ReservationRecord) -> Reservation:
    return Reservation(
        job=record.job_uid,
        nodes=record.nodes,
        waits_for=record.waits_for,
        until=math.inf if record.until is None else record.until,
        to_free=record.to_free,
        claims=kept_claims(record.job_uid, record.kept),
    )
