"""Runs a soak, from an empty cluster to an empty cluster, and collects the broken rules.

Nothing trains on the nodes that kwok simulates, so all pods print the same invented log: steps at a
constant pace whatever the number of workers, never backwards, with a checkpoint now and then. So
kfext also scales running PyTorchJobs down, after a checkpoint, and finds that more workers do not
pay.
"""

import random
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from e2e.harness.fake_kubelet import LINES_PER_SECOND, GrowingLog, growing
from e2e.harness.jobs import jobs_path
from e2e.harness.kfext_process import Kfext
from e2e.harness.kube import Kube
from e2e.harness.space import Space
from e2e.soak import manifests, tenants
from e2e.soak.actions import ClusterActions, Disturbances
from e2e.soak.capacity import Reserved, unbalanced, unsettled
from e2e.soak.facts import WRITE_REFUSED, Cluster
from e2e.soak.invariants import Checker, Limits, Tally, Violation, report
from e2e.soak.inventory import WILD, Inventory
from e2e.soak.mirror import Mirror
from e2e.soak.pod_actions import PodActions
from e2e.soak.process_faults import ProcessFaults, limit_bytes, too_large
from e2e.soak.scaling import REST_SECONDS
from e2e.soak.script import NAMESPACES, Action, Script
from e2e.soak.starts import Starts
from e2e.soak.stops import unused
from e2e.soak.tenants import Tenants
from e2e.testbed import fakenodes, karpenter, trainer
from e2e.testbed.cluster import Testbed
from e2e.testbed.progress import say
from kfext.model.kinds.registered import KINDS

_SAVES_EVERY = 30 * LINES_PER_SECOND
"""Steps between two checkpoints: so many that an early change of size would lose work."""
_QUOTA = {"pods": "24", "requests.nvidia.com/gpu": "16"}
_RESERVE_AFTER = "30s"
_SCALE = {"wait": 3, "idle": 1, "rest": REST_SECONDS}
_PREEMPT = {"wait": 3, "unsaved": 10}
"""With a longer `wait`, a job asks the autoscaler first, and then no other job stops for it."""
LIMITS = Limits(bind=5.0, create=8.0)
_NODES_PER_NEW = 20
_ACT_SECONDS = 0.25
_CHECK_SECONDS = 1.0
_SETTLE_SECONDS = 240.0
_EMPTY_SECONDS = 180.0
_MAX_ACCOUNTS = 3
_TRAIL_ACTIONS = 60


@contextmanager
def fake_programs(testbed: Testbed) -> Iterator[GrowingLog]:
    """Run Trainer, and fake nodes with pods that print the yielded log; wait for the first node."""
    with growing(testbed.folder / "pods.log", saves_every=_SAVES_EVERY) as log:
        fakenodes.start(testbed, 1, log=log.path)
        fakenodes.wait_ready(testbed, 1)
        trainer.start(testbed)
        yield log


