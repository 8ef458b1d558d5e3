"""Gangs without capacity, and the autoscaler that adds nodes for them, both watched by a case.

A `Scene` is a namespace with NodePools of its own, which other namespaces cannot use. Every
observation is recorded, so that a case can check afterwards that a state never occurred.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from e2e.harness.faults import Exchange
from e2e.harness.half_gangs import Gang
from e2e.harness.jobs import TRAIN_JOB, job, jobs_path, pod_label, train_job, workers
from e2e.harness.kube import Object
from e2e.harness.space import CASE, Space
from e2e.harness.wait import until
from e2e.testbed import fakenodes, karpenter
from e2e.testbed.api import is_ready
from e2e.testbed.karpenter import CLAIMS, GPU, POOL, Pool
from kfext.names import NEW_NODES_NAMESPACE, PLACEHOLDER_OF

EACH = {"cpu": "4", "memory": "16Gi", GPU: "4"}
"""The resources of a pod; two such pods fit on a machine of the default pool."""
PODS, NODES = 8, 4
"""The pods of the default gang, and the nodes that it needs."""
COMES_SECONDS = 180.0
"""The default deadline of a wait: new nodes are ready after 20 s, but kfext may ask late."""
_PLACEHOLDERS = f"/api/v1/namespaces/{NEW_NODES_NAMESPACE}/pods"


@dataclass(frozen=True, slots=True)
class Observation:
    """The state at one moment. `at`: in seconds since the scene began.

    `claims` and `ready`: the names of the NodeClaims and of the ready nodes. `asked` and `held`:
    the numbers of placeholders and of bound placeholders. `members`: the number of pods by job.
    """

    at: float
    claims: frozenset[str]
    ready: frozenset[str]
    asked: int
    held: int
    members: Mapping[str, int]


@dataclass
class Scene:
    """A namespace, its pools, and its gangs by name."""

    space: Space
    gangs: dict[str, Gang] = field(default_factory=dict)
    observations: list[Observation] = field(default_factory=list)
    pools: list[str] = field(default_factory=list)
    _jobs: dict[str, Object] = field(default_factory=dict)
    _uids: set[str] = field(default_factory=set)
    _submitted: dict[str, float] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)
    _written: int = 0

    def __post_init__(self) -> None:
        self._written = len(self._writes())

    # --- changes ----------------------------------------------------------------------------------

    def pool(self, pool: Pool | None = None) -> None:
        """Let Karpenter add nodes for this namespace alone."""
        added = pool or Pool()
        name = f"{self.space.name}-{added.name}"
        self.pools.append(name)
        labels = {CASE: self.space.name}
        karpenter.add(self.space.kfext.testbed, replace(added, name=name, labels=labels))

    def full_nodes(self, count: int) -> list[str]:
        """Create nodes that are full of pods without a job."""
        created = self.space.nodes(count, cpu="32", memory="256Gi", gpu=fakenodes.CAPACITY[GPU])
        for node in created:
            self.space.take_gpus(f"full-{node}", node, int(fakenodes.CAPACITY[GPU]))
        return created

    def submit(
        self,
        name: str,
        count: int = PODS,
        *,
        kind: str = "PyTorchJob",
        ends_within: int | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Submit a gang; a PyTorchJob may have a deadline, in seconds, and annotations."""
        here = {"nodeSelector": {CASE: self.space.name}}
        if kind == TRAIN_JOB:
            both = {"requests": EACH, "limits": EACH}
            body = train_job(name, count, resources=both, pod=here)
        elif kind == "TFJob":
            body = job(name, {"PS": 2, "Worker": count - 2}, kind=kind, each=EACH, pod=here)
        else:
            policy = {"activeDeadlineSeconds": ends_within} if ends_within else {}
            body = workers(name, count, each=EACH, pod=here, policy=policy, annotations=annotations)
        self._submitted[name] = time.monotonic() - self._began
        stored = self.space.kube.create(jobs_path(self.space.name, kind), body)
        self._jobs[name] = {**stored, "kind": kind}
        self._uids.add(stored["metadata"]["uid"])
        self.gangs[name] = Gang(name)

    def delete(self, name: str) -> None:
        """Delete a job, and stop watching its gang."""
        kind = self._jobs.pop(name)["kind"]
        self.space.kube.delete(jobs_path(self.space.name, kind, name))

    def rivals(self, count: int) -> None:
        """Create pods without a job that request a whole machine each."""
        limits = {GPU: fakenodes.CAPACITY[GPU], "cpu": "4"}
        container = {"name": "rival", "image": "none", "resources": {"limits": limits}}
        spec = {"nodeSelector": {CASE: self.space.name}, "containers": [container]}
        for number in range(count):
            body = {"metadata": {"name": f"rival-{number}"}, "spec": spec}
            self.space.kube.create(self.space.path("pods"), body)

    # --- observations -----------------------------------------------------------------------------

    def observe(self) -> Observation:
        """Record and return the state; pods are read first, so that it includes their nodes."""
        kube, at = self.space.kube, time.monotonic() - self._began
        pods = [
            pod
            for pod in kube.items(self.space.path("pods"))
            if "deletionTimestamp" not in pod["metadata"]
        ]
        placeholders = self.placeholders()
        members: dict[str, int] = {}
        for name, submitted in self._jobs.items():
            label, kind = pod_label(submitted["kind"]), submitted["kind"]
            own = [pod for pod in pods if pod["metadata"].get("labels", {}).get(label) == name]
            stored = kube.get(jobs_path(self.space.name, kind, name))
            self.gangs[name].observe({**stored, "kind": kind}, own, at=at)
            members[name] = len(own)
        self.observations.append(
            Observation(
                at=at,
                claims=frozenset(_names(self._of_pools(CLAIMS))),
                ready=frozenset(_names(filter(is_ready, self._of_pools("/api/v1/nodes")))),
                asked=len(placeholders),
                held=sum("nodeName" in pod["spec"] for pod in placeholders),
                members=members,
            )
        )
        return self.observations[-1]

    def placeholders(self) -> list[Object]:
        """Return the placeholders of the jobs of this scene, deleted jobs included."""
        pods = self.space.kube.items(f"{_PLACEHOLDERS}?labelSelector={PLACEHOLDER_OF}")
        return [pod for pod in pods if pod["metadata"]["labels"][PLACEHOLDER_OF] in self._uids]

    def view(self, name: str) -> Object:
        return self.space.view(name, self._jobs[name]["kind"])

    def created(self) -> set[str]:
        """Return the names of all NodeClaims that ever existed."""
        return set().union(*(now.claims for now in self.observations))

    def half(self) -> dict[str, list[float]]:
        """Return the gangs that were half, with the length of each half stretch in seconds."""
        return {name: gang.half for name, gang in self.gangs.items() if gang.half}

    def early(self, name: str, *, needs: int) -> list[Observation]:
        """Return the observations of a job with pods before `needs` nodes were ready."""
        with_pods = (now for now in self.observations if now.members.get(name))
        return [now for now in with_pods if len(now.ready) < needs]

    def asked_after(self, name: str) -> float:
        """Return the seconds from the submission of a job until a placeholder was seen."""
        return next(now.at for now in self.observations if now.asked) - self._submitted[name]

    def whole_after(self, name: str) -> float:
        """Return the seconds from the submission of a job until all its pods were bound."""
        whole = self.gangs[name].whole_at
        assert whole is not None
        return whole - self._submitted[name]

    def rivals_bound(self) -> int:
        """Return the number of bound pods without a job."""
        pods = self.space.pods()
        return sum(
            "nodeName" in pod["spec"] for pod in pods if pod["metadata"]["name"].startswith("rival")
        )

    def written(self) -> int:
        """Return the number of writes of placeholders since this scene began."""
        return len(self._writes()) - self._written

    def _writes(self) -> list[Exchange]:
        return self.space.kfext.writes(lambda exchange: exchange.path.startswith(_PLACEHOLDERS))

    def _of_pools(self, path: str) -> Iterator[Object]:
        for pool in self.pools:
            yield from self.space.kube.items(f"{path}?labelSelector={POOL}%3D{pool}")

    # --- waits ------------------------------------------------------------------------------------

    def until(
        self, condition: Callable[[Observation], Any], what: str, *, seconds: float = COMES_SECONDS
    ) -> None:
        """Observe until the condition holds for an observation."""
        until(lambda: condition(self.observe()), what=what, account=self.account, seconds=seconds)

    def whole(self, *jobs: str) -> None:
        """Wait until all pods of the gangs are bound."""

        def bound(_: Observation) -> bool:
            return all(self.gangs[name].bound == self.gangs[name].wanted for name in jobs)

        self.until(bound, f"all pods of {', '.join(jobs)} are bound")

    def reason(self, name: str, *reasons: str, seconds: float = COMES_SECONDS) -> Object:
        """Wait until a job has one of these reasons; return the status of its TrainingPlan."""

        def waits(_: Observation) -> bool:
            return self.view(name).get("reason") in reasons

        self.until(waits, f"{name} waits for {' or '.join(reasons)}", seconds=seconds)
        return self.view(name)

    def watch(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.until(lambda _: time.monotonic() > end, "time passes", seconds=seconds + COMES_SECONDS)

    def gone(self) -> None:
        """Wait until all placeholders are deleted, and the autoscaler has removed all nodes."""
        self.until(lambda now: not (now.asked or now.claims), "placeholders and nodes are gone")

    def account(self) -> str:
        """Describe the last observation and the objects of the namespace."""
        return f"{self.observations[-1]}\n{self.gangs}\n{self.space.account()}"


def _too_big(scene: Scene) -> None:
    scene.full_nodes(2)


def _in_use(scene: Scene) -> None:
    scene.full_nodes(NODES)


def _soon_free(scene: Scene) -> None:
    scene.space.nodes(NODES, cpu="32", memory="256Gi", gpu=fakenodes.CAPACITY[GPU])
    scene.submit("first", ends_within=150)
    scene.whole("first")


ASKS: Mapping[str, tuple[Callable[[Scene], None], float]] = {
    "no empty cluster would hold it": (_too_big, 2.0),
    "other pods use the capacity without an end": (_in_use, 10.0),
    "the capacity is expected to be free within 3 minutes": (_soon_free, 60.0),
}
"""Why a gang of PODS does not fit -> its setup, and after how many seconds kfext asks for nodes."""


@contextmanager
def scene_of(space: Space) -> Iterator[Scene]:
    """Yield a scene; its pools and all their nodes are removed at the end."""
    scene = Scene(space)
    try:
        yield scene
    finally:
        space.clean()
        for pool in scene.pools:
            karpenter.remove(space.kfext.testbed, pool)


def _names(items: Iterator[Object]) -> Iterator[str]:
    return (item["metadata"]["name"] for item in items)
