"""Who starts and scales the jobs of the stream."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from e2e.bench.companion.arms import AGAIN, DECIDES, PLAIN
from e2e.bench.companion.site import Pods
from e2e.bench.model import dragon
from e2e.bench.stream import seats
from e2e.bench.stream.seats import Seats, carry_out
from e2e.bench.stream.workload import StreamJob
from e2e.harness.elastic_jobs import with_policy
from e2e.harness.jobs import specs
from e2e.testbed.paths import REPOSITORY
from e2e.testbed.realnodes import Node
from kfext.model.kinds.pytorchjob import LAST_CALL_SECONDS

Object = dict[str, Any]
OFF, OURS, PUBLISHED = "kfext, scale off", "kfext", "DRAGON as published"
QUICK_PARAMETERS: Mapping[str, float] = {"wait": 5, "idle": 10, "rest": 15}
"""Of the policy of scaling, in a run of a few minutes."""
_SCHEDULER = "dragon"
"""No scheduler has this name, so that nothing else binds the pods."""


class Arm:
    """One way to start and scale jobs; as it stands, plain Kubernetes.

    A new one is made for each run. `managed`: whether kfext handles the namespace; `scale`: its
    policy there. `sources`: files and folders on which the runs depend.
    """

    managed = False
    scale: Mapping[str, Any] = {"mode": "off"}
    sources: Sequence[Path] = ()

    def start(self, pods: Pods, members: Sequence[Node], *, now: float) -> None:
        """Begin to act in a namespace in which there is nothing yet."""

    def submitted(self, job: StreamJob, body: Object, *, now: float) -> Object:
        """Register a job that comes; return what is submitted of it."""
        return body

    def look(self, jobs: Mapping[str, Object], pods: Sequence[Object], *, now: float) -> None:
        """Act if it is time to; called about once a second with all that is there."""


class Kfext(Arm):
    """kfext with some policy of scaling."""

    managed = True
    sources = tuple(REPOSITORY / "kfext" / package for package in DECIDES)

    def __init__(self, mode: str, parameters: Mapping[str, float]) -> None:
        self.scale = {"mode": mode, "parameters": dict(parameters)}


class Dragon(Arm):
    """DRAGON as published: jobs are suspended until it starts them, and it binds their pods.

    The jobs of torchrun have what lets workers come and go, with the settings that kfext writes, so
    that policies are compared and not these. Their workers meet at the first one, which DRAGON
    never takes.
    """

    sources = tuple(Path(str(module.__file__)) for module in (dragon, seats))

    def start(self, pods: Pods, members: Sequence[Node], *, now: float) -> None:
        self._pods = pods
        self._seats = Seats(
            {node.name: (node.millicores, node.memory) for node in members}, began=now
        )

    def submitted(self, job: StreamJob, body: Object, *, now: float) -> Object:
        self._seats.submit(job, now=now)
        if job.elastic and job.kind == "PyTorchJob":
            last_call = LAST_CALL_SECONDS
            body = with_policy(body, least=job.least, most=job.most, last_call=last_call)
        for spec in specs(body).values():
            spec["template"]["spec"]["schedulerName"] = _SCHEDULER
        body["spec"].setdefault("runPolicy", {})["suspend"] = True
        return body

    def look(self, jobs: Mapping[str, Object], pods: Sequence[Object], *, now: float) -> None:
        for command in self._seats.look(jobs, pods, now=now):
            carry_out(command, self._pods)


Makers = Mapping[str, Callable[[], Arm]]
"""How each arm is made, by its name."""


def arms(parameters: Mapping[str, float]) -> Makers:
    """Return plain Kubernetes twice, kfext without its policy and with it, and DRAGON."""
    return {
        PLAIN: Arm,
        AGAIN: Arm,
        OFF: lambda: Kfext("off", {}),
        OURS: lambda: Kfext("act", parameters),
        PUBLISHED: Dragon,
    }
