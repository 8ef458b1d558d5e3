"""The jobs of a simulated cluster: their requests, speeds and checkpoints."""

from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any, Protocol

from kfext import names
from kfext.model.kinds.job_kind import WORKER
from kfext.model.kinds.registered import KINDS
from kfext.sim.nodes import GPU_TYPE

Raw = dict[str, Any]

PYTORCH, TENSORFLOW, TRAINER = "PyTorchJob", "TFJob", "TrainJob"
"""The kinds of jobs in the simulation."""
_MAX_WORKERS = 6
"""The most workers of a random job."""


class Style(StrEnum):
    """What happens to the training when a pod of the job starts or ends.

    `TORCHRUN`: all workers do a new rendezvous and continue from the last checkpoint.
    `SERVERS`: the other workers continue, because the parameter servers have the parameters.
    `GANG`: the job trains only while all pods run, and restarts from the last checkpoint.
    """

    TORCHRUN = "torchrun"
    SERVERS = "servers"
    GANG = "gang"


class Saving(StrEnum):
    """When a job saves its work: every so many steps, on request, or never."""

    PERIODIC = "periodic"
    ON_REQUEST = "on request"
    NEVER = "never"


class StepTime(Protocol):
    """The time of a step; `work`: its CPU time in seconds, summed over all workers."""

    @property
    def work(self) -> float: ...  # noqa: D102

    def seconds(self, workers: int, *, apart: bool = False) -> float:
        """Return the seconds of a step; `apart`: whether the workers are on several nodes."""
        ...


