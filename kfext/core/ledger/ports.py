"""Ports for jobs on the host network: a block per job, free on each node where a pod listens.

The port of a replica is the base of the block plus the offset of the replica. The offset does not
depend on the number of workers, so a job may scale up. PyTorch's own connections use ephemeral
ports and need no port of the block.
"""

import zlib
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace

from kfext.core.ledger.claim import Claim
from kfext.core.ledger.ledger import Ledger
from kfext.model.job import TrainingJob
from kfext.model.networking import TCP, Port
from kfext.model.plan import Assignment, Plan
from kfext.model.pod import ReplicaKey


def with_host_ports(job: TrainingJob) -> TrainingJob:
    """Return the job with its declared ports as host ports, which the solver reads."""
    return replace(
        job,
        groups=tuple(
            replace(
                group,
                constraints=replace(
                    group.constraints,
                    host_ports=tuple(
                        sorted({*group.constraints.host_ports, *group.networking.ports})
                    ),
                ),
            )
            if group.networking.ports
            else group
            for group in job.groups
        ),
    )


def offsets(job: TrainingJob, keys: Iterable[ReplicaKey] | None = None) -> Mapping[ReplicaKey, int]:
    """Return the port offset of each replica that declares a port on the host network.

    `keys`: the replicas to consider; by default all replicas of the job.
    """
    keys = (key for key, _ in job.replicas()) if keys is None else job.within(keys)
    by_key = {key: job.kind.port_offset(job, key.type, key.index) for key in keys}
    return {key: offset for key, offset in by_key.items() if offset is not None}


def block(job: TrainingJob, base: int) -> tuple[Port, ...]:
    """Return the ports that a job listens on, if its block begins at `base`."""
    return tuple((TCP, base + offset) for offset in sorted(set(offsets(job).values())))


def free_base(
    job: TrainingJob, places: Assignment, ledger: Ledger, *, ports: tuple[int, int]
) -> int | None:
    """Return a base at which the port of each listener is free and within `ports`, or None.

    `places`: the nodes of the replicas.
    `ports`: the first and the last port that kfext may use.
    The start of the search depends on the job, so that the next job does not use a port that was
    just freed: late connections to the earlier job would reach it.
    """
    low, high = ports
    by_key = offsets(job)
    listeners = [(places[key], offset) for key, offset in by_key.items() if key in places]
    bases = high - low + 1 - max(by_key.values(), default=0)
    if bases <= 0:
        return None
    taken = {(claim.node, number) for claim, number in _taken(ledger, listeners)}
    declared = {number for group in job.groups for _, number in group.networking.ports}
    start = zlib.crc32(job.uid.encode()) % bases
    for step in range(bases):
        base = low + (start + step) % bases
        if not any(
            (node, base + offset) in taken or base + offset in declared
            for node, offset in listeners
        ):
            return base
    return None


def port_claims(job: TrainingJob, plan: Plan) -> Mapping[Hashable, Claim]:
    """Return the claims of the ports that a job on the host network listens on, by node."""
    by_node: dict[str, set[Port]] = {}
    # Only the replicas of the plan: the job may have been edited to any number of replicas.
    for key, offset in offsets(job, plan.assignment).items():
        if node := plan.assignment.get(key):
            by_node.setdefault(node, set()).add((TCP, plan.port + offset))
    return {
        ("ports", job.uid, node): Claim(
            node=node, requests={}, host_ports=tuple(sorted(ports)), job=job.uid
        )
        for node, ports in by_node.items()
    }


def ports_available(
    job: TrainingJob, larger: TrainingJob, plan: Plan, *, places: Assignment, ledger: Ledger
) -> bool:
    """Return whether a job can scale up to the size of `larger` without a new block of ports.

    Its pods must keep their ports, and the ports of the new pods must be free on their nodes:
    other jobs may use the ports after the end of the block.
    """
    present, new_offsets = offsets(job, plan.assignment), offsets(larger)
    if any(new_offsets.get(key) != offset for key, offset in present.items()):
        return False
    new = [
        (places[key], plan.port + offset)
        for key, offset in new_offsets.items()
        if key not in present and key in places
    ]
    claims = _taken(ledger, new)
    taken = {(claim.node, number) for claim, number in claims if claim.job != job.uid}
    return not taken.intersection(new)


def _taken(ledger: Ledger, listeners: Iterable[tuple[str, int]]) -> Iterator[tuple[Claim, int]]:
    """Yield the TCP ports that are taken on the nodes of listeners, each with its claim."""
    for claim in ledger.claims_on({node for node, _ in listeners}):
        yield from ((claim, number) for protocol, number in claim.host_ports if protocol == TCP)
