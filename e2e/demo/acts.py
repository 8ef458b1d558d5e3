"""The acts of the demo: two jobs with pods that talk to each other, two gangs, and a TrainJob.

The ways to place the jobs alternate, so that a change of the machine's speed affects all ways.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

import yaml
from kubeflow.training import TrainingClient

from e2e.demo.claims import Job, Recorder, Round
from e2e.harness.install import kubectl
from e2e.harness.jobs import ended, jobs_path
from e2e.harness.training import Object, pods_of, pytorch_job, step_ms, tf_job
from e2e.testbed.api import ApiError
from e2e.testbed.cluster import PATIENCE_SECONDS, NotReadyError, Testbed
from e2e.testbed.paths import REPOSITORY
from e2e.testbed.progress import Planned, say, step
from e2e.testbed.realnodes import nodes
from kfext import names
from kfext.model.kinds.registered import KINDS
from kfext.model.quantity import parse_quantity

CPU = "250m"
"""Two pods with this CPU request fit on a node beside kfext's own pods."""
DDP, PS, GANGS = "ddp", "ps", ("gang-a", "gang-b")
GANG_SECONDS = 20.0
"""How long the demo shows that neither gang trains; a gang alone would train within this time."""
TRAIN_JOB = "ddp"
_EXAMPLE = REPOSITORY / "examples/trainjob.yaml"
_DDP_STEPS, _PS_STEPS, _GANG_STEPS, _TRAIN_JOB_STEPS = 120, 80, 40, 60
_EMBEDDING = ("--model", "embedding")
_PRINT_OPTIONS = ("--print-every", "10")
_JOB_PODS, GANG_PODS = 2, 4
"""The pods of each job of the first act, and of each gang."""
_TRAINED_SECONDS = 3 * PATIENCE_SECONDS


@dataclass(frozen=True, slots=True)
class Way:
    """A way to place jobs: plain Kubernetes, or kfext with some annotations of the jobs.

    `namespace`: where the jobs of a round are. `managed`: whether kfext handles that namespace.
    """

    title: str
    namespace: str
    managed: bool
    annotations: dict[str, str] = field(default_factory=dict)


PLAIN = Way("plain Kubernetes", "plain", managed=False)
KFEXT = Way("kfext", "managed", managed=True)
HOST = Way(
    "kfext, network: host", "managed-host", managed=True, annotations={names.NETWORK: "host"}
)
BY_KFEXT = (KFEXT, HOST)
TURNS = (
    PLAIN,
    KFEXT,
    HOST,
    *(replace(way, namespace=f"{way.namespace}-2") for way in (PLAIN, KFEXT)),
)
"""The rounds. Two rounds of the same way show how much equal runs differ; HOST has one round."""


def _together_step(way: Way) -> Planned:
    return Planned(f"{way.title}, namespace {way.namespace}: PyTorchJob {DDP} and TFJob {PS}", 28)


def _gangs_step(way: Way) -> Planned:
    return Planned(f"{way.title}: PyTorchJobs {' and '.join(GANGS)} at once", 40)


def _train_job_step(way: Way) -> Planned:
    return Planned(f"{way.title}: TrainJob {TRAIN_JOB}", 15)


PLANNED = (
    *map(_together_step, TURNS),
    *map(_gangs_step, (PLAIN, KFEXT)),
    *map(_train_job_step, (PLAIN, KFEXT)),
)
"""The planned steps of all acts, in their order."""


