"""A real job in five placements: spread or together, overlay or host network, and alone.

CPU limits equal the requests, thread counts are fixed, and the whole job fits one node; so compute
is the same in every placement, and only the network between the processes differs. Every job runs
in every placement in turn, on links of each requested speed.
"""

import itertools
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from kubernetes.client import ApiClient

from e2e.bench.bed import Bench
from e2e.bench.report import NETWORK_GAIN, UNLIMITED_SPEED, spread, table
from e2e.harness.install import create_namespace, kubectl
from e2e.harness.jobs import ended, jobs_path, specs
from e2e.harness.training import pods_of, pytorch_job, tf_job
from e2e.harness.wait import TooLateError, until
from e2e.testbed import lifecycle
from e2e.testbed.cluster import Testbed
from e2e.testbed.progress import say, step
from e2e.testbed.realnodes import Node, nodes
from e2e.testbed.realnodes.node import shape, unshape
from kfext import names

Object = dict[str, Any]
_CPU, _CPU_WITH_SERVER = "300m", "600m"
NAME = "bench-network"
_NAMESPACE = "bench-network"
_JOB_SECONDS = 300.0
_WARM_STEPS = 5
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Placement:
    """The number of nodes and the network of a job; `alone` is a single process without network.

    `nodes` None means that kfext chooses.
    """

    name: str
    nodes: int | None = 1
    network: str = "pod"
    alone: bool = False


REFERENCE = Placement("spread, overlay", nodes=2)
SPREAD_ON_HOST = Placement("spread, host", nodes=2, network="host")
TOGETHER = Placement("together, pod")
PREDICTED = Placement("together, host", network="host")
PLACEMENTS = (
    REFERENCE,
    SPREAD_ON_HOST,
    TOGETHER,
    PREDICTED,
    Placement("one process alone", alone=True),
)
# The compared changes: name, from, to.
STEPS = (
    ("spread: overlay to host", REFERENCE, SPREAD_ON_HOST),
    ("pod network: spread to together", REFERENCE, TOGETHER),
    ("together: pod to host", TOGETHER, PREDICTED),
    ("both", REFERENCE, PREDICTED),
)


@dataclass(frozen=True, slots=True)
class Model:
    """A model to train; `megabytes`: what a computing process sends and receives in a step.

    `limited`: whether the CPU limit of a pod equals its request.
    """

    name: str
    kind: str
    megabytes: float
    steps: int
    limited: bool = True

    @property
    def title(self) -> str:
        framework = "DDP" if self.kind == "PyTorchJob" else "TF with a server"
        free = "" if self.limited else ", no CPU limit"
        return f"{framework} {self.name}, {self.megabytes:g} MB{free}"


# From almost no communication to almost only communication; each trains for about ten seconds.
MODELS = (
    Model("cnn", "PyTorchJob", 0.03, 500),
    Model("resnet", "PyTorchJob", 1.2, 60),
    Model("embedding", "PyTorchJob", 5.1, 140),
    Model("mlp", "PyTorchJob", 16.8, 20),
    Model("mlp", "TFJob", 4.5, 80),
)
# For this model alone compute differs: on two nodes, each process has a whole node's CPU.
UNLIMITED = Model("cnn", "PyTorchJob", 0.03, 500, limited=False)
CHOSEN = Placement("kfext's choice, overlay", nodes=None)


def manifest(name: str, model: Model, where: Placement, nodes: list[str], *, steps: int) -> Object:
    """Return the job: first pod on the first node, others on the last, unless kfext chooses.

    Alone, a TensorFlow process does the work of chief and server, with the CPU of both.
    """
    arguments = ("--model", model.name, "--steps", str(steps))
    if model.kind == "PyTorchJob":
        created = pytorch_job(name, cpu=_CPU, arguments=arguments)
    else:
        cpu = _CPU_WITH_SERVER if where.alone else _CPU
        created = tf_job(name, workers=0, cpu=cpu, arguments=arguments)
    body: Object = ApiClient().sanitize_for_serialization(created)
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
    return f"{name}-{'master' if model.kind == 'PyTorchJob' else 'chief'}-0"


@dataclass(frozen=True, slots=True)
class Run:
    """A job in a placement: steps per second, CPU seconds and bytes sent per step, last loss."""

    rate: float
    cpu: float
    wire: float
    loss: float


Runs = Mapping[tuple[Model, Placement], list[Run]]


def speed_table(runs: Runs, title: str) -> str:
    """Return a table of each job in each placement, relative to the first placement."""
    header = (
        "job", "placement", "steps/s", "ratio", "CPU s/step of the first process",
        "MB between nodes/step, start-up included", "loss",
    )  # fmt: skip
    return table(title, header, [_row(runs, model, where) for model, where in runs])


