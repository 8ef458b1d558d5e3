"""Compares kfext's and kube-scheduler's verdicts on the same pods and nodes.

In a round, every node gets one pod that is pinned to it, or every group of nodes gets one free pod,
and both sides judge. Bound pods stay, and use capacity in the next round; between rounds a few pods
end, which releases their capacity.

The verdicts may differ only in these documented classes:
- host address: for kfext a port on one address of a node is used on all, so kfext is stricter;
- pod affinity, topology spread, unbound volumes: kfext does not model them, and does not place jobs
  that have them; its verdict here is about the rest of the pod;
- set at admission: overhead and node selector of a RuntimeClass are in the pod but not in the
  template; kfext reads them when the pods exist, and plans again before it releases the pods.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from e2e.harness.kube import Kube, Object
from e2e.harness.odd_objects import (
    AT_ADMISSION,
    HOST_ADDRESS,
    ODD,
    Odd,
    OddPod,
    runtime_classes,
)
from e2e.harness.wait import until
from e2e.testbed.api import is_ready
from e2e.testbed.cluster import Testbed
from kfext.core.ledger.claims import pod_claim, pod_key
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import Member, limits_of
from kfext.core.placement.place import place, still_fits
from kfext.core.settings.table import Settings
from kfext.model.constraints import parse_constraints
from kfext.model.node import parse_node
from kfext.model.pod import ReplicaKey, parse_pod
from kfext.model.podspec import cpu_limit, is_guaranteed, pod_requests
from kfext.model.verdict import Verdict

_IN_FLIGHT = 16
_GROUP = 4
"""The number of nodes in a group."""
_RETRY_SECONDS = 15.0
"""How long kube-scheduler may retry: it may learn of the end of a pod later than this test."""
_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
_COUNT = re.compile(r"^\d+ ")
_EXCLUDED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
"""kube-scheduler's cause for the nodes that a pin excludes."""
_ONLY = ReplicaKey("pod", 0)


@dataclass(frozen=True, slots=True)
class Compared:
    """Both verdicts on a pod.

    `fits`: the nodes that kfext would allow for the stored pod; `fits_template`: for its template.
    `bound`: the node that kube-scheduler chose; empty if it refused. `message`: the reason of the
    refusal, from kube-scheduler if it refused, else from kfext.
    """

    pod: OddPod
    fits: frozenset[str]
    fits_template: frozenset[str]
    bound: str
    message: str

    @property
    def agreed(self) -> bool:
        """Whether kfext allows the node that kube-scheduler chose, or both refuse the pod."""
        return self.bound in self.fits if self.bound else not self.fits

    @property
    def template_agreed(self) -> bool:
        """The same for the template, which is all that kfext knows before the pod exists."""
        return self.bound in self.fits_template if self.bound else not self.fits_template

    @property
    def explained(self) -> bool:
        """Whether a documented class allows this disagreement, in this direction."""
        if self.pod.known_difference == AT_ADMISSION:
            return self.agreed
        if self.pod.known_difference == HOST_ADDRESS:
            return bool(self.bound)
        return bool(self.pod.known_difference) and not self.bound

    @property
    def causes(self) -> frozenset[str]:
        """The causes in kube-scheduler's refusal, without its counts of nodes."""
        listed = self.message.partition("nodes are available: ")[2].partition(". ")[0]
        causes = (_COUNT.sub("", part.strip(" .")) for part in listed.split(", "))
        return frozenset(cause for cause in causes if cause and cause != _EXCLUDED)

    def __str__(self) -> str:
        allowed = ", ".join(sorted(self.fits)) or "nowhere"
        chosen = self.bound or "nowhere"
        return (
            f"kfext: {allowed}; kube-scheduler: {chosen}; "
            f"known: {self.pod.known_difference or 'nothing'}; "
            f"{self.message}\n  {self.pod.body['spec']}"
        )


def compare(
    testbed: Testbed, *, seed: int, nodes: int, pinned_rounds: int, free_rounds: int
) -> list[Compared]:
    """Create random nodes and pods, let both sides judge, and return all verdicts."""
    with _Arena(testbed, seed=seed, nodes=nodes) as arena:
        compared = []
        for number in range(pinned_rounds + free_rounds):
            free = number >= pinned_rounds
            compared += arena.round(number, free=free)
            arena.end_some(number)
        return compared


