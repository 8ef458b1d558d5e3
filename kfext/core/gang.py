"""A gang: all pods of one job, each with what it asks of a node, in rank order."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kfext.model.constraints import Constraints
from kfext.model.job import TrainingJob
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.quantity import Resources


@dataclass(frozen=True, slots=True)
class Member:
    """One pod of a gang. `guaranteed` is its QoS class, which scores differently."""

    key: ReplicaKey
    requests: Resources
    constraints: Constraints
    guaranteed: bool


@dataclass(frozen=True, slots=True)
class Gang:
    """The members still to be placed, in rank order, and their requests as a matrix.

    `resources` names the columns of `requests`, shape (members, resources).
    """

    members: tuple[Member, ...]
    resources: tuple[str, ...]
    requests: NDArray[np.int64]

    @property
    def total(self) -> NDArray[np.int64]:
        """What all members request together, shape (resources,)."""
        summed: NDArray[np.int64] = self.requests.sum(axis=0)
        return summed

    @property
    def guaranteed(self) -> bool:
        """Whether no member can use more CPU or memory than it requests."""
        return all(member.guaranteed for member in self.members)

    @property
    def ports_clash(self) -> bool:
        """Whether two members want the same host port, so that one node cannot hold all."""
        ports = [port for member in self.members for port in member.constraints.host_ports]
        return len(ports) != len(set(ports))

    @property
    def constraints(self) -> tuple[Constraints, ...]:
        """The different constraints in the gang, in rank order."""
        return tuple(dict.fromkeys(member.constraints for member in self.members))


def gang(members: Iterable[Member]) -> Gang:
    """Return the gang of some members."""
    ordered = tuple(members)
    resources = tuple(sorted({name for member in ordered for name in member.requests}))
    # Replicas of one type share their requests; one row is built for each type.
    rows: dict[int, list[int]] = {}
    for member in ordered:
        if id(member.requests) not in rows:
            rows[id(member.requests)] = [member.requests.get(name, 0) for name in resources]
    matrix = np.array([rows[id(member.requests)] for member in ordered], dtype=np.int64)
    return Gang(
        members=ordered,
        resources=resources,
        requests=matrix.reshape(len(ordered), len(resources)),
    )


def members_of(job: TrainingJob, pods: Iterable[Pod] = ()) -> list[Member]:
    """Return every replica of a job in rank order.

    A pod that exists says itself what it asks for (admission may have changed it); a replica
    without a pod asks for what its template says.
    """
    existing = {pod.replica: pod for pod in pods}
    members = []
    for key, group in job.replicas():
        pod = existing.get(key)
        if pod is None or pod.constraints is None:
            member = Member(key, group.requests, group.constraints, group.guaranteed)
        else:
            member = Member(key, pod.requests, pod.constraints, pod.guaranteed)
        members.append(member)
    return members
