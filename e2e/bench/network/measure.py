"""The benchmark: every job in every placement, in turn, on links of two speeds."""

import itertools
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from e2e.bench.bed import Bench
from e2e.bench.network.placements import (
    CHOSEN,
    HOPED,
    MODELS,
    PLACEMENTS,
    REFERENCE,
    UNLIMITED,
    Model,
    Placement,
    first_pod,
    manifest,
)
from e2e.bench.network.tables import Run, Runs, choice, parts_of, table_of, verdict
from e2e.harness.install import create_namespace, kubectl
from e2e.harness.jobs import jobs_path
from e2e.harness.look import ended
from e2e.harness.training import pods_of
from e2e.harness.wait import TooLateError, until
from e2e.testbed import lifecycle
from e2e.testbed.cluster import Testbed
from e2e.testbed.progress import say, step
from e2e.testbed.realnodes import Node, nodes
from e2e.testbed.realnodes.shaping import shape, unshape

Object = dict[str, Any]
NAME = "bench-network"
_NAMESPACE = "bench-network"
_TRAINED_SECONDS = 300.0
_WARM_STEPS = 5
_numbers = itertools.count()


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
            self.restarts += sum(one["restartCount"] for one in statuses)

    def check(self, where: Placement) -> None:
        """Raise RuntimeError for a job that was elsewhere, or whose time is of several tries."""
        if len(self.homes) != (where.nodes or len(self.homes)) or self.hosted != {
            where.network == "host"
        }:
            raise RuntimeError(f"on {self.homes}, host network {self.hosted}: not {where.name}")
        if self.restarts:
            raise RuntimeError("a pod was restarted")


def _bytes(members: list[Node]) -> float:
    """Return what has gone between the nodes: the links of both count it."""
    return sum(node.bytes_on_wire() for node in members) / 2