def together(bed: Testbed, way: Way) -> Round:
    """Train a PyTorchJob and a TFJob at the same time; each of them fits on one node."""
    steps = {DDP: ("--steps", str(_DDP_STEPS)), PS: ("--steps", str(_PS_STEPS))}
    ddp = pytorch_job(DDP, cpu=CPU, arguments=(*_EMBEDDING, *steps[DDP], *_PRINT_OPTIONS))
    ps = tf_job(PS, workers=0, cpu=CPU, arguments=(*steps[PS], *_PRINT_OPTIONS))
    del ps.spec.tf_replica_specs["Worker"]
    sent = (DemoJob(ddp, "master-0", _DDP_STEPS), DemoJob(ps, "chief-0", _PS_STEPS))
    began, before = time.time(), _bytes_between_nodes(bed)
    with step(_together_step(way)), _recorded(bed, way, sent) as recorder:
        for job in sent:
            # One after the other, as from two users; plain Kubernetes then spreads each job.
            job.send(bed, way)
            job.wait_bound(bed, way)
        for job in sent:
            job.wait_ended(bed, way)
        _wait(
            bed,
            lambda: not any(map(_uses_capacity, pods_of(bed, way.namespace).values())),
            what=f"no pod of namespace {way.namespace} uses capacity",
        )
    wire = _bytes_between_nodes(bed) - before
    return replace(_round(bed, way, sent, recorder, began=began), wire=wire)


def gangs(bed: Testbed, way: Way) -> Round:
    """Submit two gangs at once; each needs both nodes.

    Under plain Kubernetes the gangs are deleted after a while; under kfext they finish.
    """
    arguments = (*_EMBEDDING, "--steps", str(_GANG_STEPS), *_PRINT_OPTIONS)
    cpu = _half_a_node(bed)
    sent = tuple(
        DemoJob(
            pytorch_job(name, workers=GANG_PODS - 1, cpu=cpu, arguments=arguments),
            "master-0",
            _GANG_STEPS,
        )
        for name in GANGS
    )
    began = time.time()
    with step(_gangs_step(way)), _recorded(bed, way, sent) as recorder:
        with ThreadPoolExecutor(len(sent)) as pool:
            list(pool.map(lambda job: job.send(bed, way), sent))
        if way.managed:
            for job in sent:
                job.wait_ended(bed, way)
        else:
            _wait(bed, lambda: _all_tried(bed, way), what="all pods of the gangs were tried")
            time.sleep(GANG_SECONDS)
    seen = _round(bed, way, sent, recorder, began=began)
    if not way.managed:
        with step("end both gangs"):
            for job in sent:
                job.delete(bed, way)
    return seen


def train_job(bed: Testbed, way: Way) -> list[str]:
    """Train a TrainJob with two pods; return the node of each pod, or an empty list on failure."""
    job = yaml.safe_load(_EXAMPLE.read_text())
    job["spec"]["trainer"]["command"][-1] = str(_TRAIN_JOB_STEPS)
    path = jobs_path(way.namespace, "TrainJob", TRAIN_JOB)
    selector = quote(f"{KINDS['TrainJob'].job_label}={TRAIN_JOB}", safe="")
    with step(_train_job_step(way)):
        kubectl(bed, "apply", "-n", way.namespace, "-f", "-", given=yaml.safe_dump(job))
        if _outcome(bed, path) != "Succeeded":
            return []
        pods = bed.api.get(f"/api/v1/namespaces/{way.namespace}/pods?labelSelector={selector}")
    return sorted(pod["spec"]["nodeName"] for pod in pods["items"])


def _half_a_node(bed: Testbed) -> str:
    """Return the largest CPU request that lets two pods fit on each node."""
    pods = bed.api.get("/api/v1/pods")["items"]
    free = [
        node.millicores
        - sum(_millicores(pod) for pod in pods if pod["spec"].get("nodeName") == node.name)
        for node in nodes(bed)
    ]
    return f"{min(free) // 2}m"


def _millicores(pod: Object) -> int:
    """Return the CPU request of a pod in millicores; 0 after the end of the pod."""
    requests = (
        container.get("resources", {}).get("requests", {}).get("cpu", 0)
        for container in pod["spec"]["containers"]
        if _uses_capacity(pod)
    )
    return int(1000 * sum(map(parse_quantity, requests)))


