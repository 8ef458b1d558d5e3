"""Jobs drawn at random, over every field of a pod spec that kube-scheduler reads.

Everything comes from one seed. A job has one hard term, in turn, and some mild ones, so that most
jobs can be bound.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from e2e.harness.jobs import job, specs
from e2e.harness.kube import Object
from e2e.harness.odd_terms import (
    ARM,
    DEVICES,
    HARD,
    LATE,
    MILD,
    NAME,
    ON_VOLUMES,
    PREEMPTING,
    SHUNNED,
)
from e2e.harness.odd_world import JOB, World

_SHAPES: tuple[tuple[str, Mapping[str, int]], ...] = (
    ("PyTorchJob", {"Master": 1, "Worker": 1}),
    ("PyTorchJob", {"Master": 1, "Worker": 2}),
    ("PyTorchJob", {"Worker": 3}),
    ("TFJob", {"PS": 1, "Worker": 2}),
    ("TFJob", {"Chief": 1, "PS": 1, "Worker": 1}),
)


@dataclass(frozen=True, slots=True)
class OddJob:
    """A job with the world that it comes to; `asks` names its terms."""

    number: int
    asks: tuple[str, ...]
    world: World
    late: bool
    _manifest: Object = field(repr=False)

    def manifest(self, arm: str) -> Object:
        """Return its manifest for a namespace."""
        found: Object = json.loads(json.dumps(self._manifest).replace(ARM, arm))
        return found

    @property
    def kind(self) -> str:
        kind: str = self._manifest["kind"]
        return kind

    @property
    def pods(self) -> int:
        return sum(spec["replicas"] for spec in specs(self._manifest).values())


def odd_job(seed: int, number: int) -> OddJob:
    """Return the job of a number; the same for the same seed."""
    draw = random.Random(f"{seed}-{number}")
    kind, replicas = draw.choice(_SHAPES)
    each = {"cpu": f"{draw.choice((500, 1000, 1500))}m", "memory": f"{draw.choice((1, 2))}Gi"}
    if draw.randrange(4) == 0:
        each["nvidia.com/gpu"] = "1"
    manifest = job(NAME, replicas, kind=kind, each=each)
    hard = list(HARD)[number % len(HARD)]
    mild = draw.sample(list(MILD), draw.choice((0, 1, 1, 2)))
    templates = [one["template"] for one in specs(manifest).values()]
    for template in templates:
        template["metadata"] = {"labels": dict(JOB)}
    for act in (HARD[hard], *(MILD[name] for name in mild)):
        act(draw, [template["spec"] for template in templates])
    world = World(
        filled=True,
        crowded=hard == PREEMPTING,
        shunned=hard == SHUNNED,
        storage=hard in ON_VOLUMES,
        devices=hard == DEVICES,
    )
    return OddJob(number, (hard, *mild), world, hard == LATE, manifest)
