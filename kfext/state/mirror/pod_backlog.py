"""The pods that the operator still has to create, and how long each gang has waited for its pods.

The operator creates one pod after the other, so a gang also waits for the pods of gangs that were
unsuspended earlier. Each replica counts once under each plan, so the wait ends even if pods are
created and deleted again and again.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from kfext.core.placement.gang import due_pods, present
from kfext.model.job import TrainingJob
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.snapshot import CreationRecord

MAX_OUTSTANDING = 500
"""Planning stops when this many pods await creation. The operator creates about ten pods a second,
so further plans would only withhold capacity from jobs that could use it now."""


@dataclass(slots=True)
class _Gang:
    """A gang with missing pods. Times are in monotonic seconds.

    `attempt`: identifies the plan of the pods; under a new plan every replica counts again.
    `missing`: the number of pods being created; 0 for a running gang that has lost pods.
    `created`: the replicas with a pod that was created.
    `last_created_at`: when an awaited pod was last created; infinity before the next `settle`.
    `overdue`: whether the pods were not created in time; then no other job waits for them.
    `doubted`: whether the pods were also late under an earlier plan; then no other job waits for
        them before the first is created.
    `done`: whether the gang no longer waits; the next `settle` drops it.
    """

    attempt: Hashable
    missing: int = 0
    created: set[ReplicaKey] = field(default_factory=set)
    last_created_at: float = float("inf")
    overdue: bool = False
    doubted: bool = False
    done: bool = False

    @property
    def outstanding(self) -> int:
        return 0 if self.done or self.overdue else self.missing

    @property
    def awaited(self) -> int:
        """The number of pods that other jobs wait for."""
        return 0 if self.doubted and not self.created else self.outstanding


class PodCreationBacklog:
    """Counts the pods that the operator still has to create.

    `pods`: the number of pods that other jobs wait for. `crowded`: whether they stop the planning.
    Pods that were late before must not block the queue again and again: see `_Gang.doubted`.
    """

    def __init__(self) -> None:
        self.pods = 0
        self.crowded = False
        self._reopens = False
        self._gangs: dict[str, _Gang] = {}  # in the order in which they were unsuspended
        self._entered: set[str] = set()
        self._created: set[str] = set()

    @property
    def crowd(self) -> int:
        """The least number of pods in the backlog while planning is stopped, else 0.

        Planning resumes only at the next `offer`, so that no later job overtakes an earlier job.
        """
        return MAX_OUTSTANDING // 2 if self.crowded or self._reopens else 0

    def offer(self) -> None:
        """Allow planning again if the backlog is small enough."""
        self._reopens = False

    def jobs(self) -> Iterable[str]:
        """Return the uids of the jobs that have pods to be created."""
        return (uid for uid, gang in self._gangs.items() if gang.outstanding)

    def missing(self, uid: str) -> int:
        """Return the number of pods of a job that the operator still has to create."""
        gang = self._gangs.get(uid)
        return gang.outstanding if gang else 0

    def expect(
        self, uid: str, missing: int | None, *, attempt: Hashable = None, doubted: bool = False
    ) -> bool:
        """Record the number of missing pods of a job; return whether planning may resume.

        `missing`: None means that the job waits for no pod, 0 that it runs and has lost pods.
        `attempt`: identifies the plan. `doubted`: whether the pods were late under an earlier plan.

        Once the backlog is full, planning stops until half of its pods are created. So waiting jobs
        are decided on once per half, not once per pod, and no later job overtakes an earlier job.
        """
        gang = self._gangs.get(uid)
        before = self._awaited_pods(uid)
        if missing is None:
            if gang is not None:
                gang.done = True
        else:
            if gang is None or gang.done:
                self._gangs.pop(uid, None)
                gang = self._gangs[uid] = _Gang(attempt)
                self._entered.add(uid)
            elif gang.attempt != attempt:
                gang.attempt, gang.overdue = attempt, False
                gang.created.clear()
                self._entered.add(uid)
            gang.missing, gang.doubted = missing, doubted
        return self._count(self._awaited_pods(uid) - before)

    def record_created(self, uid: str, replica: ReplicaKey | None) -> None:
        """Record that a pod of a job was created."""
        gang, before = self._gangs.get(uid), self._awaited_pods(uid)
        if gang is not None and replica is not None and replica not in gang.created:
            gang.created.add(replica)
            self._created.add(uid)
            self._count(self._awaited_pods(uid) - before)

    def settle(self, now: float) -> None:
        """Set the time of everything recorded since the last call to `now`."""
        if not (self._entered or self._created or any(gang.done for gang in self._gangs.values())):
            return
        created = False  # a pod of this gang or of an earlier gang
        for uid, gang in self._gangs.items():
            created |= uid in self._created
            if created or uid in self._entered:
                gang.last_created_at = now
        self._gangs = {uid: gang for uid, gang in self._gangs.items() if not gang.done}
        self._entered.clear()
        self._created.clear()

    def quiet(self, uid: str, now: float) -> float:
        """Return the seconds since a pod that a gang waits for was last created, else 0."""
        gang = self._gangs.get(uid)
        return max(now - gang.last_created_at, 0.0) if gang else 0.0

    def give_up(self, uid: str) -> bool:
        """Stop waiting for the pods of a job; return whether planning may resume."""
        gang, before = self._gangs.get(uid), self._awaited_pods(uid)
        if gang is not None:
            gang.overdue = True
        return self._count(self._awaited_pods(uid) - before)

    def record(self, now: float) -> Iterator[CreationRecord]:
        """Yield the record of each gang, in order, for a snapshot; call `settle` first."""
        for uid, gang in self._gangs.items():
            yield CreationRecord(
                job_uid=uid,
                quiet=self.quiet(uid, now),
                came=tuple(sorted(gang.created, key=lambda replica: (replica.type, replica.index))),
                overdue=gang.overdue,
            )

    def restore(self, records: Iterable[CreationRecord], *, crowded: bool, now: float) -> None:
        """Restore the records of an earlier planner for the gangs that are known here."""
        gangs, self._gangs = self._gangs, {}
        for record in records:
            if (gang := gangs.pop(record.job_uid, None)) is not None:
                gang.last_created_at, gang.overdue = now - record.quiet, record.overdue
                gang.created = set(record.came)
                self._gangs[record.job_uid] = gang
        self._gangs |= gangs
        self.pods = sum(gang.awaited for gang in self._gangs.values())
        self.crowded = crowded or self.pods >= MAX_OUTSTANDING

    def _awaited_pods(self, uid: str) -> int:
        gang = self._gangs.get(uid)
        return gang.awaited if gang else 0

    def _count(self, more: int) -> bool:
        self.pods += more
        if self.pods >= MAX_OUTSTANDING:
            self.crowded = True
        elif self.crowded and self.pods <= MAX_OUTSTANDING // 2:
            self.crowded, self._reopens = False, True
            return True
        return False


def to_be_bound(job: TrainingJob, pods: Collection[Pod], *, planned: bool = False) -> int:
    """Return the number of pods of a job that kube-scheduler is about to place on any node.

    The operator has not created them, or kube-scheduler has not tried them. A job that kfext places
    has none: it is `planned`, or its pods wait at the gate.
    """
    if job.suspend or job.finished or job.deleting or job.excess:
        return 0
    if not job.released and (planned or any(pod.gated for pod in pods)):
        return 0
    live = present(job, pods)
    untried = sum(pod.untried for pod in live.values())
    return max(due_pods(job, live) - len(live), 0) + untried


def still_to_come(job: TrainingJob, pods: Collection[Pod], *, planned: bool = True) -> int | None:
    """Return the number of pods that the operator is creating, or None for a job that awaits none.

    It is 0 for pods that a running gang has lost, and for a job that is not `planned` because
    another system has started it: later jobs do not wait for these pods.
    """
    if job.suspend or job.finished or job.deleting or job.released:
        return None  # the job claims only ports
    if not (planned or any(pod.gated for pod in pods)):
        return None  # kfext does not place the job
    if job.excess:
        return None  # kfext does not wait for so many pods
    live = present(job, pods)
    due = due_pods(job, live)
    if len(live) >= due:
        return None
    some_bound = any(pod.node_name and not pod.deleting for pod in pods)
    if not planned or (some_bound and not job.being_created):
        return 0
    return max(due - len(pods), 0)
