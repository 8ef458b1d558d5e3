"""One real job in five placements: spread or together, overlay or host network, and alone.

CPU requests = limits, fixed thread counts, and the whole job fits one node, so that compute is the
same in every placement and only the way between the processes differs. Every job runs in every
placement in turn, on links of each speed that is asked for.
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
_CPU, _CPU_OF_SERVER_TOO = "300m", "600m"
NAME = "bench-network"
_NAMESPACE = "bench-network"
_TRAINED_SECONDS = 300.0
_WARM_STEPS = 5
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the pods of a job are, and on which network; `alone` is one process without any.

    `nodes` is unset if kfext chooses.
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
    """Return the pod that logs the totals at its end."""
    return f"{name}-{'master' if model.kind == 'PyTorchJob' else 'chief'}-0"


@dataclass(frozen=True, slots=True)
class Run:
    """One job in one placement: steps a second, CPU seconds and bytes per step, the last loss."""

    rate: float
    cpu: float
    wire: float
    loss: float


Runs = Mapping[tuple[Model, Placement], list[Run]]


def table_of(runs: Runs, title: str) -> str:
    """Return what each job did in each placement, beside the first of them."""
    header = (
        "job", "placement", "steps/s", "ratio", "CPU s/step of the first process",
        "MB between nodes/step, start-up included", "loss",
    )  # fmt: skip
    return table(title, header, [_row(runs, model, where) for model, where in runs])


def _row(runs: Runs, model: Model, where: Placement) -> tuple[str, ...]:
    found = runs[model, where]
    losses = sorted({run.loss for run in found})
    return (
        model.title if where is REFERENCE else "",
        where.name,
        spread([run.rate for run in found]),
        "1" if where is REFERENCE else spread(_ratios(runs, model, where)),
        f"{median(run.cpu for run in found):.4f}",
        f"{median(run.wire for run in found) / 1e6:.2f}",
        " ".join(f"{loss:g}" for loss in losses),
    )


def _ratios(runs: Runs, model: Model, where: Placement) -> list[float]:
    """Return the speeds of a job in a placement as parts of that in the first, by repeat."""
    pairs = zip(runs[model, where], runs[model, REFERENCE], strict=True)
    return [run.rate / reference.rate for run, reference in pairs]


def parts_of(runs: Runs, title: str) -> str:
    """Return how much training time each step from the first placement to the hoped-for saves."""
    rows = [
        (model.title, *(_saved(runs, model, of, by) for _, of, by in STEPS)) for model in MODELS
    ]
    return table(f"Training time, {title}", ("job", *(name for name, _, _ in STEPS)), rows)


def _saved(runs: Runs, model: Model, of: Placement, by: Placement) -> str:
    """Return the change of the time of a step in percent, over pairs of one repeat."""
    pairs = zip(runs[model, of], runs[model, by], strict=True)
    changes = [100 * (before.rate / after.rate - 1) for before, after in pairs]
    return f"{median(changes):+.1f} % ({min(changes):+.1f} to {max(changes):+.1f})"


def verdict(runs: Runs) -> str:
    """Return whether together on the host network is the fastest way, and the largest gain."""
    times = {
        model: 1 - _rate(runs, model, REFERENCE) / _rate(runs, model, HOPED) for model in MODELS
    }
    best = max(MODELS, key=lambda model: times[model])
    beaten = [said for model in MODELS if (said := _beaten(runs, model))]
    differ = ", ".join(model.title for model in MODELS if not _same_loss(runs, model))
    lines = [
        f"- Training time of {HOPED.name} against {REFERENCE.name}, largest gain: "
        f"-{100 * times[best]:.1f} % ({best.title}), {NETWORK_GAIN.judge(100 * times[best])}.",
        f"- {HOPED.name} is the fastest placement"
        + (f", but not of {'; '.join(beaten)}." if beaten else " of every job: PASS."),
        f"- The losses of the four placements {f'DIFFER: {differ}' if differ else 'are the same'}.",
    ]
    return "\n".join(lines)


def choice(runs: Runs) -> str:
    """Return whether a job without a CPU limit is as fast where kfext puts it as apart."""
    speed = median(_ratios(runs, UNLIMITED, CHOSEN))
    return f"- {UNLIMITED.title}, {CHOSEN.name}: {UNLIMITED_SPEED.judge(speed)}."


def _shared(runs: Runs, model: Model) -> list[Placement]:
    return [where for where in PLACEMENTS if not where.alone and (model, where) in runs]


def _beaten(runs: Runs, model: Model) -> str:
    """Return the placement that beats the hoped-for placement, or an empty text."""
    best = max(_shared(runs, model), key=lambda where: _rate(runs, model, where))
    ratio = _rate(runs, model, HOPED) / _rate(runs, model, best)
    return "" if best is HOPED else f"{model.title} ({ratio:.2f} of {best.name})"


def _same_loss(runs: Runs, model: Model) -> bool:
    """Return whether all runs came to one loss; a parameter server's steps have no fixed order."""
    losses = {run.loss for where in _shared(runs, model) for run in runs[model, where]}
    return model.kind == "TFJob" or len(losses) == 1


