"""A job of a parameter server and a worker whose CPU limits were chosen well, or badly.

One node, one worker, asynchronous training: a step needs CPU of both, one after the other, so the
one with too little decides how long it takes. Both may use `_BOTH` of the node together.
"""

from dataclasses import dataclass
from typing import Any

from e2e.bench.companion.pods import REQUEST
from e2e.bench.companion.workload import Schedule
from e2e.harness.jobs import job, template
from e2e.testbed.images import TENSORFLOW_IMAGE

Object = dict[str, Any]
_BOTH = 900
"""Millicores, of a node of 1000."""
_STEP_CPU = {"PS": 0.0070, "Worker": 0.0095}
"""CPU seconds of a step, by type, measured on a core of an AMD EPYC."""
_MEMORY = "256Mi"


@dataclass(frozen=True, slots=True)
class Split:
    """A job that comes at once; `server`: what the parameter server has of `_BOTH`, millicores."""

    name: str
    steps: int
    server: int
    seconds: float = 0.0
    kind: str = "TFJob"

    @property
    def pod(self) -> str:
        """The pod of the worker; the server never ends by itself."""
        return f"{self.name}-worker-0"

    @property
    def lasts(self) -> float:
        """About how long it takes if its limits stay, in seconds."""
        limits = {"PS": self.server, "Worker": _BOTH - self.server}
        slowest = max(1000 * cpu / limits[type_] for type_, cpu in _STEP_CPU.items())
        return self.steps * slowest

    def manifest(self) -> Object:
        """Return what is submitted: Burstable, its limits add up to `_BOTH`."""
        body = job(
            self.name, {"PS": 1, "Worker": 1}, kind=self.kind, policy={"cleanPodPolicy": "None"}
        )
        limits = {"PS": self.server, "Worker": _BOTH - self.server}
        for type_, limit in limits.items():
            pod = template(body, type_)["spec"]
            pod["terminationGracePeriodSeconds"] = 1  # a server would take all of it
            (container,) = pod["containers"]
            container |= {
                "image": TENSORFLOW_IMAGE,
                "imagePullPolicy": "IfNotPresent",
                "command": ["python3", "/jobs/train_tf.py", "--steps", str(self.steps)],
                "resources": {
                    "requests": {"cpu": REQUEST, "memory": _MEMORY},
                    "limits": {"cpu": f"{limit}m"},
                },
            }
        return body


def _schedule(name: str, *, steps: int, server: int) -> Schedule:
    one = Split(name, steps, server)
    return Schedule(name, (one,), interval=30, lasts=one.lasts)


def schedules(part: float = 1.0) -> tuple[Schedule, ...]:
    """Return a well-split job and two badly split ones, with a part of their steps."""
    server = round(_BOTH * _STEP_CPU["PS"] / sum(_STEP_CPU.values()))
    return (
        _schedule("well-split", steps=round(10_000 * part), server=server),
        _schedule("server-starved", steps=round(3500 * part), server=100),
        _schedule("worker-starved", steps=round(3500 * part), server=_BOTH - 135),
    )
