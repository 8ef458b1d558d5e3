"""One soak from an empty cluster to an empty cluster, and what it found."""

import random
import time
from collections import Counter, deque
from dataclasses import dataclass, field

from e2e.harness.kfext_process import Kfext
from e2e.harness.space import Space
from e2e.soak import manifests
from e2e.soak.deeds import Deeds
from e2e.soak.facts import Cluster
from e2e.soak.invariants import Checker, Limits, Violation
from e2e.soak.mirror import Mirror
from e2e.soak.quiet import Reserved, unbalanced, unsettled
from e2e.soak.roster import Roster
from e2e.soak.script import NAMESPACES, Action, Script
from e2e.soak.trouble import Trouble
from e2e.testbed.progress import say

LIMITS = Limits(bind=5.0, create=8.0)
_QUOTA = {"pods": "24", "requests.nvidia.com/gpu": "16"}
_RESERVE_AFTER = "30s"
_ACT_SECONDS = 0.25
_LOOK_SECONDS = 1.0
_SETTLE_SECONDS = 240.0
_EMPTY_SECONDS = 120.0
_MOST_TOLD = 3
_TRAIL = 60


@dataclass
class Soak:
    """A soak on a testbed whose kfext is installed; `wrong` is what did not hold."""

    kfext: Kfext
    seed: int
    nodes: int
    done: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.checker = Checker(LIMITS)
        self._kube = self.kfext.kube
        self._spaces = {name: Space(self.kfext, name) for name in NAMESPACES}
        self._deeds = Deeds(self._kube)
        self._trouble = Trouble(self.kfext)
        self._mirror = Mirror(self.kfext.testbed, on_pod=self.checker.pod)
        names = [f"node-{number:03}" for number in range(self.nodes)]
        self._script = Script(random.Random(self.seed), Roster(names))
        self._looked = 0.0
        self._most: Counter[str] = Counter()
        self._trail: deque[str] = deque(maxlen=_TRAIL)

    def run(self, seconds: float) -> list[str]:
        """Act for some seconds, wait for quiet, and clear everything away; return what is wrong."""
        self._prepare()
        try:
            end = time.monotonic() + seconds
            for action in self._script:
                if time.monotonic() >= end:
                    break
                self._act(action)
                self._rest(_ACT_SECONDS)
            self._settle()
            self._clear()
        finally:
            self._mirror.stop()
            say(self.summary())
        return [*map(str, self.checker.violations), *self.wrong]

    def summary(self) -> str:
        """Return counts of what was done, and the longest times to everything that has a bound."""
        checker, told = self.checker, sorted(self.checker.memory.told.values())
        lines = [
            f"seed {self.seed}: {self.done.total()} actions {dict(sorted(self.done.items()))}",
            f"{self._trouble.kills} kills; {checker.looks} looks at {len(checker.rules)} rules; "
            f"kfext at work for {self._trouble.worked:.0f} s",
            f"most at once: {dict(self._most)}",
            f"time to a reason of {len(told)} jobs: " + _percentiles(told),
        ]
        for rule in checker.rules:
            worst = checker.worst.get(rule.name, 0.0)
            lines.append(
                f"  {rule.name}: seen {checker.seen[rule.name]} times, "
                f"at worst for {worst:.1f} s of {rule.seconds:.0f} s"
            )
        return "\n".join(lines)

    # --- the parts --------------------------------------------------------------------------------

    def _prepare(self) -> None:
        for space in self._spaces.values():
            space.create()
        quota = {"metadata": {"name": "soak"}, "spec": {"hard": _QUOTA}}
        path = f"/api/v1/namespaces/{NAMESPACES[-1]}/resourcequotas"
        self._kube.create(path, {"apiVersion": "v1", "kind": "ResourceQuota", **quota})
        for name in manifests.PRIORITIES:
            path = "/apis/scheduling.k8s.io/v1/priorityclasses"
            self._kube.create(path, manifests.priority_class(name))
        timeouts = {
            "bindTimeout": f"{LIMITS.bind:.0f}s",
            "createTimeout": f"{LIMITS.create:.0f}s",
            "reserveAfter": _RESERVE_AFTER,
        }
        policy = {"metadata": {"name": "soak"}, "spec": {"placement": timeouts}}
        path = "/apis/kfext.dev/v1alpha1/trainingpolicies"
        body = {"apiVersion": "kfext.dev/v1alpha1", "kind": "TrainingPolicy", **policy}
        self._kube.create(path, body)
        for name in self._script.roster.nodes:
            self._deeds.add_node(name)
        self.kfext.start_standby()
        self._mirror.start()
        self._trouble.tick()

    def _act(self, action: Action) -> None:
        self._trail.append(f"{self._trouble.worked:.1f} {action}")
        self.done[action.name] += 1
        deed = getattr(self._deeds, action.name, None) or getattr(self._trouble, action.name)
        deed(*action.arguments)

    def _rest(self, seconds: float) -> None:
        """Let some seconds pass, watching."""
        until = time.monotonic() + seconds
        at = self._trouble.tick()
        if time.monotonic() - self._looked >= _LOOK_SECONDS:
            self._looked = time.monotonic()
            self._deeds.tend()
            cluster = self._mirror.cluster(at)
            self._count(cluster)
            self._report(self.checker.look(cluster))
        time.sleep(max(0.0, until - time.monotonic()))

    def _count(self, cluster: Cluster) -> None:
        """Note how much was going on, so that a soak of an idle cluster shows."""
        gangs = cluster.gangs.values()
        for what, much in {
            "jobs": len(cluster.gangs),
            "queued": sum(gang.held and gang.suspended for gang in gangs),
            "released": sum(gang.released for gang in gangs),
            "pods bound": sum(bool(pod.node) and not pod.over for pod in cluster.pods),
            "nodes shut": sum(not node.open for node in cluster.nodes.values()),
            "nodes not ready": sum(not node.ready for node in cluster.nodes.values()),
            "pods gated": sum(pod.gated for pod in cluster.pods),
        }.items():
            self._most[what] = max(self._most[what], much)

    def _report(self, fresh: list[Violation]) -> None:
        for one in fresh:
            say(f"VIOLATED after {self.done.total()} actions of seed {self.seed}: {one}")
            space = next((space for name, space in self._spaces.items() if name in one.told), None)
            if space is not None and len(self.checker.violations) <= _MOST_TOLD:
                say("\n".join(["last actions:", *self._trail, space.account()]))

    def _settle(self) -> None:
        """End all trouble and wait until every job has what it can get."""
        say(f"  did {dict(self.done)}; waiting for quiet")
        self._trouble.end()
        for name, how in self._script.roster.troubled.items():
            self._deeds.heal_node(name, how)
        self._deeds.unlock(self._script.roster.jobs)
        deadline = time.monotonic() + _SETTLE_SECONDS
        restless = ["nothing was looked at"]
        while restless and time.monotonic() < deadline:
            self._rest(_LOOK_SECONDS)
            cluster = self._mirror.cluster(self._trouble.worked)
            restless = [*unsettled(cluster), *unbalanced(cluster, self._reserved())]
        self.wrong += [f"[unsettled] {one}" for one in restless]
        if restless:
            for space in self._spaces.values():
                say(space.account())

    def _clear(self) -> None:
        """Delete everything; then nothing may be reserved."""
        for space in self._spaces.values():
            for plural in ("pytorchjobs", "tfjobs", "pods"):
                self._kube.delete(space.path(plural))
        deadline = time.monotonic() + _EMPTY_SECONDS
        left, kept = -1, Reserved()
        while (left or kept != Reserved(0, 0)) and time.monotonic() < deadline:
            self._rest(_LOOK_SECONDS)
            left = len(self._mirror.cluster(0.0).pods)
            kept = self._reserved()
        if left or kept != Reserved(0, 0):
            self.wrong.append(f"[leaked] {left} pods and {kept} after all was deleted")

    def _reserved(self) -> Reserved:
        gauge = self._trouble.gauge
        return Reserved(gauge("kfext_ledger_claims"), gauge("kfext_reserved_nodes"))


def _percentiles(times: list[float]) -> str:
    if not times:
        return "none"
    places = {"p50": 0.5, "p99": 0.99, "worst": 1.0}
    at = {
        name: times[min(len(times) - 1, int(share * len(times)))] for name, share in places.items()
    }
    return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in at.items())