@dataclass(frozen=True, slots=True)
class Pace:
    """The seconds of a step with n workers: work / n + fixed + each * n. Only `work` needs CPU.

    `spread`: the speed on several nodes / the speed on one.
    """

    work: float
    fixed: float
    each: float
    spread: float = 1.0

    def seconds(self, workers: int, *, apart: bool = False) -> float:
        """Return the seconds of a step; `apart`: whether the workers are on several nodes."""
        together = self.work / workers + self.fixed + self.each * workers
        return together / self.spread if apart else together


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job as its user wrote it, and facts that only the model knows. Times are in seconds.

    `workers`: the number of pods of type Worker. `servers`: the number of parameter servers.
    `leaders`: the number of pods of the first type of its kind, such as Master: 0 or 1.
    `bounds`: the minimum and maximum in the annotation `elastic`; None means not elastic.
    `resize`, `migrate`, `preempt`: the values of these annotations; empty for no annotation.
    `cpu`: millicores that each pod requests. `uses`: millicores that each pod can use; `serves`:
        millicores that a parameter server can use, `uses` by default.
    `limit`: the CPU limit of each pod in millicores, `uses` by default; 0 for no limit.
    `guaranteed`: whether its pods are Guaranteed: they request their limit.
    `memory`, `gpus`: the bytes and GPUs that each pod requests. `gpu_type`: the type of GPUs that
        its nodes must have; empty for any type.
    `trains`: the program that its pods run; by default, a program of its own.
    `starts`: the time from the binding of a pod until it is Running. `meets`: the time from the
        start of the last pod to the first step. `grace`: the time from a pod's deletion to its end.
    `every`: the steps between two checkpoints. `answers`: the time from a request to a checkpoint.
    `prints`: the time between two lines of its log. `shows_end`: whether the lines name `steps`.
    `deadline`: its activeDeadlineSeconds, which nothing in the simulation enforces.
    `halves`: the number of steps in which its loss halves; by default, a third of `steps`.
    """

    name: str
    kind: str
    style: Style
    arrives: float
    workers: int
    pace: StepTime
    steps: int
    servers: int = 0
    leaders: int = 0
    bounds: tuple[int, int] | None = None
    resize: str = ""
    migrate: str = ""
    preempt: str = ""
    cpu: int = 1000
    uses: int = 1000
    serves: int | None = None
    limit: int | None = None
    guaranteed: bool = False
    memory: int = 0
    gpus: int = 0
    gpu_type: str = ""
    trains: str = ""
    starts: float = 10.0
    meets: float = 8.0
    grace: float = 2.0
    saving: Saving = Saving.NEVER
    every: int = 50
    answers: float = 5.0
    prints: float = 5.0
    shows_end: bool = True
    halves: float | None = None
    priority: str = ""
    namespace: str = "team"
    deadline: int | None = None

    @property
    def uid(self) -> str:
        """The uid of the job."""
        return f"uid-{self.name}"

    @property
    def pods(self) -> int:
        """The number of pods of the job as it is submitted."""
        return self.workers + self.servers + self.leaders

    @property
    def training(self) -> float:
        """The seconds of training at the requested size."""
        return self.steps * self.pace.seconds(self.workers + self.leaders)

    @property
    def alone(self) -> float:
        """The seconds from its arrival to its end at the requested size, if it never waits."""
        meets = 0.0 if self.style is Style.SERVERS else self.meets
        return self.starts + meets + self.training

    @property
    def trains_from(self) -> int:
        """The fewest workers that can train."""
        if self.style is not Style.TORCHRUN:
            return 1
        return self.bounds[0] if self.bounds else self.workers

    @property
    def fails_with_ending_pods(self) -> bool:
        """Whether the operator fails the job if a pod still terminates when the job is to run."""
        return (self.kind, self.style) in {(TENSORFLOW, Style.GANG)}

    @property
    def may_lose_pods(self) -> bool:
        """Whether its operator soon recreates a pod that another client has deleted."""
        return KINDS[self.kind].recreates

    def manifest(self, *, created: str) -> Raw:
        """Return the job as it is submitted; `created` is its creationTimestamp."""
        settings = {
            names.RESIZE: self.resize,
            names.MIGRATE: self.migrate,
            names.PREEMPT: self.preempt,
        }
        annotations = {key: value for key, value in settings.items() if value}
        if self.bounds is not None:
            annotations[names.ELASTIC] = f"{self.bounds[0]}-{self.bounds[1]}"
        kind = KINDS[self.kind]
        spec: Raw = {"trainer": {"numNodes": self.workers}}
        if not kind.rendered:
            types = {kind.types[0]: self.leaders, WORKER: self.workers, "PS": self.servers}
            specs = {type_: self._replicas(number) for type_, number in types.items() if number}
            policy = {} if self.deadline is None else {"activeDeadlineSeconds": self.deadline}
            spec = {kind.replica_specs: specs, "runPolicy": policy}
        if self.style is Style.TORCHRUN:
            low, high = self.bounds or (self.workers, self.workers)
            bounds = {"minReplicas": low, "maxReplicas": high}
            spec["elasticPolicy"] = {**bounds, "rdzvBackend": "c10d", "maxRestarts": 100}
        if self.style is Style.SERVERS:
            spec["enableDynamicWorker"] = True
        metadata = {
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "creationTimestamp": created,
            "annotations": annotations,
        }
        version = kind.api_version
        return {"apiVersion": version, "kind": self.kind, "metadata": metadata, "spec": spec}

    def rendered(self, raw: Raw) -> Raw | None:
        """Return the JobSet that Trainer renders from the JSON object `raw` of the job, or None."""
        kind = KINDS[self.kind]
        if not kind.rendered:
            return None
        template = self._replicas(self.workers)["template"]
        for entry in raw["spec"].get(kind.replica_specs, ()):
            rendered = entry.get("trainingRuntimeSpec", {}).get("template", {})
            for patch in rendered.get("spec", {}).get("replicatedJobs", ()):
                template["metadata"] = patch["template"]["spec"]["template"]["metadata"]
        job = {"parallelism": self.workers, "completions": self.workers, "template": template}
        owner = {"apiVersion": kind.api_version, "kind": self.kind, "controller": True}
        owners = [{**owner, "name": self.name, "uid": self.uid}]
        metadata = {"namespace": self.namespace, "name": self.name, "uid": f"jobset-{self.uid}"}
        replicated = {"name": kind.container, "replicas": 1, "template": {"spec": job}}
        return {
            "metadata": {**metadata, "ownerReferences": owners},
            "spec": {"replicatedJobs": [replicated]},
        }

    def pod_metadata(self) -> Raw:
        """Return the metadata that assigns a pod to the job: its controller, and labels."""
        kind = KINDS[self.kind]
        owner = {"apiVersion": kind.api_version, "kind": self.kind, "uid": self.uid}
        labels = {}
        if kind.rendered:
            owner = {"apiVersion": "batch/v1", "kind": "Job", "uid": f"batch-{self.uid}"}
            labels = {"jobset.sigs.k8s.io/jobset-uid": f"jobset-{self.uid}"}
        return {"labels": labels, "ownerReferences": [{**owner, "controller": True}]}

    def _replicas(self, number: int) -> Raw:
        command = "torchrun" if self.style is Style.TORCHRUN else "python"
        container = {
            "name": KINDS[self.kind].container,
            "command": [command, f"{self.trains or self.name}.py"],
            "resources": self._resources(),
        }
        spec: Raw = {"containers": [container], "terminationGracePeriodSeconds": int(self.grace)}
        if self.gpu_type:
            spec["nodeSelector"] = {GPU_TYPE: self.gpu_type}
        if self.priority:
            spec["priorityClassName"] = self.priority
        return {"replicas": number, "restartPolicy": "OnFailure", "template": {"spec": spec}}

    def _resources(self) -> Raw:
        limit = self.uses if self.limit is None else self.limit
        if self.guaranteed:
            amounts = {"cpu": f"{limit}m", "memory": "1Gi"}
            return {"requests": amounts, "limits": amounts}
        gpus = {names.NATIVE_GPU: str(self.gpus)} if self.gpus else {}
        memory = {"memory": str(self.memory)} if self.memory else {}
        limits = {**({"cpu": f"{limit}m"} if limit else {}), **gpus}
        requests = {"cpu": f"{self.cpu}m", **memory, **gpus}
        return {"requests": requests, **({"limits": limits} if limits else {})}


def random_job(random: Random, number: int, *, arrives: float) -> JobSpec:
    """Draw a job. All its random numbers are drawn here; the simulated training draws none."""
    form = random.choice(_FORMS)
    workers = random.randint(1, _MAX_WORKERS)
    pace = _random_pace(random)
    bounds = None
    if form.elastic == 1 or (form.elastic > 0 and random.random() < form.elastic):
        bounds = (random.randint(1, workers), random.randint(workers, _MAX_WORKERS + 2))
    cpu = random.choice([500, 500, 1000, 1000, 2000])
    leaders = int(form.leader > 0 and random.random() < form.leader)
    if leaders:
        workers = max(1, workers - 1)
    steps = max(20, round(random.uniform(60, 420) / pace.seconds(workers + leaders)))
    # A PyTorchJob has no rendezvous for a gang of equal workers.
    as_train_job = form.kind == PYTORCH and form.style is Style.GANG and not leaders
    return JobSpec(
        name=f"job-{number}",
        kind=TRAINER if as_train_job else form.kind,
        style=form.style,
        arrives=arrives,
        workers=workers,
        pace=pace,
        steps=steps,
        servers=form.servers,
        leaders=leaders,
        bounds=bounds,
        cpu=cpu,
        uses=cpu * random.choice([1, 1, 1, 1, 2]),
        starts=float(random.randint(5, 20)),
        meets=float(random.randint(5, 15)),
        grace=random.choice([2.0, 2.0, 2.0, 2.0, 30.0]),
        saving=random.choice(_SAVINGS),
        every=max(1, steps // random.randint(4, 40)),
        answers=float(random.randint(1, 20)),
        prints=random.choice([5.0, 10.0, 10.0]),
        priority=random.choice(["", "", "", "", "", "", "", "", "", "urgent"]),
    )


def _random_pace(random: Random) -> Pace:
    """Draw the pace of a job; one job in five gains little from more than a few workers."""
    alone = random.uniform(0.4, 2.0)
    if random.random() < 0.2:
        return Pace(alone, alone * random.uniform(0.3, 0.6), alone * random.uniform(0.05, 0.15))
    return Pace(alone, alone * random.uniform(0.0, 0.1), alone * random.uniform(0.001, 0.02))


@dataclass(frozen=True, slots=True)
class _Form:
    """A form of random jobs. `elastic`, `leader`: the probabilities of bounds and a leader pod."""

    kind: str
    style: Style
    servers: int = 0
    elastic: float = 0.0
    leader: float = 0.0


_TORCHRUN = _Form(PYTORCH, Style.TORCHRUN, elastic=1.0)
_SERVERS = _Form(TENSORFLOW, Style.SERVERS, servers=1, elastic=1.0)
_FORMS = (
    *(_TORCHRUN, _TORCHRUN, _SERVERS, _SERVERS),
    _Form(PYTORCH, Style.GANG, leader=0.5),
    _Form(TENSORFLOW, Style.GANG, servers=1, elastic=0.3),
)
_SAVINGS = (Saving.PERIODIC, Saving.PERIODIC, Saving.ON_REQUEST, Saving.NEVER)
