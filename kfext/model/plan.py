"""A plan: which node each replica of a job goes to. It is stored as JSON on the job."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from kfext.model.bounds import MOST_ANNOTATION_BYTES, MOST_PODS
from kfext.model.job import TrainingJob
from kfext.model.networking import LARGEST_PORT
from kfext.model.pod import ReplicaKey
from kfext.model.tolerant import mapping, sequence, text
from kfext.names import PLAN

Assignment = Mapping[ReplicaKey, str]
"""The name of each replica's node."""

LARGEST_GENERATION = 2**31 - 1
_LONGEST_WHY = 512


@dataclass(frozen=True, slots=True)
class Plan:
    """The placement of a whole job.

    `job_uid`: the uid of the job; a plan with another uid was copied with a manifest and is
        ignored.
    `generation`: the number of the plan, counted from 1 for each job.
    `assignment`: the node of each replica.
    `port`: the first of the job's ports if its pods use their node's network, else 0.
    `why`: the reason for it in a sentence, at most 512 characters of which are stored.
    """

    job_uid: str
    generation: int
    assignment: Assignment = field(default_factory=dict)
    port: int = 0
    why: str = ""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the plan, in name order."""
        return tuple(sorted(set(self.assignment.values())))

    def encode(self) -> str:
        """Return compact JSON, in which replicas refer to nodes by their position in a list.

        `replicas` has a list for each type: at the replica's index, the position of its node in
        `nodes`, or -1 if it has none.
        """
        number = {node: position for position, node in enumerate(self.nodes)}
        replicas: dict[str, dict[int, int]] = {}
        for key, node in self.assignment.items():
            replicas.setdefault(key.type, {})[key.index] = number[node]
        return json.dumps(
            {
                "uid": self.job_uid,
                "generation": self.generation,
                **({"port": self.port} if self.port else {}),
                **({"why": self.why[:_LONGEST_WHY]} if self.why else {}),
                "nodes": list(self.nodes),
                "replicas": {
                    kind: [places.get(index, -1) for index in range(max(places) + 1)]
                    for kind, places in sorted(replicas.items())
                },
            },
            separators=(",", ":"),
        )


def plan_of(job: TrainingJob) -> Plan | None:
    """Return the plan of a job, None without one that kfext can have written for it.

    Whoever may edit a job might write the annotation, and what a plan claims others do not get. So
    it must be a plan of this job, which the operator runs, and which kfext places.
    """
    if not job.run_by_operator or job.excess:
        return None
    return decode_plan(job.annotations.get(PLAN), job_uid=job.uid)


def decode_plan(written: str | None, *, job_uid: str) -> Plan | None:
    """Return the plan in an annotation; None if it is absent, damaged, too large or another job's.

    Its length is looked at before anything else.
    """
    if not written or len(written) > MOST_ANNOTATION_BYTES:
        return None
    try:
        raw = mapping(json.loads(written))
    except (ValueError, RecursionError):
        return None
    generation = raw.get("generation")
    if not job_uid or raw.get("uid") != job_uid or type(generation) is not int:
        return None
    size = sum(len(sequence(places)) for places in mapping(raw.get("replicas")).values())
    if not 0 < generation <= LARGEST_GENERATION or size > MOST_PODS:
        return None
    nodes = [text(name) for name in sequence(raw.get("nodes"))]
    assignment = {
        ReplicaKey(type=kind, index=index): nodes[place]
        for kind, places in mapping(raw.get("replicas")).items()
        for index, place in enumerate(sequence(places))
        if type(place) is int and 0 <= place < len(nodes)
    }
    port = raw.get("port")
    return Plan(
        job_uid=job_uid,
        generation=generation,
        assignment=assignment,
        port=port if type(port) is int and 0 < port <= LARGEST_PORT else 0,
        why=text(raw.get("why"))[:_LONGEST_WHY],
    )
