"""A test bed: a simulated node with jobs that share its CPU, and actions of users and operators."""

from collections.abc import Iterator
from typing import Any, Self

from kfext import names
from kfext.core.lifecycle.steps import Resize, Unsuspend
from kfext.core.patches.pod import resize as resize_patch
from kfext.model.cpu_size import CpuSize, TrainerCpu
from kfext.model.namespace import Namespace
from kfext.model.pod import ReplicaKey
from kfext.model.policy import TrainingPolicy
from kfext.sim.api import TEAM
from kfext.sim.jobs import TENSORFLOW, JobSpec, Pace, Style
from kfext.sim.objects import LiveJob, LivePod
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.running.policy import ConditionStatus
from tests.unit.sim.bed import Bed

NODE_CPU, SCAN_SECONDS = 1400, 10.0
"""The millicores of the node, and the seconds between two scans of the companion."""
CPU = 20
"""The millicores that a pod requests."""
STEPS = 100
"""The steps that a job makes in a core-second."""
ENDLESS = 10**7
"""Core-seconds that no job uses up in a test."""
WORKER = ReplicaKey("worker", 0)


def one_worker_job(
    name: str,
    *,
    size: int,
    loss_half_life: float = 300.0,
    pace: float | None = None,
    work: float | None = None,
    **fields: Any,
) -> JobSpec:
    """Return a job with one worker, which can use up to `size` millicores.

    `loss_half_life`: the core-seconds in which its loss halves.
    `pace`: its steps per second, independent of its CPU; None means proportional to its CPU.
    `work`: the core-seconds until its end; None means that it is endless, and its log shows no end.
    """
    defaults: dict[str, Any] = {
        "kind": TENSORFLOW,
        "style": Style.SERVERS,
        "arrives": 0.0,
        "workers": 1,
        "pace": Pace(0.0, 1 / pace, 0.0) if pace else Pace(1000 / (STEPS * size), 0.0, 0.0),
        "steps": round(STEPS * (work or ENDLESS)),
        "shows_end": work is not None,
        "halves": STEPS * loss_half_life,
        "cpu": CPU,
        "uses": size,
        "limit": 0,
        # seconds to Running, then to the first step, and between log lines: see JobSpec
        "starts": 0.0,
        "meets": 0.0,
        "prints": 3.0,
        "resize": "cpu",
    }
    return JobSpec(name, **{**defaults, **fields})


class CpuBed(Bed):
    """A node that gets jobs when the test submits them; writes take effect at once."""

    def __init__(self, policy: TrainingPolicy | None = None, *, size: int = NODE_CPU) -> None:
        super().__init__(policy=policy, late_writes=False, a=size)
        self.size = size

    def add(self, name: str, **fields: Any) -> LiveJob:
        """Submit a job; `fields`: the arguments of `one_worker_job`."""
        return self.submit(one_worker_job(name, size=self.size, **fields))

    def at(self, second: float) -> Self:
        """Run until the given second, stopping at each scan, so that all tests scan alike."""
        while self.clock.now < second:
            following = SCAN_SECONDS * (self.clock.now // SCAN_SECONDS + 1)
            super().at(min(second, following))
        return self

    # --- observations -----------------------------------------------------------------------------

    @property
    def present(self) -> list[str]:
        return [live.spec.name for live in self.jobs if not live.job.finished]

    def pod(self, name: str, key: ReplicaKey = WORKER) -> LivePod:
        return self.job(name).pods[key]

    def cpu(self, name: str, key: ReplicaKey = WORKER) -> TrainerCpu:
        cpu = self.pod(name, key).pod.trainer
        assert cpu is not None
        return cpu

    def limit(self, name: str) -> int | None:
        return self.cpu(name).limit

    def request(self, name: str) -> int:
        return self.cpu(name).request

    def use(self, name: str) -> float:
        """Return the millicores that the worker of a job uses."""
        live = self.job(name)
        return live.training.share * live.spec.uses

    def tracked(self, name: str) -> TrackedJob:
        return self.planner.cluster.jobs[f"uid-{name}"]

    @property
    def resized(self) -> list[tuple[str, Resize]]:
        """The names of the jobs and the steps that were written to change CPU, in order."""
        steps = ((write.job, write.step) for write in self.driver.written if not write.refused)
        return [(job, step) for job, step in steps if isinstance(step, Resize)]

    def resized_condition(self, name: str) -> ConditionStatus | None:
        """Return the condition Resized of a job."""
        return self.driver.shown.get((name, names.RESIZED))

    def reason(self, name: str) -> str:
        shown = self.resized_condition(name)
        return shown.verdict.reason if shown else ""

    # --- actions of users and of the operator -----------------------------------------------------

    def set_policy(self, name: str, value: str, key: str = names.RESIZE) -> None:
        self.annotate(key, value, name)

    def size_by_hand(self, name: str, *, request: int) -> None:
        """Resize a pod as another client does."""
        live = self.pod(name)
        container = live.job.job.kind.container
        patch = resize_patch(live.pod, CpuSize(None, request), container=container)
        self.api.resize_pod(live.pod, patch)

    def replace_pod(self, name: str, key: ReplicaKey = WORKER) -> None:
        """Recreate a pod as the operator does, with the user's CPU."""
        self.api.remove_pod(self.pod(name, key))
        while key not in self.job(name).pods:
            self.after(1)

    def delete(self, name: str) -> None:
        self.api.delete_job(self.job(name))

    def manage(self, value: str) -> None:
        self.planner.settings.observe_namespace(TEAM, Namespace("team", {names.MANAGED: value}))


# --- a job that moves CPU from its server to its worker -------------------------------------------

LIMIT = 400
"""The limit of each of its pods, in millicores."""
IDLE = 20
"""The millicores that its server requests and uses."""
SERVER = ReplicaKey("ps", 0)


class ServerAndWorkerBed(CpuBed):
    """A node with a job: its server idles, and its worker uses all CPU that it may.

    `guaranteed`: whether its pods are Guaranteed.
    `waiting_cpu`: the millicores that a waiting job requests; 0 means that no job waits.
    """

    def __init__(self, *, guaranteed: bool = False, waiting_cpu: int = 0) -> None:
        super().__init__()
        self.add("train", servers=1, serves=IDLE, cpu=IDLE, limit=LIMIT, guaranteed=guaranteed)
        self.after(6)
        if waiting_cpu:
            self.add("waits", cpu=waiting_cpu, resize="")

    def limits(self) -> dict[str, int | None]:
        cpus = ((key.type, live.pod.trainer) for key, live in self.job().pods.items())
        return {type_: cpu.limit for type_, cpu in cpus if cpu}

    def written(self) -> list[int]:
        """Return all limits that were written, in millicores."""
        return [size.limit or 0 for _, step in self.resized for _, size in step.sizes]

    def started(self) -> Iterator[str]:
        """Return the names of the other jobs that were started."""
        starts = (write.job for write in self.driver.written if isinstance(write.step, Unsuspend))
        return (name for name in starts if name != "train")
