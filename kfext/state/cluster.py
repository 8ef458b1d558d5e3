"""The controller's mirror of the cluster: jobs, pods and the ledger, as last seen.

Everything here can be rebuilt from the API server. An answer to our own write is taken in like a
watch event, so that the next decision does not rest on what we have just changed.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kfext.core.ledger.claims import plan_claims, plan_key, pod_claim, pod_key
from kfext.core.ledger.ledger import Ledger
from kfext.model.job import TrainingJob, parse_job
from kfext.model.node import Node
from kfext.model.plan import decode_plan
from kfext.model.pod import Pod
from kfext.model.state import decode_state
from kfext.model.tolerant import mapping, text
from kfext.names import PLAN, STATE
from kfext.state.entry import Entry
from kfext.state.outstanding import Outstanding, still_to_come

_GONE_KEPT = 10_000
"""How many uids of jobs that are gone are remembered; answers are late by seconds at most."""


class Cluster:
    """Jobs by uid, pods by job, the ledger; `changed` holds the uids of jobs to look at again.

    `outstanding` are the pods that the operator has yet to create; `limited` the namespaces with a
    quota; `ends_version` counts what changed of when jobs end.
    """

    def __init__(
        self, *, wake: Callable[[], None], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.jobs: dict[str, Entry] = {}
        self.ledger = Ledger()
        self.changed: set[str] = set()
        self.pod_created_at = monotonic()
        self.outstanding = Outstanding()
        self.limited: set[str] = set()
        self.ends_version = 0
        self._pods: dict[str, dict[str, Pod]] = {}
        self._gone: dict[str, None] = {}
        self._unsettled: dict[str, Entry] = {}
        self._wake = wake
        self._monotonic = monotonic

    def pods(self, job_uid: str) -> tuple[Pod, ...]:
        """Return the pods whose controller is the job, terminating ones included."""
        return tuple(self._pods.get(job_uid, {}).values())

    def homes(self, job_uid: str) -> tuple[str, ...]:
        """Return the nodes where pods of a job are bound, in name order."""
        pods = self._pods.get(job_uid, {}).values()
        return tuple(sorted({p.node_name for p in pods if p.node_name and not p.deleting}))

    def count(self, phase: str) -> int:
        """Return how many jobs were last seen in a phase."""
        return sum(entry.phase == phase for entry in self.jobs.values())

    def mark(self, job_uid: str) -> None:
        """Have a job looked at again."""
        self.changed.add(job_uid)
        self._wake()

    def mark_queue(self, namespace: str = "") -> None:
        """Have every waiting job, or those of a namespace, looked at again: they may have room."""
        waiting = [
            uid
            for uid, entry in self.jobs.items()
            if entry.waiting and namespace in {"", entry.job.namespace}
        ]
        if waiting:
            self.changed.update(waiting)
            self._wake()

    # --- what the watches bring -----------------------------------------------------------------

    def observe_job(self, raw: Mapping[str, Any]) -> None:
        """Take in a job as it stands; an older version than the known one is ignored."""
        metadata = mapping(raw.get("metadata"))
        entry = self.jobs.get(text(metadata.get("uid")))
        if entry is not None and not _newer(text(metadata.get("resourceVersion")), entry.job):
            return
        job = parse_job(raw)
        if job is None or not job.uid or job.uid in self._gone:
            return
        # What nobody reads again is most of it.
        of_use = {key: value for key, value in metadata.items() if key != "managedFields"}
        raw = {"metadata": of_use, "spec": raw.get("spec")}
        plan = decode_plan(job.annotations.get(PLAN), job_uid=job.uid)
        state = decode_state(job.annotations.get(STATE))
        if entry is None:
            now = self._monotonic()
            entry = Entry(raw, job, plan, state, since=now, settled_at=now)
            self.jobs[job.uid] = entry
        else:
            if entry.job.ends != job.ends:
                self.ends_version += 1
            entry.raw, entry.job, entry.plan, entry.state = raw, job, plan, state
            entry.not_before = 0.0
        self.sync_claims(entry)
        self.mark(job.uid)

    def forget_job(self, uid: str) -> None:
        """Take in that a job is gone; an answer that comes after it says nothing any more."""
        self._gone[uid] = None
        if len(self._gone) > _GONE_KEPT:
            del self._gone[next(iter(self._gone))]
        entry = self.jobs.pop(uid, None)
        if entry is None:
            return
        self._unsettled.pop(uid, None)
        self._expect(entry, 0)
        for key in entry.claimed:
            self.ledger.drop(key)
        if entry.claimed:
            self.mark_queue()
        self.mark(uid)

    def observe_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Take in a pod as it stands; None for `new` when it is gone."""
        pod = new or old
        if pod is None:
            return
        members = self._pods.get(pod.owner_uid, {}) if pod.owner_uid else {}
        known = members.get(pod.uid)
        if new and known and _older(new.resource_version, known.resource_version):
            return
        if old and old.owner_uid != pod.owner_uid:
            self._leave(old)
        elif old and new and pod.owner_uid and not known:
            return  # it is gone, and this the late answer to a write of ours
        claim = pod_claim(new) if new else None
        if claim is not None:
            self.ledger.claim(pod_key(pod.uid), claim)
        elif self.ledger.drop(pod_key(pod.uid)):
            self.mark_queue()
        if pod.owner_uid:
            self._observe_member(pod, known=known, gone=new is None)

    def _observe_member(self, pod: Pod, *, known: Pod | None, gone: bool) -> None:
        first = known is None
        if gone:
            self._leave(pod)
        else:
            self._pods.setdefault(pod.owner_uid, {})[pod.uid] = pod
        if known is not None and not gone and _place_of(known) == _place_of(pod):
            return  # what the kubelet says of a pod moves nothing
        if first and not gone:
            self.pod_created_at = self._monotonic()
        entry = self.jobs.get(pod.owner_uid)
        if entry is not None:
            if first or gone:
                entry.settled_at = self._monotonic()
            self._hand_over(entry, pod)
            if not entry.busy:  # while its pods are patched one by one, once at the end will do
                self._unsettled[pod.owner_uid] = entry
            self.mark(pod.owner_uid)

    def _leave(self, pod: Pod) -> None:
        """Take a pod from the pods of its job."""
        members = self._pods.get(pod.owner_uid, {})
        members.pop(pod.uid, None)
        if not members:
            self._pods.pop(pod.owner_uid, None)

    def _hand_over(self, entry: Entry, pod: Pod) -> None:
        """Drop the claim of the plan for a pod that claims for itself now."""
        if pod.home and pod.replica is not None:
            key = plan_key(entry.job.uid, pod.replica)
            if entry.claimed.pop(key, None) is not None:
                self.ledger.hand_over(key, to=pod_key(pod.uid))

    def observe_node(self, old: Node | None, new: Node | None) -> None:
        """Take in a node as it stands; None for `new` when it is gone."""
        if new is not None:
            self.ledger.set_node(new)
            self.mark_queue()
        elif old is not None:
            self.ledger.remove_node(old.name)
            self.mark_queue()  # why a job waits may be another reason now

    def stand_by(self) -> None:
        """Keep what waits for the loop small while another process leads."""
        self.settle()
        self.changed.intersection_update(self.jobs)

    def settle(self) -> None:
        """Bring the ledger to what is known of all jobs; before anything is decided."""
        unsettled, self._unsettled = self._unsettled, {}
        for entry in unsettled.values():
            self.sync_claims(entry)

    # --- derived ----------------------------------------------------------------------------------

    def sync_claims(self, entry: Entry) -> None:
        """Bring the ledger to what the job's plan holds now, and restart its clock on progress."""
        if self.jobs.get(entry.job.uid) is not entry:
            return  # gone while its step was written
        pods = self.pods(entry.job.uid)
        job = entry.job if entry.assumed is None else replace(entry.job, suspend=False)
        priority = -entry.turn[2][0] if entry.turn else None
        wanted = plan_claims(job, entry.assumed or entry.plan, pods, priority=priority)
        for key in entry.claimed.keys() - wanted.keys():
            self.ledger.drop(key)
        for key, claim in wanted.items():
            self.ledger.claim(key, claim)
        # What passed from the plan to its pod was handed over before; the rest is room again.
        freed = any(
            key not in wanted or wanted[key].node != claim.node
            for key, claim in entry.claimed.items()
        )
        entry.claimed = dict(wanted)
        entry.gated = any(pod.gated for pod in pods)
        alive = sum(not pod.deleting for pod in pods)
        self._expect(entry, still_to_come(job, pods) if wanted else 0)
        if freed:
            self.mark_queue()
        marker = (
            entry.job.suspend,
            entry.plan.generation if entry.plan else 0,
            alive,
            sum(pod.gated for pod in pods),
            sum(bool(pod.node_name) for pod in pods),
        )
        if marker != entry.marker:
            entry.marker, entry.since = marker, self._monotonic()

    def _expect(self, entry: Entry, missing: int) -> None:
        """Take in how many pods of a job are still to come."""
        all_came = entry.missing and not missing
        if self.outstanding.expect(entry, missing):
            self.mark_queue()
        elif all_came and entry.job.namespace in self.limited:
            self.mark_queue(entry.job.namespace)  # its quota knows all of them now


def _place_of(pod: Pod) -> tuple[object, ...]:
    """Return what of a pod decides about claims and steps."""
    return (
        *(pod.node_name, pod.pinned_to, pod.gates, pod.deleting, pod.finished),
        *(pod.requests, pod.unschedulable, pod.replica, pod.affinity),
    )


def _newer(version: str, known: TrainingJob) -> bool:
    """Return whether a resource version of a job says more than the known one."""
    return version != known.resource_version and not _older(version, known.resource_version)


def _older(one: str, other: str) -> bool:
    """Return whether a resource version is older than another of the same object."""
    try:
        return int(one or "0") < int(other or "0")
    except ValueError:
        return False  # only numbers say something about age