class _Arena:
    """A namespace and nodes for one comparison; deleted at the end of the `with` block."""

    def __init__(self, testbed: Testbed, *, seed: int, nodes: int) -> None:
        self._kube = Kube(testbed)
        self.name = f"fits-{seed}"
        self._odd = Odd(seed, self.name)
        self._names = [f"{self.name}-{number:03}" for number in range(nodes)]
        self._pods = f"/api/v1/namespaces/{self.name}/pods"

    def __enter__(self) -> "_Arena":
        space = {"metadata": {"name": self.name}}
        self._kube.create("/api/v1/namespaces", space)
        account = f"/api/v1/namespaces/{self.name}/serviceaccounts/default"
        until(lambda: self._kube.find(account), what="the service account exists")
        for runtime_class in runtime_classes(self.name):
            self._kube.create(_CLASSES, runtime_class)
        bodies = [self._odd.node(name, self._group(name)) for name in self._names]
        _at_once(lambda body: self._kube.create("/api/v1/nodes", body), bodies)
        until(
            lambda: sum(map(is_ready, self._nodes())) == len(self._names),
            what="all odd nodes are ready",
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._kube.delete(f"/api/v1/namespaces/{self.name}")
        for runtime_class in runtime_classes(self.name):
            self._kube.delete(f"{_CLASSES}/{runtime_class['metadata']['name']}")
        _at_once(lambda name: self._kube.delete(f"/api/v1/nodes/{name}"), self._names)

    def _group(self, name: str) -> str:
        return f"{self.name}-{self._names.index(name) // _GROUP}"

    def _nodes(self) -> list[Object]:
        return self._kube.items(f"/api/v1/nodes?labelSelector={quote(ODD)}%3D{self.name}")

    # --- rounds -----------------------------------------------------------------------------------

    def round(self, number: int, *, free: bool) -> list[Compared]:
        """Judge one pod per node or group; unbound pods are deleted afterwards, bound pods stay."""
        ledger = self._ledger()
        drawn = list(self._drawn(number, free=free))
        stored = _at_once(lambda pod: self._kube.create(self._pods, pod.body), drawn)
        expected = [
            Compared(
                pod,
                fits=_fits(pod, body["spec"], ledger),
                fits_template=_fits(pod, pod.body["spec"], ledger),
                bound="",
                message=_kfext_message(pod, body["spec"], ledger),
            )
            for pod, body in zip(drawn, stored, strict=True)
        ]
        judged = self._verdicts(expected)
        unbound = [pair.pod.body["metadata"]["name"] for pair in judged if not pair.bound]
        _at_once(lambda name: self._kube.delete(f"{self._pods}/{name}", grace=0), unbound)
        return judged

    def _drawn(self, number: int, *, free: bool) -> Iterator[OddPod]:
        if not free:
            for name in self._names:
                yield self._odd.pinned(f"pinned-{number}-{name}", name)
            return
        for start in range(0, len(self._names), _GROUP):
            among = tuple(self._names[start : start + _GROUP])
            yield self._odd.free(f"free-{number}-{start}", self._group(among[0]), among)

    def _ledger(self) -> Ledger:
        """Return the ledger that kfext would have: the nodes and every pod on them."""
        ledger = Ledger(map(parse_node, self._nodes()))
        for body in self._kube.items(self._pods):
            pod = parse_pod(body)
            claim = pod_claim(pod)
            if claim is not None:
                ledger.claim(pod_key(pod.uid), claim)
        return ledger

    def _verdicts(self, expected: Sequence[Compared]) -> list[Compared]:
        """Wait for kube-scheduler's verdict on every pod; it may retry pods that kfext accepts."""
        latest: list[Compared] = []

        def all_judged(*, agreed: bool) -> bool:
            pods = {pod["metadata"]["name"]: pod for pod in self._kube.items(self._pods)}
            known = [_judged(pair, pods[pair.pod.body["metadata"]["name"]]) for pair in expected]
            latest[:] = [pair for pair in known if pair is not None]
            if len(latest) < len(expected):
                return False
            return not agreed or all(
                pair.agreed or pair.bound or pair.pod.known_difference for pair in latest
            )

        until(lambda: all_judged(agreed=False), what="kube-scheduler has judged every pod")
        with _timeout_ignored():
            until(lambda: all_judged(agreed=True), what="both agree", seconds=_RETRY_SECONDS)
        return latest

    def end_some(self, number: int) -> None:
        """Let every third running pod succeed: it still exists, but uses no capacity."""
        running = [
            pod["metadata"]["name"]
            for pod in self._kube.items(self._pods)
            if pod["status"].get("phase") == "Running"
            and not pod["metadata"].get("deletionTimestamp")
        ]
        for name in sorted(running)[number % 3 :: 3]:
            self._kube.patch(f"{self._pods}/{name}/status", {"status": {"phase": "Succeeded"}})


@contextmanager
def _timeout_ignored() -> Iterator[None]:
    """Ignore the timeout of a wait; the caller judges the state."""
    try:
        yield
    except AssertionError:
        return


def _judged(pair: Compared, pod: Object) -> Compared | None:
    """Return a pod with kube-scheduler's verdict, or None before kube-scheduler has judged it."""
    node = pod["spec"].get("nodeName", "")
    if node:
        return replace(pair, bound=node)
    for condition in pod["status"].get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            message = f"{condition.get('reason')}: {condition.get('message')}"
            return replace(pair, bound="", message=message)
    return None


_ANYWHERE = limits_of(Settings(), excluded=())


def _member(spec: Object) -> Member:
    return Member(
        key=_ONLY,
        requests=pod_requests(spec),
        constraints=parse_constraints(spec),
        guaranteed=is_guaranteed(spec),
        cpu_limit=cpu_limit(spec),
    )


def _fits(pod: OddPod, spec: Object, ledger: Ledger) -> frozenset[str]:
    """Return the nodes that kfext would allow for a pod with this spec."""
    member = _member(spec)
    fitting = {
        node
        for node in pod.among
        if still_fits([member], ledger, _ANYWHERE, assignment={_ONLY: node})
    }
    placed = place([member], ledger, _ANYWHERE)
    chosen = set() if isinstance(placed, Verdict) else set(placed.values())
    if not chosen <= fitting or bool(chosen) != bool(fitting):
        raise AssertionError(f"place says {placed}, still_fits says {fitting}: {spec}")
    return frozenset(fitting)


def _kfext_message(pod: OddPod, spec: Object, ledger: Ledger) -> str:
    placed = place([_member(spec)], ledger, _ANYWHERE)
    return placed.message if isinstance(placed, Verdict) else ""


def _at_once(act: Any, items: Iterable[Any]) -> list[Any]:
    with ThreadPoolExecutor(_IN_FLIGHT) as pool:
        return list(pool.map(act, items))
