"""A plan: the node of each replica of a job. It is stored as JSON on the job."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType

from kfext.model.bounds import LONGEST_SETTING, MAX_ANNOTATION_BYTES, MAX_PODS
from kfext.model.gpu import MAX_SLOTS, GpuShare, decode_share, encode_share
from kfext.model.job import TrainingJob
from kfext.model.networking import LARGEST_PORT
from kfext.model.pod import ReplicaKey
from kfext.model.tolerant import json_object, mapping, sequence, text
from kfext.names import GPU_SHARE, PLAN

Assignment = Mapping[ReplicaKey, str]
"""The name of the node of each replica."""

Slots = Mapping[ReplicaKey, int]
"""The slot, on the replica's node, of each replica that shares a GPU."""
NO_SLOTS: Slots = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Places:
    """The node of each member of a gang, and the slots of the members that share GPUs."""

    nodes: Assignment
    slots: Slots


LARGEST_GENERATION = 2**31 - 1
MAX_SHARES = 5
"""The largest number of replica types of any kind of job."""
_LONGEST_WHY = 512


@dataclass(frozen=True, slots=True)
class Plan:
    """The placement of a whole job.

    `job_uid`: the uid of the job; a plan with another uid was copied with its manifest.
    `generation`: the number of the plan, counted from 1 for each job.
    `assignment`: the node of each replica.
    `port`: the first port of the job on the host network; 0 for a job on the pod network.
    `shares`: the terms of the GPU shares, by replica type in lower case.
    `slots`: the slots of the GPU shares.
    `why`: the reason for the plan in a sentence; at most 512 characters are stored.
    `late`: the replicas that the gang does not need to train: they were added after the start, or
        replace pods that had succeeded.
    """

    job_uid: str
    generation: int
    assignment: Assignment = field(default_factory=dict)
    port: int = 0
    shares: Mapping[str, GpuShare] = field(default_factory=dict)
    slots: Slots = field(default_factory=dict)
    why: str = ""
    late: frozenset[ReplicaKey] = frozenset()

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the plan, in name order."""
        return tuple(sorted(set(self.assignment.values())))

    def encode(self) -> str:
        """Return compact JSON with the position of each replica's node in a list.

        `replicas` has a list for each type: at the replica's index, the position of its node in
        `nodes`, or -1 for no node. `slots` has numbers of slots in the same form, and `late` has 0
        for each late replica.
        """
        shares = {type_: encode_share(share) for type_, share in sorted(self.shares.items())}
        return json.dumps(
            {
                "uid": self.job_uid,
                "generation": self.generation,
                **({"port": self.port} if self.port else {}),
                **({"why": self.why[:_LONGEST_WHY]} if self.why else {}),
                **encode_places(self.assignment),
                **({"late": _by_type(dict.fromkeys(self.late, 0))} if self.late else {}),
                **({"slots": _by_type(self.slots)} if self.slots else {}),
                **({"shares": shares} if shares else {}),
            },
            separators=(",", ":"),
        )


def places_of_type(plan: Plan, type_: str) -> str:
    """Return the annotation PLACES for the templates of a replica type in lower case."""
    nodes = {key: node for key, node in plan.assignment.items() if key.type == type_}
    return json.dumps({"uid": plan.job_uid, **encode_places(nodes)}, separators=(",", ":"))


def place_in(written: str, replica: ReplicaKey, *, job_uid: str) -> str | None:
    """Return the node of a replica in the annotation PLACES of a job, or None. Never raises."""
    if len(written) > LONGEST_SETTING:
        return None
    raw = json_object(written)
    return decode_places(raw).get(replica) if job_uid and raw.get("uid") == job_uid else None


def encode_places(assignment: Assignment) -> dict[str, object]:
    """Return the nodes of replicas in the stored form: see `Plan.encode`."""
    nodes = sorted(set(assignment.values()))
    positions = {node: position for position, node in enumerate(nodes)}
    places = {key: positions[node] for key, node in assignment.items()}
    return {"nodes": nodes, "replicas": _by_type(places)}


def decode_places(raw: Mapping[str, object]) -> dict[ReplicaKey, str]:
    """Return the nodes of replicas, without damaged entries. Never raises."""
    nodes = [text(name) for name in sequence(raw.get("nodes"))]
    positions = _numbers(raw.get("replicas"), below=len(nodes))
    return {key: nodes[position] for key, position in positions}


def _by_type(numbers: Mapping[ReplicaKey, int]) -> dict[str, list[int]]:
    """Return the numbers of replicas by type, each at the replica's index; -1 fills the gaps."""
    types: dict[str, dict[int, int]] = {}
    for key, number in numbers.items():
        types.setdefault(key.type, {})[key.index] = number
    return {
        type_: [by_index.get(index, -1) for index in range(max(by_index) + 1)]
        for type_, by_index in sorted(types.items())
    }


def plan_of(job: TrainingJob) -> Plan | None:
    """Return the plan of a job; None means that it has no plan that kfext may have written for it.

    A plan claims capacity, and any editor of a job might write the annotation. So the plan must
    name this job, and kfext must place the job.
    """
    if not job.run_by_operator or job.excess:
        return None
    return decode_plan(job.annotations.get(PLAN), job_uid=job.uid)


def shares_gpus(job: TrainingJob, plan: Plan | None) -> bool:
    """Return whether a job asks for a GPU share, or started with a share."""
    requested = GPU_SHARE in job.annotations or GPU_SHARE in job.template_settings
    return requested or (plan is not None and bool(plan.shares))


def decode_plan(written: str | None, *, job_uid: str) -> Plan | None:
    """Return the plan in an annotation, or None for an absent, damaged, large or foreign plan."""
    if not written or len(written) > MAX_ANNOTATION_BYTES:
        return None
    raw = json_object(written)
    generation = raw.get("generation")
    if not job_uid or raw.get("uid") != job_uid or type(generation) is not int:
        return None
    size = sum(
        len(sequence(numbers))
        for field_ in ("replicas", "slots", "late")
        for numbers in mapping(raw.get(field_)).values()
    )
    if not 0 < generation <= LARGEST_GENERATION or size > 2 * MAX_PODS:
        return None
    assignment = decode_places(raw)
    if len(assignment) > MAX_PODS:
        return None
    terms = islice(mapping(raw.get("shares")).items(), MAX_SHARES)
    decoded = ((type_, decode_share(share)) for type_, share in terms)
    shares = {type_: share for type_, share in decoded if share is not None}
    slots = _numbers(raw.get("slots"), below=MAX_SLOTS)
    port = raw.get("port")
    return Plan(
        job_uid=job_uid,
        generation=generation,
        assignment=assignment,
        port=port if type(port) is int and 0 < port <= LARGEST_PORT else 0,
        shares=shares,
        slots={key: slot for key, slot in slots if key in assignment and key.type in shares},
        why=text(raw.get("why"))[:_LONGEST_WHY],
        late=frozenset(key for key, _ in _numbers(raw.get("late"), below=1) if key in assignment),
    )


def _numbers(written: object, *, below: int) -> Iterator[tuple[ReplicaKey, int]]:
    """Yield each replica that has a number of at least 0 and less than `below`, with the number."""
    for type_, numbers in mapping(written).items():
        for index, number in enumerate(sequence(numbers)):
            if type(number) is int and 0 <= number < below:
                yield ReplicaKey(type=type_, index=index), number
