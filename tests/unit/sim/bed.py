"""A simulated cluster that a test stops at any second to change objects."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

from kfext.core.lifecycle.steps import Rescale, Suspend
from kfext.core.patches.json_patch import pointer
from kfext.errors import ApiError, Conflict
from kfext.model.pod import ReplicaKey
from kfext.model.policy import Mode, PolicyChoice, TrainingPolicy
from kfext.names import CHECKPOINT_REQUEST
from kfext.sim.cluster import Cluster, World
from kfext.sim.jobs import JobSpec, Pace, Saving, Style
from kfext.sim.nodes import NodeSize, node
from kfext.sim.objects import LiveJob
from kfext.state.planner.planner import Planner
from tests.unit.sim.faults import inject

TORCHRUN = JobSpec(
    "train", "PyTorchJob", Style.TORCHRUN, 5.0, 2, Pace(1.0, 0.0, 0.0), 2000, bounds=(1, 4)
)
SERVERS = replace(TORCHRUN, kind="TFJob", style=Style.SERVERS, servers=1)
STATIC = replace(SERVERS, style=Style.GANG, bounds=None)
MASTER = replace(TORCHRUN, style=Style.GANG, bounds=None, leaders=1)

LONG = replace(TORCHRUN, workers=4, bounds=(2, 4), steps=8000, saving=Saving.ON_REQUEST)
PERIODIC = replace(LONG, saving=Saving.PERIODIC, every=20)
DYNAMIC = replace(SERVERS, workers=3, bounds=(1, 3), steps=8000)
ANEW = replace(DYNAMIC, style=Style.GANG, saving=Saving.PERIODIC, every=20)
"""A TFJob that has to restart from its checkpoint to change its size."""
GANG = JobSpec("gang", "PyTorchJob", Style.GANG, 100.0, 2, Pace(1.0, 0.0, 0.0), 100, deadline=600)
WITHOUT = TrainingPolicy("without", companion={"scale": PolicyChoice(Mode.OFF)})
"""The policy under which no running job changes its size."""
CONFLICT = Conflict(status=409, reason="Conflict", message="it has changed")


class Bed(Cluster):
    """A cluster that stops at any second, so that a test can change jobs."""

    def __init__(
        self,
        *jobs: JobSpec,
        policy: TrainingPolicy | None = WITHOUT,
        late_writes: bool = True,
        **nodes: int,
    ) -> None:
        sizes = {name: NodeSize(cpu) for name, cpu in (nodes or {"a": 8000}).items()}
        world = World(sizes, jobs)
        super().__init__(world, 0, policy=policy, late_writes=late_writes)
        self.faults = inject(self, restart=self.restart)

    def after(self, seconds: float) -> Self:
        """Run for these seconds."""
        return self.at(self.clock.now + seconds)

    def job(self, name: str = "train") -> LiveJob:
        self.api.jobs[f"uid-{name}"].training.advance()
        return self.api.jobs[f"uid-{name}"]

    def write(self, name: str, *path: str, value: Any) -> None:
        live = self.job(name)
        self.api.patch_job(live.uid, [{"op": "add", "path": pointer(*path), "value": value}])

    def scale(self, workers: int, name: str = "train") -> None:
        specs = self.job(name).job.kind.replica_specs
        self.write(name, "spec", specs, "Worker", "replicas", value=workers)

    def suspend(self, *, suspend: bool = True, name: str = "train") -> None:
        self.write(name, "spec", "runPolicy", "suspend", value=suspend)

    def annotate(self, key: str, value: str | None, name: str = "train") -> None:
        self.write(name, "metadata", "annotations", key, value=value)

    def lose(self, name: str) -> None:
        """Lose a node and its pods."""
        self.planner.cluster.observe_node(node(name, self.world.nodes[name]), None)
        self.faults.closed.add(name)
        pods = [live for job in self.jobs for live in job.pods.values()]
        for live in [live for live in pods if live.pod.node_name == name]:
            self.api.mark_deleted(live)
            self.api.remove_pod(live)

    def regain(self, name: str) -> None:
        """Bring a lost node back, without pods."""
        self.planner.cluster.observe_node(None, node(name, self.world.nodes[name]))
        self.faults.closed.discard(name)

    def restart(self) -> None:
        """Replace the controller; the new one knows only the objects of the API server."""
        self.driver.planner = self.planner = Planner(wake=self._wake)
        self._show_world()
        self.api.show_to(self.planner)

    def ask(self, number: int) -> None:
        """Request checkpoint `number` from the first worker of `train`."""
        pod = self.job().pods[ReplicaKey("worker", 0)].pod
        path = pointer("metadata", "annotations", CHECKPOINT_REQUEST)
        self.api.patch_pod(pod, [{"op": "add", "path": path, "value": str(number)}])


def refuse(
    bed: Bed, chosen: Callable[[str, Any], bool], error: ApiError = CONFLICT, *, times: int = 1
) -> list[float]:
    """Refuse the next writes that `chosen` selects by uid and patch; return their times."""
    refused: list[float] = []

    def refusal(uid: str, change: Any) -> ApiError | None:
        if len(refused) == times or not chosen(uid, change):
            return None
        refused.append(bed.clock.now)
        return error

    bed.faults.refusal = refusal
    return refused


def resizes(change: Any) -> bool:
    """Return whether a patch changes the number of workers of a job."""
    return any(
        operation["op"] != "test" and "replicas" in operation["path"] for operation in change or ()
    )


def scaled_bed(*jobs: JobSpec, cpu: int = 4000) -> Bed:
    """A cluster of one node in which jobs are scaled."""
    return Bed(*jobs, policy=None, a=cpu)


def sizes(bed: Bed, name: str = "train") -> list[int]:
    """The sizes that kfext has given a job, in order."""
    steps = [write.step for write in bed.driver.written if write.job == name and not write.refused]
    return [
        step.workers
        for step in steps
        if isinstance(step, Rescale | Suspend) and step.workers is not None
    ]
