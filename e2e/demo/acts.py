"""What the demo does: two jobs that send to each other, and two gangs that want the same room."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from kubeflow.training import TrainingClient

from e2e.demo.claims import Job, Recorder, Round
from e2e.harness.install import kubectl
from e2e.harness.jobs import ended, jobs_path
from e2e.harness.training import Object, ended_well, pods_of, pytorch_job, step_ms, tf_job
from e2e.harness.wait import until
from e2e.testbed.api import ApiError
from e2e.testbed.cluster import Testbed
from e2e.testbed.paths import REPOSITORY
from e2e.testbed.progress import step
from kfext import names

CPU = "250m"
"""Two such pods fit a node beside kfext's own."""
DDP, PS, GANGS = "ddp", "ps", ("gang-a", "gang-b")
GANG_SECONDS = 30.0
"""For so long the demo shows that neither of two gangs trains; a gang alone takes less."""
TRAIN_JOB = "ddp"
_EXAMPLE = REPOSITORY / "examples/trainjob.yaml"
_DDP_STEPS, _PS_STEPS, _GANG_STEPS = 250, 150, 40
_EMBEDDING = ("--model", "embedding")
_PRINTED = ("--print-every", "10")
_PAIR, _GANG_WORKERS = 2, 3
_TRAINED_SECONDS, _BOUND_SECONDS = 600.0, 30.0


@dataclass(frozen=True, slots=True)
class Way:
    """A way to place jobs: its name, the namespace, and the annotations of the jobs."""

    title: str
    namespace: str
    managed: bool
    annotations: dict[str, str] = field(default_factory=dict)


PLAIN = Way("plain Kubernetes", "plain", managed=False)
AGAIN = Way("plain Kubernetes, again", "plain-again", managed=False)
KFEXT = Way("kfext", "managed", managed=True)
HOST = Way(
    "kfext, network: host", "managed-host", managed=True, annotations={names.NETWORK: "host"}
)
WAYS = (PLAIN, KFEXT, HOST, AGAIN)
"""In this order, so that a machine that grows slower or faster does so for both."""


def together(bed: Testbed, way: Way) -> Round:
    """Train a PyTorchJob and a TFJob beside each other; each of them fits one node."""
    steps = {DDP: ("--steps", str(_DDP_STEPS)), PS: ("--steps", str(_PS_STEPS))}
    ddp = pytorch_job(DDP, cpu=CPU, arguments=(*_EMBEDDING, *steps[DDP], *_PRINTED))
    ps = tf_job(PS, workers=0, cpu=CPU, arguments=(*steps[PS], *_PRINTED))
    del ps.spec.tf_replica_specs["Worker"]
    sent = (Sent(ddp, "master-0", _DDP_STEPS), Sent(ps, "chief-0", _PS_STEPS))
    began = time.time()
    with (
        step(f"{way.title}: PyTorchJob {DDP} and TFJob {PS}", expect="45 seconds"),
        _recorded(bed, way, sent) as recorder,
    ):
        for job in sent:
            # One after the other, as two people would: so plain Kubernetes spreads each of them.
            job.send(bed, way)
            job.wait_bound(bed, way)
        for job in sent:
            job.wait_ended(bed, way)
        until(
            lambda: not any(map(_holds_room, pods_of(bed, way.namespace).values())),
            what=f"no pod of namespace {way.namespace} holds room",
        )
    return _round(bed, way, sent, recorder, began=began)


def gangs(bed: Testbed, way: Way) -> Round:
    """Send two gangs at once; each needs both nodes.

    Under plain Kubernetes the gangs are ended after a while; under kfext they end by themselves.
    """
    arguments = (*_EMBEDDING, "--steps", str(_GANG_STEPS), *_PRINTED)
    sent = tuple(
        Sent(
            pytorch_job(name, workers=_GANG_WORKERS, cpu=CPU, arguments=arguments),
            "master-0",
            _GANG_STEPS,
        )
        for name in GANGS
    )
    began = time.time()
    with (
        step(f"{way.title}: PyTorchJobs {' and '.join(GANGS)} at once", expect="1 minute"),
        _recorded(bed, way, sent) as recorder,
    ):
        with ThreadPoolExecutor(len(sent)) as pool:
            list(pool.map(lambda job: job.send(bed, way), sent))
        if way.managed:
            for job in sent:
                job.wait_ended(bed, way)
        else:
            time.sleep(GANG_SECONDS)
    seen = _round(bed, way, sent, recorder, began=began)
    if not way.managed:
        with step("end both gangs"):
            for job in sent:
                job.delete(bed, way)
    return seen


