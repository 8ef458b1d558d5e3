"""The pods that the operator still has to create: how many, and since when a gang waits for one.

The operator creates pods one after the other, so a gang also waits for the pods of the gangs that
were unsuspended before it. Each replica counts once under each plan, so that pods that are created
and deleted again do not make the wait endless.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from kfext.core.placement.gang import present
from kfext.model.job import TrainingJob
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.snapshot import CreationRecord

MOST_OUTSTANDING = 500
"""The most pods that may await creation before planning stops: the operator creates about ten a
second, so plans beyond that would only withhold capacity from jobs that could use it now."""


@dataclass(slots=True)
class _Gang:
    """A gang of which pods are missing. Times are in monotonic seconds.

    `attempt`: what it is created under; another plan makes every replica count anew.
    `missing`: the pods that the operator is creating; 0 for a running gang that has lost some.
    `came`: the replicas that were created.
    `since`: when a pod that it waits for was last created, infinite before the next `settle`.
    `overdue`: whether its pods did not come in time, so that no other job is to wait for them.
    `doubted`: whether they did not come in time under an earlier plan either: before the first of
        them has come, no other job waits for the rest.
    `left`: whether it waits no more; it is dropped by the next `settle`.
    """

    attempt: Hashable
    missing: int = 0
    came: set[ReplicaKey] = field(default_factory=set)
    since: float = float("inf")
    overdue: bool = False
    doubted: bool = False
    left: bool = False

    @property
    def outstanding(self) -> int:
        return 0 if self.left or self.overdue else self.missing

    @property
    def awaited(self) -> int:
        """The pods for which others wait."""
        return 0 if self.doubted and not self.came else self.outstanding


class PodCreationBacklog:
    """The number of `pods` for which others wait, over all jobs; `crowded`: too many to plan more.

    Pods that were refused before must not close the queue again and again: see `_Gang.doubted`.
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
        """While too many, the number of pods that still have to be created at least, else 0.

        That there are fewer is not known before `offer`, so that no later job overtakes.
        """
        return MOST_OUTSTANDING // 2 if self.crowded or self._reopens else 0

    def offer(self) -> None:
        """Let planning resume if there are few enough now."""
        self._reopens = False

    def jobs(self) -> Iterable[str]:
        """Return the uids of the jobs that have pods to be created."""
        return (uid for uid, gang in self._gangs.items() if gang.outstanding)

    def missing(self, uid: str) -> int:
        """Return how many pods of a job are still to be created."""
        gang = self._gangs.get(uid)
        return gang.outstanding if gang else 0

    def expect(
        self, uid: str, missing: int | None, *, attempt: Hashable = None, doubted: bool = False
    ) -> bool:
        """Take in how many pods of a job are to be created; return whether planning may resume.

        None: the job waits for no pod. 0: it runs and has lost some. `attempt` is what they are
        created under, `doubted` whether they were not created in time the last time.

        Once there are too many, nothing more is planned until half of them exist. So waiting jobs
        are looked at once per half, not once per pod, and no later job overtakes in between.
        """
        gang = self._gangs.get(uid)
        before = self._awaited(uid)
        if missing is None:
            if gang is not None:
                gang.left = True
        else:
            if gang is None or gang.left:
                self._gangs.pop(uid, None)
                gang = self._gangs[uid] = _Gang(attempt)
                self._entered.add(uid)
            elif gang.attempt != attempt:
                gang.attempt, gang.overdue = attempt, False
                gang.came.clear()
                self._entered.add(uid)
            gang.missing, gang.doubted = missing, doubted
        return self._count(self._awaited(uid) - before)

    def note_created(self, uid: str, replica: ReplicaKey | None) -> None:
        """Take in that a pod of a job was created."""
        gang, before = self._gangs.get(uid), self._awaited(uid)
        if gang is not None and replica is not None and replica not in gang.came:
            gang.came.add(replica)
            self._created.add(uid)
            self._count(self._awaited(uid) - before)

    def settle(self, now: float) -> None:
        """Take in that everything since the last call happened at the time `now`."""
        if not (self._entered or self._created or any(one.left for one in self._gangs.values())):
            return
        served = False
        for uid, gang in self._gangs.items():
            served |= uid in self._created
            if served or uid in self._entered:
                gang.since = now
        self._gangs = {uid: gang for uid, gang in self._gangs.items() if not gang.left}
        self._entered.clear()
        self._created.clear()

    def quiet(self, uid: str, now: float) -> float:
        """Return for how long no pod was created that a gang waits for, 0 if it waits for none."""
        gang = self._gangs.get(uid)
        return max(now - gang.since, 0.0) if gang else 0.0

    def give_up(self, uid: str) -> bool:
        """Wait no more for the pods of a job; return whether planning may resume."""
        gang, before = self._gangs.get(uid), self._awaited(uid)
        if gang is not None:
            gang.overdue = True
        return self._count(self._awaited(uid) - before)

    def record(self, now: float) -> Iterator[CreationRecord]:
        """Yield what is known of each gang, in order, for a snapshot; call `settle` before."""
        for uid, gang in self._gangs.items():
            yield CreationRecord(
                job_uid=uid,
                quiet=self.quiet(uid, now),
                came=tuple(sorted(gang.came, key=lambda one: (one.type, one.index))),
                overdue=gang.overdue,
            )

    def restore(self, records: Iterable[CreationRecord], *, crowded: bool, now: float) -> None:
        """Take over what an earlier planner knew of the gangs that are known here."""
        known, self._gangs = self._gangs, {}
        for record in records:
            if (gang := known.pop(record.job_uid, None)) is not None:
                gang.since, gang.overdue = now - record.quiet, record.overdue
                gang.came = set(record.came)
                self._gangs[record.job_uid] = gang
        self._gangs |= known
        self.pods = sum(gang.awaited for gang in self._gangs.values())
        self.crowded = crowded or self.pods >= MOST_OUTSTANDING

    def _awaited(self, uid: str) -> int:
        gang = self._gangs.get(uid)
        return gang.awaited if gang else 0

    def _count(self, more: int) -> bool:
        self.pods += more
        if self.pods >= MOST_OUTSTANDING:
            self.crowded = True
        elif self.crowded and self.pods <= MOST_OUTSTANDING // 2:
            self.crowded, self._reopens = False, True
            return True
        return False


def still_to_come(job: TrainingJob, pods: Collection[Pod], *, planned: bool = True) -> int | None:
    """Return how many pods the operator is creating, None if the job waits for no pod.

    A running gang that has lost pods waits for them, but they are not for later jobs to wait for.
    Nor are those of a job that is not `planned`, which another system has started.
    """
    if job.suspend or job.finished or job.deleting or job.released:
        return None  # its claims are for ports only
    if not (planned or any(pod.gated for pod in pods)):
        return None  # not placed by kfext
    if job.excess:
        return None  # kfext does not wait for so many
    if len(present(job, pods)) >= job.pods:
        return None
    if not planned or any(pod.node_name and not pod.deleting for pod in pods):
        return 0
    return max(job.pods - len(pods), 0)