def add_autoscaler(testbed: Testbed, *, nodes: int) -> None:
    """Run Karpenter, which may add one node per 20; jobs of the first zone may ask it too.

    Karpenter starts before kfext, which seldom checks for an autoscaler after its own start.
    """
    karpenter.start(testbed)
    most, labels = max(2, nodes // _NODES_PER_NEW), {manifests.ZONE: manifests.ZONES[0]}
    karpenter.add(testbed, karpenter.Pool("soak", most=most, labels=labels))


def set_up(kube: Kube, limits: Limits) -> None:
    """Create a quota, priority classes, a TrainingPolicy, and policies that refuse nothing yet."""
    tenants.install_refusals(kube, WILD)
    quota = {"metadata": {"name": "soak"}, "spec": {"hard": _QUOTA}}
    path = f"/api/v1/namespaces/{NAMESPACES[-1]}/resourcequotas"
    kube.create(path, {"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    for name in manifests.PRIORITIES:
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        kube.create(path, manifests.priority_class(name))
    timeouts = {
        "bindTimeout": f"{limits.bind:.0f}s",
        "createTimeout": f"{limits.create:.0f}s",
        "reserveAfter": _RESERVE_AFTER,
    }
    companion = {
        "scale": {"mode": "act", "parameters": _SCALE},
        "preempt": {"mode": "act", "parameters": _PREEMPT},
    }
    spec = {"placement": timeouts, "companion": companion}
    policy = {"metadata": {"name": "soak"}, "spec": spec}
    path = "/apis/kfext.dev/v1alpha1/trainingpolicies"
    body = {"apiVersion": "kfext.dev/v1alpha1", "kind": "TrainingPolicy", **policy}
    kube.create(path, body)


@dataclass
class Soak:
    """A soak on a testbed with kfext installed. `wrong`: messages beside the checker's violations.

    `programs`: the log that all pods print. `autoscaler`: whether Karpenter adds nodes.
    """

    kfext: Kfext
    programs: GrowingLog
    seed: int
    nodes: int
    autoscaler: bool = False
    tally: Tally = field(default_factory=Tally)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.checker = Checker(LIMITS)
        self._kube = self.kfext.kube
        self._spaces = {name: Space(self.kfext, name) for name in (*NAMESPACES, WILD)}
        self._actions = ClusterActions(self._kube)
        self._disturbances = Disturbances(self._kube)
        self._pod_actions, self._tenants = PodActions(self._kube), Tenants(self._kube)
        self._faults = ProcessFaults(self.kfext)
        self._mirror = Mirror(self.kfext.testbed, on_pod=self.checker.record_pod)
        names = [f"node-{number:03}" for number in range(self.nodes)]
        self._script = Script(random.Random(self.seed), Inventory(names))
        self._checked_at = 0.0
        self._starts = Starts()
        self._saves, self._saved_at = 0, 0.0
        self._trail: deque[str] = deque(maxlen=_TRAIL_ACTIONS)

    def run(self, seconds: float) -> list[str]:
        """Act for `seconds`, wait until all is settled, delete everything; return the messages."""
        self._prepare()
        try:
            end = time.monotonic() + seconds
            for action in self._script:
                if time.monotonic() >= end:
                    break
                self._act(action)
                self._wait_and_check(_ACT_SECONDS)
            self._settle()
            self._clear()
        finally:
            self._mirror.stop()
            say(self.summary())
        self.wrong += [f"[leader] {change}" for change in self._faults.leadership.unexplained]
        self.wrong += too_large(self._faults.peak_bytes, limit_bytes())
        self.wrong += self.tally.in_vain(self._effects)
        self.wrong += self.tally.unscaled(self.checker.memory)
        self.wrong += self.tally.without_train_jobs()
        self.wrong += self.tally.unstopped(self.checker.memory, autoscaler=self.autoscaler)
        return [*map(str, self.checker.violations), *self._tenants.wrong, *self.wrong]

    def summary(self) -> str:
        """Return the counts of actions and effects, and how long each rule was broken at most."""
        faults = self._faults
        return "\n".join(
            [
                f"seed {self.seed}: {self.tally}",
                f"took effect: {dict(sorted(self._effects.items()))}; "
                f"{self._refused()} writes of kfext were refused",
                f"{faults.kills} kills; {faults.leadership.changes} changes of the leader; "
                f"{faults.peak_bytes / (1 << 20):.0f} MiB of a controller at most; "
                f"kfext at work for {faults.seconds_at_work:.0f} s",
                self._starts.summary(),
                report(self.checker),
            ]
        )

    # --- the parts --------------------------------------------------------------------------------

    def _prepare(self) -> None:
        for name, space in self._spaces.items():
            space.create(managed=name != WILD)
        set_up(self._kube, LIMITS)
        self._tenants.move_in([*self._spaces.values()], self.kfext.testbed.folder / "tenants")
        for name in self._script.inventory.nodes:
            self._actions.add_node(name)
        self.kfext.start_standby()
        self._mirror.start()
        self._faults.tick()

    def _act(self, action: Action) -> None:
        self._trail.append(f"{self._faults.seconds_at_work:.1f} {action}")
        self.tally.done[action.name] += 1
        actors = (self._actions, self._disturbances, self._pod_actions, self._tenants, self._faults)
        (method,) = [getattr(actor, action.name) for actor in actors if hasattr(actor, action.name)]
        method(*action.arguments)

    def _wait_and_check(self, seconds: float) -> None:
        """Wait for some seconds; check the cluster meanwhile if a check is due."""
        until = time.monotonic() + seconds
        before = len(self._faults.leadership.unexplained)
        at = self._faults.tick()
        for change in self._faults.leadership.unexplained[before:]:
            lease_log = self.kfext.tail(about="lease")
            say("\n".join([f"VIOLATED: {change}", *self._trail, lease_log, self.kfext.tail()]))
        if time.monotonic() - self._checked_at >= _CHECK_SECONDS:
            self._checked_at = time.monotonic()
            if self.programs.saves > self._saves:
                self._saves, self._saved_at = self.programs.saves, at
            cluster = replace(self._mirror.cluster(at), saved_at=self._saved_at)
            self.tally.record(cluster, self.checker.memory)
            self._starts.record(cluster, now=time.time())
            self._report(self.checker.check(cluster))
            # After the check, so that each suspension is seen before its end.
            self._actions.tend()
            self._pod_actions.tend()
        time.sleep(max(0.0, until - time.monotonic()))

    def _report(self, violations: list[Violation]) -> None:
        for violation in violations:
            say(
                f"VIOLATED after {self.tally.done.total()} actions of seed {self.seed}: {violation}"
            )
            space = next(
                (space for name, space in self._spaces.items() if name in violation.message), None
            )
            if space is not None and len(self.checker.violations) <= _MAX_ACCOUNTS:
                say("\n".join(["last actions:", *self._trail, space.account()]))

    def _settle(self) -> None:
        """End all faults, and wait until every job is whole, waits with a reason, or has ended."""
        say(f"  did {dict(self.tally.done)}; waiting for quiet")
        self._faults.end()
        for name, how in self._script.inventory.troubled.items():
            self._actions.heal_node(name, how)
        for name in self._script.inventory.drained:
            self._actions.uncordon(name)
        self._actions.unlock(self._script.inventory.jobs)
        self._end_refusals()
        deadline = time.monotonic() + _SETTLE_SECONDS
        unsettled_messages = ["nothing was checked"]
        while unsettled_messages and time.monotonic() < deadline:
            self._wait_and_check(_CHECK_SECONDS)
            cluster = self._mirror.cluster(self._faults.seconds_at_work)
            self._delete_refused(cluster)
            unsettled_messages = [*unsettled(cluster), *unbalanced(cluster, self._reserved())]
            unsettled_messages += unused(cluster)
        self.wrong += [f"[unsettled] {rule}" for rule in unsettled_messages]
        if unsettled_messages:
            for space in self._spaces.values():
                say(space.account())

    def _end_refusals(self) -> None:
        """End the refusals of the API server, and delete strays; pods that people pinned stay."""
        inventory = self._script.inventory
        for namespace in inventory.refusing:
            self._pod_actions.admit_here(namespace)
        for namespace in inventory.limits:
            self._pod_actions.unlimit(namespace)
        for namespace, name in inventory.strays:
            self._tenants.drop_stray(namespace, name)

    def _delete_refused(self, cluster: Cluster) -> None:
        """Delete jobs with a refused write, which kfext retries later than a soak can wait."""
        for gang in cluster.gangs.values():
            if gang.view.get("reason") == WRITE_REFUSED:
                self._actions.delete(gang.namespace, gang.kind, gang.name)

    def _clear(self) -> None:
        for space in self._spaces.values():
            # One by one, since the API server stops the deletion of a collection after 60 s.
            jobs = [jobs_path(space.name, kind) for kind in KINDS]
            for path in (*jobs, space.path("pods")):
                for item in self._kube.items(path):
                    self._kube.delete(f"{path}/{item['metadata']['name']}")
        deadline = time.monotonic() + _EMPTY_SECONDS
        pods, reserved = -1, Reserved()
        added = [""]
        while (pods or added or reserved != Reserved(0, 0)) and time.monotonic() < deadline:
            self._wait_and_check(_CHECK_SECONDS)
            cluster = self._mirror.cluster(0.0)
            pods, added = len(cluster.pods), unused(cluster)
            reserved = self._reserved()
        if pods or reserved != Reserved(0, 0):
            self.wrong.append(f"[leaked] {pods} pods and {reserved} after all was deleted")
        self.wrong += [f"[leaked] {node}" for node in added]

    @property
    def _effects(self) -> Counter[str]:
        actors = (self._actions, self._disturbances, self._pod_actions, self._tenants)
        return sum((actor.effects for actor in actors), Counter[str]())

    def _refused(self) -> int:
        """Return the number of writes of kfext that the API server forbade."""
        log = [*self.kfext.controller.proxy.log, *self.kfext.standby.proxy.log]
        return sum(exchange.is_write and exchange.status == 403 for exchange in log)

    def _reserved(self) -> Reserved:
        gauge = self._faults.gauge
        return Reserved(gauge("kfext_ledger_claims"), gauge("kfext_reserved_nodes"))