def train_job(bed: Testbed, way: Way) -> list[str]:
    """Train a TrainJob of two pods; return the node of each."""
    with step(f"{way.title}: TrainJob {TRAIN_JOB}", expect="30 seconds"):
        kubectl(bed, "apply", "-n", way.namespace, "-f", str(_EXAMPLE))
        pods = ended_well(bed, way.namespace, "TrainJob", TRAIN_JOB)
    return sorted(pod["spec"]["nodeName"] for pod in pods)


@dataclass(frozen=True, slots=True)
class Sent:
    """A job, the replica with the log of its steps, and how many steps it is to do."""

    body: Any
    first: str
    steps: int

    @property
    def name(self) -> str:
        """Return the job's name."""
        return str(self.body.metadata.name)

    @property
    def watched(self) -> Job:
        """Return what a recorder needs to know of the job."""
        return Job(self.name, f"{self.name}-{self.first}", self.steps)

    def path(self, way: Way) -> str:
        """Return the path of the job."""
        return jobs_path(way.namespace, self.body.kind, self.name)

    def send(self, bed: Testbed, way: Way) -> None:
        """Create the job with the SDK."""
        sdk = TrainingClient(config_file=str(bed.kubeconfig), namespace=way.namespace)
        self.body.metadata.annotations = dict(way.annotations)
        sdk.create_job(self.body, namespace=way.namespace)

    def wait_bound(self, bed: Testbed, way: Way) -> None:
        """Wait until each pod of a job of two pods has a node."""

        def bound() -> bool:
            pods = pods_of(bed, way.namespace, self.name).values()
            return sum("nodeName" in pod["spec"] for pod in pods) == _PAIR

        until(bound, what=f"{self.name} is bound", seconds=_BOUND_SECONDS)

    def wait_ended(self, bed: Testbed, way: Way) -> None:
        """Wait until the job has ended. Raises RuntimeError if it has failed."""
        how = until(
            lambda: self.ended(bed, way),
            what=f"{self.name} has ended",
            seconds=_TRAINED_SECONDS,
        )
        if how == "Failed":
            raise RuntimeError(f"job {self.name} in namespace {way.namespace} has failed")

    def ended(self, bed: Testbed, way: Way) -> str:
        """Return `Succeeded` or `Failed`, empty while the job runs or waits."""
        return ended(bed.api.get(self.path(way)))

    def step_ms(self, bed: Testbed, way: Way) -> float | None:
        """Return the median milliseconds of a step over the whole log; unset if it has none."""
        path = f"/api/v1/namespaces/{way.namespace}/pods/{self.watched.first_pod}/log"
        try:
            return step_ms(bed.api.get(path))
        except ApiError:
            return None  # the container has not started

    def delete(self, bed: Testbed, way: Way) -> None:
        """Delete the job, and wait until its pods are gone."""
        bed.api.delete(self.path(way))
        until(lambda: not pods_of(bed, way.namespace, self.name), what=f"{self.name} has no pod")


def _holds_room(pod: Object) -> bool:
    """Return whether a pod counts on its node: a parameter server does until it is gone."""
    return pod["status"].get("phase") not in {"Succeeded", "Failed"}


def _recorded(bed: Testbed, way: Way, sent: Sequence[Sent]) -> Recorder:
    return Recorder(bed.api, way.namespace, [job.watched for job in sent])


def _round(
    bed: Testbed, way: Way, sent: Sequence[Sent], recorder: Recorder, *, began: float
) -> Round:
    times = {job.name: job.step_ms(bed, way) for job in sent}
    return Round(
        way.title,
        began,
        recorder.pods(),
        {job.name: recorder.steps(job.name) for job in sent},
        {name: time for name, time in times.items() if time is not None},
        tuple(job.name for job in sent if job.ended(bed, way) == "Succeeded"),
    )
