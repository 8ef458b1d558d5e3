"""Jobs that wait where an accelerator would compute, and their arrivals.

The compute time of a step is a timed wait; its messages are real, of the size of the model's
gradient, and sent by gloo (DDP's buckets, sent during the wait) or TensorFlow (weights from the
parameter server, gradients to it). The waits are `SLOWED` times as long as on an accelerator, and
the links slower by the same factor than in the represented cluster, so a message takes the same
fraction of a step.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.bench.cluster.workload import Arrival, arrivals
from e2e.harness.elastic_jobs import tf_body, torch_body
from e2e.harness.jobs import specs

Object = dict[str, Any]
SLOWED = 60
"""The slow-down of waits and links; large enough that sending uses less than half of a pod's CPU.

A rank of vgg16 sends most: it used 0.28 to 0.47 CPU seconds in a step of 6.4 s on one machine, and
a pod has `MILLICORES`.
"""
MILLICORES = 170
"""The CPU of a pod; two fit a node of 350m."""
SLOTS = 8
"""The number of pods that fit four nodes."""
_MEMORY = f"{1450 * 2**20}"
"""The memory of a pod in bytes: a server of gpt2 uses 1.2 GB."""
LOADS = (0.5, 0.8, 1.1)
"""The requests of the jobs until the last arrival, as a fraction of the nodes' capacity."""
QUICK_LOADS = (1.1,)
_SEEDS = {0.5: 1, 0.8: 2, 1.1: 3}
"""The seed of the arrivals at each load."""
_START_SECONDS = 30.0
"""From the start of a pod to its first step, on a pod's CPU."""
_MIN_STEPS = 2


@dataclass(frozen=True, slots=True)
class Model:
    """A model. `step_ms`: its step time on one V100 without network.

    Source: Muri's measurements (`stage_times.csv` in the data of the design). `megabytes`: its
    parameters as 32-bit numbers, from the papers and from torchvision.
    """

    name: str
    step_ms: float
    megabytes: float


VGG16 = Model("vgg16", 107, 553.4)
VGG19 = Model("vgg19", 109, 574.7)
BERT = Model("bert", 178, 440)
GPT2 = Model("gpt2", 426, 498)
RESNET = Model("resnet18", 779, 46.8)
SHUFFLENET = Model("shufflenet", 798, 9.1)
DQN = Model("dqn", 490, 6.7)


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job. `asked`: the requested number of training pods; `least`, `most`: its range.

    The three are equal for a rigid job. A TFJob has a parameter server in addition. `steps`: for a
    benchmark of ten minutes; all workers of a TFJob share them.
    """

    name: str
    kind: str
    trains: Model
    least: int
    asked: int
    most: int
    steps: int

    @property
    def pods(self) -> int:
        """The number of submitted pods, with the parameter server."""
        return self.asked + (self.kind == "TFJob")

    @property
    def millicores(self) -> int:
        return MILLICORES

    @property
    def megabytes(self) -> float:
        """The size of the message that a computing pod sends, and receives, in a step."""
        return self.trains.megabytes

    @property
    def size(self) -> str:
        return f"{self.pods} x {MILLICORES}m"

    @property
    def first_pod(self) -> str:
        return f"{self.name}-{'master' if self.kind == 'PyTorchJob' else 'worker'}-0"

    @property
    def step_seconds(self) -> float:
        return self.trains.step_ms / 1000 * SLOWED

    def steps_of(self, minutes: float) -> int:
        return max(_MIN_STEPS, round(self.steps * minutes / 10))

    def seconds(self, minutes: float) -> float:
        """Return its duration in seconds at its requested size, without the time of messages."""
        seconds_of_steps = self.steps_of(minutes) * self.step_seconds
        return _START_SECONDS + (
            seconds_of_steps / self.asked if self.kind == "TFJob" else seconds_of_steps
        )

    def manifest(self, *, minutes: float, scheduler: str, folder: Path) -> Object:
        """Return its manifest; its checkpoints are in a folder of its own."""
        torch = self.kind == "PyTorchJob"
        options = {
            "steps": self.steps_of(minutes),
            "every": 1,
            "print-every": 1,
            # The pods share a batch of DDP, so one pod alone would need the time of all of them.
            "least": round(self.step_seconds * (self.asked if torch else 1), 3),
            "message": self.trains.megabytes,
        }
        body = (torch_body if torch else tf_body)(
            self.name,
            self.asked,
            cpu=f"{MILLICORES}m",
            folder=folder / self.name,
            sizes=f"{self.least}-{self.most}" if self.least < self.most else "",
            arguments=[
                word for name, value in options.items() for word in (f"--{name}", f"{value}")
            ],
        )
        for spec in specs(body).values():
            pod = spec["template"]["spec"]
            (container,) = pod["containers"]
            pod["schedulerName"] = scheduler
            for bound in container["resources"].values():
                bound["memory"] = _MEMORY
            if self.least == self.most and torch:
                # torchrun would start a second Python in each pod.
                container["command"] = ["python3", *container["command"][1:]]
        return body


def _torch(name: str, trains: Model, sizes: tuple[int, int, int], steps: int) -> WaitingJob:
    return WaitingJob(name, "PyTorchJob", trains, *sizes, steps)


def _tf(name: str, trains: Model, sizes: tuple[int, int, int], steps: int) -> WaitingJob:
    return WaitingJob(name, "TFJob", trains, *sizes, steps)


# Each job waits for about 100 seconds in all.
WAITING = (
    _torch("ddp-vgg16-2", VGG16, (2, 2, 2), 15),
    _torch("ddp-vgg19-2", VGG19, (2, 2, 2), 15),
    _torch("ddp-bert-2", BERT, (1, 2, 4), 9),
    _torch("ddp-bert-4", BERT, (2, 4, 4), 9),
    _torch("ddp-gpt2-2", GPT2, (2, 2, 2), 4),
    _torch("ddp-resnet-1", RESNET, (1, 1, 1), 2),
    _tf("ps-gpt2-1", GPT2, (1, 1, 1), 4),
    _tf("ps-gpt2-2", GPT2, (1, 2, 2), 8),
    _tf("ps-resnet-1", RESNET, (1, 1, 1), 2),
    _tf("ps-resnet-3", RESNET, (1, 3, 5), 6),
    _tf("ps-shufflenet-1", SHUFFLENET, (1, 1, 1), 2),
    _tf("ps-dqn-3", DQN, (3, 3, 3), 10),
)
# Jobs with short steps: two that the network slows down, an elastic job, and a TFJob.
FEW_WAITING = tuple(
    job for job in WAITING if job.name in {"ddp-vgg16-2", "ddp-vgg19-2", "ddp-bert-2", "ps-dqn-3"}
)


def arrivals_at(load: float, jobs: Sequence[WaitingJob], *, minutes: float) -> list[Arrival]:
    """Return the arrivals of the jobs at a load; each load has a seed for order and times."""
    work = sum(job.pods * job.seconds(minutes) for job in jobs)
    return arrivals(jobs, seconds=work / (SLOTS * load), seed=_SEEDS[load])


def slowed(link: str) -> str:
    """Return the slowed rate that represents a link such as 10gbit; "none" means no limit."""
    if link == "none":
        return link
    match = re.fullmatch(r"(\d+)(gbit|mbit)", link)
    if not match:
        raise ValueError(f"{link!r} is no rate such as 10gbit")
    kbit = int(match[1]) * {"gbit": 10**6, "mbit": 10**3}[match[2]]
    return f"{round(kbit / SLOWED)}kbit"
