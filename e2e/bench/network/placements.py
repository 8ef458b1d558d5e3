"""The jobs, and where each of their pods is put."""

from dataclasses import dataclass
from typing import Any

from kubernetes.client import ApiClient

from e2e.harness.jobs import specs
from e2e.harness.sdk_jobs import pytorch_job, tf_job
from kfext import names

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the pods of a job are, and on which network; `alone` is one process without any.

    `nodes` is None where kfext is left to choose.
    """

    name: str
    nodes: int | None = 1
    network: str = "pod"
    alone: bool = False


REFERENCE = Placement("spread, overlay", nodes=2)
SPREAD_ON_HOST = Placement("spread, host", nodes=2, network="host")
TOGETHER = Placement("together, pod")
HOPED = Placement("together, host", network="host")
PLACEMENTS = (
    REFERENCE,
    SPREAD_ON_HOST,
    TOGETHER,
    HOPED,
    Placement("one process alone", alone=True),
)
# What each way of change is worth: name, from, to.
STEPS = (
    ("spread: overlay to host", REFERENCE, SPREAD_ON_HOST),
    ("pod network: spread to together", REFERENCE, TOGETHER),
    ("together: pod to host", TOGETHER, HOPED),
    ("both", REFERENCE, HOPED),
)


@dataclass(frozen=True, slots=True)
class Model:
    """What is trained: `megabytes` is what one computing process sends, and gets, in a step.

    `limited` says whether a pod may use only as much CPU as it requests.
    """

    name: str
    kind: str
    megabytes: float
    steps: int
    limited: bool = True

    @property
    def title(self) -> str:
        """How a table names it."""
        framework = "DDP" if self.kind == "PyTorchJob" else "TF with a server"
        free = "" if self.limited else ", no CPU limit"
        return f"{framework} {self.name}, {self.megabytes:g} MB{free}"


# From hardly any communication to hardly anything else; each some ten seconds of work.
MODELS = (
    Model("cnn", "PyTorchJob", 0.03, 500),
    Model("resnet", "PyTorchJob", 1.2, 60),
    Model("embedding", "PyTorchJob", 5.1, 140),
    Model("mlp", "PyTorchJob", 16.8, 20),
    Model("mlp", "TFJob", 4.5, 80),
)
# The exception: compute is not the same, for apart each process has a whole node's CPU.
UNLIMITED = Model("cnn", "PyTorchJob", 0.03, 500, limited=False)
CHOSEN = Placement("kfext's choice, overlay", nodes=None)
_CPU, _CPU_OF_SERVER_TOO = "300m", "600m"


def manifest(name: str, model: Model, where: Placement, nodes: list[str], *, steps: int) -> Object:
    """Return the job: its first pod on the first node, all others on the last that is used.

    Where kfext chooses, it is free to.

    Alone, a TensorFlow process does what chief and server do together, and gets the CPU of both.
    """
    arguments = ("--model", model.name, "--steps", str(steps))
    if model.kind == "PyTorchJob":
        made = pytorch_job(name, cpu=_CPU, arguments=arguments)
    else:
        cpu = _CPU_OF_SERVER_TOO if where.alone else _CPU
        made = tf_job(name, workers=0, cpu=cpu, arguments=arguments)
    body: Object = ApiClient().sanitize_for_serialization(made)
    body["metadata"]["annotations"] = {names.NETWORK: where.network}
    types = specs(body)
    first = next(iter(types))
    for type_ in list(types):
        if not types[type_]["replicas"] or (where.alone and type_ != first):
            del types[type_]
            continue
        pod = types[type_]["template"]["spec"]
        if where.nodes is not None:
            node = nodes[0] if type_ == first else nodes[where.nodes - 1]
            pod["nodeSelector"] = {names.HOSTNAME: node}
        if not model.limited:
            del pod["containers"][0]["resources"]["limits"]["cpu"]
    return body


def first_pod(name: str, model: Model) -> str:
    """Return the pod whose log ends with the totals."""
    return f"{name}-{'master' if model.kind == 'PyTorchJob' else 'chief'}-0"