def _all_tried(bed: Testbed, way: Way) -> bool:
    """Return whether all pods of the gangs exist, and kube-scheduler has tried each of them."""
    pods = [pod for gang in GANGS for pod in pods_of(bed, way.namespace, gang).values()]
    tried = (
        {"Unschedulable"} & {condition.get("reason") for condition in conditions}
        for pod in pods
        if "nodeName" not in pod["spec"]
        for conditions in [pod["status"].get("conditions", [])]  # a new pod has none yet
    )
    return len(pods) == len(GANGS) * GANG_PODS and all(tried)


def _bytes_between_nodes(bed: Testbed) -> float:
    """Return the bytes that the nodes have sent each other, from the counters of their links."""
    return sum(node.bytes_on_wire() for node in nodes(bed)) / 2


def _wait(bed: Testbed, condition: Callable[[], Any], *, what: str, seconds: float = 0.0) -> bool:
    """Wait until a condition holds; print an error if it never does, and continue."""
    try:
        bed.wait_for(condition, what=what, seconds=seconds or PATIENCE_SECONDS)
    except NotReadyError as error:
        say(f"  {error}")
        return False
    return True


def _outcome(bed: Testbed, path: str) -> str:
    """Wait for the end of a job; return `Succeeded` or `Failed`, or an empty text on a timeout."""
    name = path.rpartition("/")[2]
    has_ended = _wait(
        bed,
        lambda: ended(bed.api.get(path)),
        what=f"{name} to end",
        seconds=_TRAINED_SECONDS,
    )
    return ended(bed.api.get(path)) if has_ended else ""


@dataclass(frozen=True, slots=True)
class DemoJob:
    """A job of the demo. `first`: the replica that logs its steps. `steps`: their number."""

    body: Any
    first: str
    steps: int

    @property
    def name(self) -> str:
        return str(self.body.metadata.name)

    @property
    def watched(self) -> Job:
        """The job as a recorder watches it."""
        return Job(self.name, f"{self.name}-{self.first}", self.steps)

    def path(self, way: Way) -> str:
        return jobs_path(way.namespace, self.body.kind, self.name)

    def send(self, bed: Testbed, way: Way) -> None:
        sdk = TrainingClient(config_file=str(bed.kubeconfig), namespace=way.namespace)
        self.body.metadata.annotations = dict(way.annotations)
        sdk.create_job(self.body, namespace=way.namespace)

    def wait_bound(self, bed: Testbed, way: Way) -> None:
        """Wait until both pods of the job have a node."""

        def bound() -> bool:
            pods = pods_of(bed, way.namespace, self.name).values()
            return sum("nodeName" in pod["spec"] for pod in pods) == _JOB_PODS

        _wait(bed, bound, what=f"{self.name} to be bound")

    def wait_ended(self, bed: Testbed, way: Way) -> None:
        _outcome(bed, self.path(way))

    def ended(self, bed: Testbed, way: Way) -> str:
        """Return `Succeeded` or `Failed`; empty while the job runs or waits."""
        return ended(bed.api.get(self.path(way)))

    def step_ms(self, bed: Testbed, way: Way) -> float | None:
        """Return the median step time of the whole log, in milliseconds, or None without steps."""
        path = f"/api/v1/namespaces/{way.namespace}/pods/{self.watched.first_pod}/log"
        try:
            return step_ms(bed.api.get(path))
        except ApiError:
            return None  # the container has not started

    def delete(self, bed: Testbed, way: Way) -> None:
        """Delete the job, and wait until its pods are gone."""
        bed.api.delete(self.path(way))
        what = f"the pods of {self.name} to be gone"
        _wait(bed, lambda: not pods_of(bed, way.namespace, self.name), what=what)


def _uses_capacity(pod: Object) -> bool:
    """Return whether a pod still uses its node: a parameter server does until it is deleted."""
    return pod["status"].get("phase") not in {"Succeeded", "Failed"}


def _recorded(bed: Testbed, way: Way, sent: Sequence[DemoJob]) -> Recorder:
    return Recorder(bed.api, way.namespace, [job.watched for job in sent])


def _round(
    bed: Testbed, way: Way, sent: Sequence[DemoJob], recorder: Recorder, *, began: float
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