def _row(runs: Runs, model: Model, where: Placement) -> tuple[str, ...]:
    repeats = runs[model, where]
    losses = sorted({run.loss for run in repeats})
    return (
        model.title if where is REFERENCE else "",
        where.name,
        spread([run.rate for run in repeats]),
        "1" if where is REFERENCE else spread(_ratios(runs, model, where)),
        f"{median(run.cpu for run in repeats):.4f}",
        f"{median(run.wire for run in repeats) / 1e6:.2f}",
        " ".join(f"{loss:g}" for loss in losses),
    )


def _ratios(runs: Runs, model: Model, where: Placement) -> list[float]:
    """Return the speeds of a job in a placement relative to the first placement, by repeat."""
    pairs = zip(runs[model, where], runs[model, REFERENCE], strict=True)
    return [run.rate / reference.rate for run, reference in pairs]


def savings_table(runs: Runs, title: str) -> str:
    """Return a table of the training time that each change towards the best placement saves."""
    rows = [
        (model.title, *(_change(runs, model, old, new) for _, old, new in STEPS))
        for model in MODELS
    ]
    return table(f"Training time, {title}", ("job", *(name for name, _, _ in STEPS)), rows)


def _change(runs: Runs, model: Model, old: Placement, new: Placement) -> str:
    """Return the median and range, over repeats, of the change of the step time in percent."""
    pairs = zip(runs[model, old], runs[model, new], strict=True)
    changes = [100 * (before.rate / after.rate - 1) for before, after in pairs]
    return f"{median(changes):+.1f} % ({min(changes):+.1f} to {max(changes):+.1f})"


def verdict(runs: Runs) -> str:
    """Return lines with the largest gain of `PREDICTED`, and whether it is always fastest."""
    times = {
        model: 1 - _rate(runs, model, REFERENCE) / _rate(runs, model, PREDICTED) for model in MODELS
    }
    best = max(MODELS, key=lambda model: times[model])
    beaten = [better for model in MODELS if (better := _beaten(runs, model))]
    differ = ", ".join(model.title for model in MODELS if not _same_loss(runs, model))
    lines = [
        f"- Training time of {PREDICTED.name} against {REFERENCE.name}, largest gain: "
        f"-{100 * times[best]:.1f} % ({best.title}), {NETWORK_GAIN.judge(100 * times[best])}.",
        f"- {PREDICTED.name} is the fastest placement"
        + (f", but not of {'; '.join(beaten)}." if beaten else " of every job: PASS."),
        f"- The losses of the four placements {f'DIFFER: {differ}' if differ else 'are the same'}.",
    ]
    return "\n".join(lines)


def choice(runs: Runs) -> str:
    """Return a line on the speed of a job without a CPU limit in the placement that kfext chose."""
    speed = median(_ratios(runs, UNLIMITED, CHOSEN))
    return f"- {UNLIMITED.title}, {CHOSEN.name}: {UNLIMITED_SPEED.judge(speed)}."


def _shared(runs: Runs, model: Model) -> list[Placement]:
    return [where for where in PLACEMENTS if not where.alone and (model, where) in runs]


def _beaten(runs: Runs, model: Model) -> str:
    """Return the job and the placement that beats `PREDICTED`; empty if none does."""
    best = max(_shared(runs, model), key=lambda where: _rate(runs, model, where))
    ratio = _rate(runs, model, PREDICTED) / _rate(runs, model, best)
    return "" if best is PREDICTED else f"{model.title} ({ratio:.2f} of {best.name})"


def _same_loss(runs: Runs, model: Model) -> bool:
    """Return whether all runs end with the same loss; with a server the order of steps varies."""
    losses = {run.loss for where in _shared(runs, model) for run in runs[model, where]}
    return model.kind == "TFJob" or len(losses) == 1


def _rate(runs: Runs, model: Model, where: Placement) -> float:
    return median(run.rate for run in runs[model, where])