def _rate(runs: Runs, model: Model, where: Placement) -> float:
    return median(run.rate for run in runs[model, where])


def measure(*, links: Sequence[str], repeats: int) -> str:
    """Return tables for each speed of the links."""
    tables = []
    with lifecycle.running(NAME, real_nodes=2) as bed:
        # Beside the nodes: they are for training alone.
        Bench(bed).install()
        create_namespace(bed, _NAMESPACE, managed=True)
        members = nodes(bed)
        with step("warm up: what training reads from disk"):
            for model in (MODELS[0], MODELS[-1]):
                _one(bed, members, f"warm-{model.name}", model, REFERENCE, steps=_WARM_STEPS)
        for link in links:
            for node in members:
                unshape(node) if link == "none" else shape(node, link)
            title = f"links {link}, 2 nodes of {members[0].millicores}m, repeats: {repeats}"
            with step(title, expect=f"{len(MODELS) * len(PLACEMENTS) * repeats} runs"):
                runs = _all(bed, members, MODELS, PLACEMENTS, repeats=repeats)
            tables += [table_of(runs, title), parts_of(runs, title), verdict(runs)]
            say("\n\n".join(tables))  # what is measured is not lost if the next fails
        title = f"the same without a CPU limit, repeats: {repeats}"
        with step(title, expect=f"{3 * repeats} runs"):
            runs = _all(bed, members, (UNLIMITED,), (REFERENCE, HOPED, CHOSEN), repeats=repeats)
        tables += [table_of(runs, title), choice(runs)]
    return "\n\n".join(tables)


def _all(
    bed: Testbed,
    members: list[Node],
    models: Sequence[Model],
    placements: Sequence[Placement],
    *,
    repeats: int,
) -> Runs:
    """Run every job in every placement, the placements of a job in another order each time."""
    runs: dict[tuple[Model, Placement], list[Run]] = {
        (model, where): [] for model in models for where in placements
    }
    order = random.Random(1)
    for _ in range(repeats):
        for model in models:
            for where in order.sample(placements, len(placements)):
                name = f"job-{next(_numbers)}"
                try:
                    run = _one(bed, members, name, model, where, steps=model.steps)
                except (RuntimeError, TooLateError) as error:
                    say(f"    once more, for {name} came to nothing: {error}")
                    run = _one(bed, members, f"{name}-again", model, where, steps=model.steps)
                runs[model, where].append(run)
                say(f"    {model.title}, {where.name}: {run.rate:.2f} steps/s")
    return runs


def _one(
    bed: Testbed, members: list[Node], name: str, model: Model, where: Placement, *, steps: int
) -> Run:
    body = manifest(name, model, where, [node.name for node in members], steps=steps)
    path = jobs_path(_NAMESPACE, model.kind)
    before, seen = _bytes(members), _Seen()
    bed.api.create(path, body)

    def has_ended() -> bool:
        seen.look(pods_of(bed, _NAMESPACE, name).values())
        return _ended(bed.api.get(f"{path}/{name}"))

    until(has_ended, what=f"{name} has ended", seconds=_TRAINED_SECONDS)
    sent = _bytes(members) - before
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
    if (how := ended(body)) == "Failed":
        raise RuntimeError(f"{body['metadata']['name']} failed")
    return how == "Succeeded"


@dataclass(slots=True)
class _Seen:
    """Where the pods of a job were, on which network, and how often one was restarted."""

    homes: set[str] = field(default_factory=set)
    hosted: set[bool] = field(default_factory=set)
    restarts: int = 0

    def look(self, pods: Iterable[Object]) -> None:
        """Note it: a parameter server is gone when its job has ended."""
        for pod in pods:
            if node := pod["spec"].get("nodeName"):
                self.homes.add(node)
                self.hosted.add(pod["spec"].get("hostNetwork", False))
            statuses = pod["status"].get("containerStatuses", [])
            self.restarts += sum(status["restartCount"] for status in statuses)

    def check(self, where: Placement) -> None:
        """Raise RuntimeError for a job that was elsewhere, or had several tries."""
        if len(self.homes) != (where.nodes or len(self.homes)) or self.hosted != {
            where.network == "host"
        }:
            raise RuntimeError(f"on {self.homes}, host network {self.hosted}: not {where.name}")
        if self.restarts:
            raise RuntimeError("a pod was restarted")


def _bytes(members: list[Node]) -> float:
    """Return what has gone between the nodes: the links of both count it."""
    return sum(node.bytes_on_wire() for node in members) / 2
