"""A model cluster that a test stops at any second and in which it changes things by hand."""

from dataclasses import replace
from typing import Any

from kfext.core.lifecycle.steps import Rescale, Suspend
from kfext.core.patches.json_patch import pointer
from kfext.model.node import Node
from kfext.model.pod import ReplicaKey
from kfext.state.planner import Planner
from tests.builders import node
from tests.unit.fluid.cluster import Cluster, World
from tests.unit.fluid.jobs import JobSpec, Pace, Saving, Style
from tests.unit.fluid.live import REQUEST, LiveJob

TORCHRUN = JobSpec(
    "train", "PyTorchJob", Style.TORCHRUN, 5.0, 2, Pace(1.0, 0.0, 0.0), 2000, bounds=(1, 4)
)
SERVERS = replace(TORCHRUN, kind="TFJob", style=Style.SERVERS, servers=1)
STATIC = replace(SERVERS, style=Style.GANG, bounds=None)
MASTER = replace(TORCHRUN, style=Style.GANG, bounds=None, masters=1)

LONG = replace(TORCHRUN, workers=4, bounds=(2, 4), steps=8000, saving=Saving.ON_REQUEST)
PERIODIC = replace(LONG, saving=Saving.PERIODIC, every=20)
DYNAMIC = replace(SERVERS, workers=3, bounds=(1, 3), steps=8000)
ANEW = replace(DYNAMIC, style=Style.GANG, saving=Saving.PERIODIC, every=20)
"""A TFJob that has to start anew to change its size."""
GANG = JobSpec("gang", "PyTorchJob", Style.GANG, 100.0, 2, Pace(1.0, 0.0, 0.0), 100)


class Bed(Cluster):
    """A cluster that is stopped at any second, and in which people change jobs by hand."""

    def __init__(self, *jobs: JobSpec, policy: bool = False, **nodes: int) -> None:
        super().__init__(0, policy=policy, world=World(nodes or {"a": 8000}, jobs))

    def at(self, second: float) -> "Bed":
        self.run(until=second)
        return self

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

    def annotate(self, key: str, value: str, name: str = "train") -> None:
        self.write(name, "metadata", "annotations", key, value=value)

    def lose(self, name: str) -> None:
        """Take a node away, with its pods."""
        self.planner.cluster.observe_node(self._node(name), None)
        self.kubelets.lose(name)

    def regain(self, name: str) -> None:
        """Bring a node back."""
        self.planner.cluster.observe_node(None, self._node(name))
        self.kubelets.regain(name)

    def _node(self, name: str) -> Node:
        return node(name, cpu=f"{self.world.nodes[name]}m")

    def restart(self) -> None:
        """Have another controller take over, which knows what the API server knows."""
        self.planner = self.driver.planner = Planner(wake=self._wake)
        self.api.show_to(self.planner)
        self._show_world(policy=self.policy)
        for live in self.api.jobs.values():
            for pod in live.pods.values():
                self.planner.cluster.observe_pod(None, pod.pod)
            self.planner.cluster.observe_job(live.raw)

    def ask(self, number: int) -> None:
        pod = self.job().pods[ReplicaKey("worker", 0)].pod
        path = pointer("metadata", "annotations", REQUEST)
        assert self.api.patch_pod(pod, [{"op": "add", "path": path, "value": str(number)}])


def scaled_bed(*jobs: JobSpec, cpu: int = 4000) -> Bed:
    """A cluster of one node in which jobs are scaled."""
    return Bed(*jobs, policy=True, a=cpu)


def sizes(of: Bed, name: str = "train") -> list[int]:
    """The sizes that kfext has given a job, in order."""
    steps = [one.step for one in of.driver.written if one.job == name and not one.refused]
    return [
        step.workers
        for step in steps
        if isinstance(step, Rescale | Suspend) and step.workers is not None
    ]