def measure(*, links: Sequence[str], repeats: int) -> str:
    tables = []
    with lifecycle.running(NAME, real_nodes=2) as bed:
        # kfext runs outside the nodes, which only train.
        Bench(bed).install()
        create_namespace(bed, _NAMESPACE, managed=True)
        members = nodes(bed)
        with step("warm up the files of the training jobs"):
            for model in (MODELS[0], MODELS[-1]):
                _run_job(bed, members, f"warm-{model.name}", model, REFERENCE, steps=_WARM_STEPS)
        for link in links:
            for node in members:
                unshape(node) if link == "none" else shape(node, link)
            title = f"links {link}, 2 nodes of {members[0].millicores}m, repeats: {repeats}"
            with step(title, expect=f"{len(MODELS) * len(PLACEMENTS) * repeats} runs"):
                runs = _run_all(bed, members, MODELS, PLACEMENTS, repeats=repeats)
            tables += [speed_table(runs, title), savings_table(runs, title), verdict(runs)]
            say("\n\n".join(tables))  # results are not lost if the next step fails
        title = f"the same without a CPU limit, repeats: {repeats}"
        with step(title, expect=f"{3 * repeats} runs"):
            runs = _run_all(
                bed, members, (UNLIMITED,), (REFERENCE, PREDICTED, CHOSEN), repeats=repeats
            )
        tables += [speed_table(runs, title), choice(runs)]
    return "\n\n".join(tables)


def _run_all(
    bed: Testbed,
    members: list[Node],
    models: Sequence[Model],
    placements: Sequence[Placement],
    *,
    repeats: int,
) -> Runs:
    """Run every job in every placement; each repeat has a new random order of placements."""
    runs: dict[tuple[Model, Placement], list[Run]] = {
        (model, where): [] for model in models for where in placements
    }
    order = random.Random(1)
    for _ in range(repeats):
        for model in models:
            for where in order.sample(placements, len(placements)):
                name = f"job-{next(_numbers)}"
                try:
                    run = _run_job(bed, members, name, model, where, steps=model.steps)
                except (RuntimeError, TooLateError) as error:
                    say(f"    once more, as {name} failed: {error}")
                    run = _run_job(bed, members, f"{name}-again", model, where, steps=model.steps)
                runs[model, where].append(run)
                say(f"    {model.title}, {where.name}: {run.rate:.2f} steps/s")
    return runs


def _run_job(
    bed: Testbed, members: list[Node], name: str, model: Model, where: Placement, *, steps: int
) -> Run:
    body = manifest(name, model, where, [node.name for node in members], steps=steps)
    path = jobs_path(_NAMESPACE, model.kind)
    before, seen = _bytes_sent(members), _Observation()
    bed.api.create(path, body)

    def has_ended() -> bool:
        seen.record(pods_of(bed, _NAMESPACE, name).values())
        return _ended(bed.api.get(f"{path}/{name}"))

    until(has_ended, what=f"{name} has ended", seconds=_JOB_SECONDS)
    sent = _bytes_sent(members) - before
    seen.check(where)
    log = kubectl(bed, "logs", "-n", _NAMESPACE, first_pod(name, model), "--tail=5")
    totals = json.loads(next(line for line in reversed(log.splitlines()) if line.startswith("{")))
    bed.api.delete(f"{path}/{name}")
    until(lambda: not pods_of(bed, _NAMESPACE, name), what=f"the pods of {name} are gone")
    return Run(
        rate=totals["steps_per_second"],
        cpu=totals["cpu_seconds"] / totals["steps"],
        wire=sent / totals["steps"],
        loss=totals["loss"],
    )


def _ended(body: Object) -> bool:
    if (outcome := ended(body)) == "Failed":
        raise RuntimeError(f"{body['metadata']['name']} failed")
    return outcome == "Succeeded"


@dataclass(slots=True)
class _Observation:
    """The nodes of a job's pods, whether they use the host network, and the number of restarts."""

    homes: set[str] = field(default_factory=set)
    on_host: set[bool] = field(default_factory=set)
    restarts: int = 0

    def record(self, pods: Iterable[Object]) -> None:
        """Record the pods while the job runs; a parameter server is gone after the job's end."""
        for pod in pods:
            if node := pod["spec"].get("nodeName"):
                self.homes.add(node)
                self.on_host.add(pod["spec"].get("hostNetwork", False))
            statuses = pod["status"].get("containerStatuses", [])
            self.restarts += sum(status["restartCount"] for status in statuses)

    def check(self, where: Placement) -> None:
        """Raise RuntimeError if the job had a different placement, or a restart."""
        if len(self.homes) != (where.nodes or len(self.homes)) or self.on_host != {
            where.network == "host"
        }:
            raise RuntimeError(f"on {self.homes}, host network {self.on_host}: not {where.name}")
        if self.restarts:
            raise RuntimeError("a pod was restarted")


def _bytes_sent(members: list[Node]) -> float:
    """Return the bytes sent between the two nodes; halved, since both links count them."""
    return sum(node.bytes_on_wire() for node in members) / 2
