"""The placeholders of jobs that have asked an autoscaler for nodes: which exist, which should.

A placeholder has the requests of a missing pod of its job. While the ask of the job is open, each
missing pod has a placeholder until the pod itself is bound. Pods that must be on one node share a
placeholder: with one placeholder each, kube-scheduler might bind some of them to a node that cannot
run them all. A placeholder claims capacity only on a node that was created since the ask began; on
an older node, other jobs may use that capacity.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from kfext.core.elastic import with_workers
from kfext.core.ledger.claim import Claim
from kfext.core.ledger.claims import pod_claim, pod_key
from kfext.core.ledger.ledger import Ledger
from kfext.core.placement.gang import Limits, Member, members_of, on_one_node
from kfext.model.backoff import exponential_backoff
from kfext.model.constraints import Constraints
from kfext.model.pod import Pod
from kfext.model.replicas import by_replica
from kfext.state.mirror.tracked_job import TrackedJob

_CREATED_PAUSE = 15.0
"""The seconds before a preempted placeholder is recreated; an autoscaler adds no node sooner."""
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0
"""The back-off after a failed step, in seconds; it doubles with each failure."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Create a placeholder for members of a job; succeeds if the placeholder already exists."""

    name: str
    job_uid: str
    member: Member
    limits: Limits


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Delete a placeholder that its job does not need or that has ended."""

    pod: Pod

    @property
    def name(self) -> str:
        """The name of the placeholder."""
        return self.pod.name


_Key = tuple[type, str]
"""A kind of step, and the name of its placeholder."""


@dataclass(slots=True)
class OpenAsk:
    """The open ask of a job. Times are in epoch seconds.

    `missing`: the members that are not bound, by the name of their placeholder; members that share
        a placeholder are joined to one member with all their requests.
    `to_create`: the names of the placeholders of members without a node. A pinned pod keeps its
        placeholder until the pod is bound, but gets no new placeholder.
    `member_counts`: the number of members of each placeholder.
    `began`: when the job asked, or its first placeholder was created, whichever is earlier.
    `holding`: the placeholders that hold capacity for a member.
    `most_holding`: the highest number of placeholders that held capacity at once.
    `most_new_nodes`: the highest number of new nodes that they were on.
    `progressed_at`: when either number last grew; 0.0 before the first new node.
    `refused`: the API server's refusal of a placeholder, or empty.
    """

    missing: Mapping[str, Member] = field(default_factory=dict)
    to_create: frozenset[str] = frozenset()
    member_counts: Mapping[str, int] = field(default_factory=dict)
    began: float = math.inf
    holding: tuple[Pod, ...] = ()
    most_holding: int = 0
    most_new_nodes: int = 0
    progressed_at: float = 0.0
    refused: str = ""


class Placeholders:
    """The open asks and their placeholders.

    `open_asks`: the open asks by the uid of the job. `by_job`: the placeholders by the uid of the
    job and by name. `version` changes with the asks, the placeholders and the nodes.
    `limits_of` returns the limits on the nodes of a job's placeholders.
    """

    def __init__(
        self, ledger: Ledger, jobs: Mapping[str, TrackedJob], changed: Callable[[str], None]
    ) -> None:
        self.open_asks: dict[str, OpenAsk] = {}
        self.by_job: dict[str, dict[str, Pod]] = {}
        self.version = 0
        self.limits_of: Callable[[TrackedJob], Limits]
        self._ledger = ledger
        self._jobs = jobs
        self._changed = changed
        self._known: dict[str, Pod] = {}
        self._blocked_nodes: dict[str, frozenset[str]] = {}
        self._retry_at: dict[_Key, float] = {}
        self._failures: dict[_Key, int] = {}
        self._created: list[tuple[float, str]] | None = None

    @property
    def idle(self) -> bool:
        """Whether no job has asked for nodes, and no placeholder is left."""
        return not (self.open_asks or self.by_job)

    # --- changes from the watches ---------------------------------------------------------------

    def observe(self, uid: str, pod: Pod | None) -> None:
        """Record the present version of a placeholder, or None when it is gone."""
        before = self._known.pop(uid, None)
        if before is not None:
            of_job = self.by_job[before.placeholder_of]
            if of_job.get(before.name) is before:
                del of_job[before.name]
            if not of_job:
                del self.by_job[before.placeholder_of]
        if pod is None:
            self._ledger.drop(pod_key(uid))
        else:
            self._known[uid] = pod
            self.by_job.setdefault(pod.placeholder_of, {})[pod.name] = pod
        if seen := pod or before:
            self._refresh(seen.placeholder_of)

    def all(self) -> tuple[Pod, ...]:
        """Return all placeholders."""
        return tuple(self._known.values())

    def count(self, *, bound: bool) -> int:
        """Return the number of placeholders that are bound, or that are not."""
        return sum(bool(pod.node_name) is bound for pod in self._known.values())

    def concerns_pod(self, uid: str, pod: Pod | None) -> bool:
        """Return whether a pod is or was a placeholder."""
        return uid in self._known or (pod is not None and bool(pod.placeholder_of))

    def observe_node(self, name: str) -> None:
        """Record that a node was added, has changed or is gone."""
        self._created = None
        self.version += 1
        for uid in {pod.placeholder_of for pod in self._known.values() if pod.node_name == name}:
            self._refresh(uid)

    def follow(
        self, tracked: TrackedJob, pods: Collection[Pod], *, managed: bool, preempts: bool
    ) -> None:
        """Record the present ask of a job; a job of an unmanaged namespace has no ask.

        `preempts`: whether kube-scheduler preempts placeholders for the pods of the job; else the
        placeholders on a node are deleted once a pod is pinned to the node.
        """
        uid, job = tracked.job.uid, tracked.job
        pinned_to = () if preempts else (pod.pinned_to for pod in pods if not pod.node_name)
        if blocked := frozenset(filter(None, pinned_to)):
            self._blocked_nodes[uid] = blocked
        else:
            self._blocked_nodes.pop(uid, None)
        cannot_ask = job.deleting or job.finished or job.released or (job.suspend and not job.held)
        cannot_ask = cannot_ask or not managed
        node_ask = tracked.state.ask
        if cannot_ask or node_ask is None or not node_ask.is_open:
            if self.open_asks.pop(uid, None) is not None:
                self._update_claims(uid)
            return
        ask = self.open_asks.setdefault(uid, OpenAsk())
        ask.began = min(ask.began, node_ask.since)
        workers = node_ask.workers if job.suspend else 0
        missing, to_create = _missing(tracked, pods, workers=workers, preempts=preempts)
        ask.missing, ask.member_counts = missing, dict.fromkeys(missing, 1)
        if on_one_node((m.constraints for m in missing.values()), self.limits_of(tracked)):
            ask.missing, ask.member_counts, to_create = _share_placeholders(uid, missing, to_create)
        ask.to_create = to_create
        self._refresh(uid)

    def concerns(self, tracked: TrackedJob, *, preempts: bool) -> bool:
        """Return whether `follow` has anything to do for a job; mostly it has nothing to do."""
        uid = tracked.job.uid
        asks = tracked.state.ask is not None or uid in self.open_asks
        return asks or uid in self._blocked_nodes or not (preempts or self.idle)

    def forget(self, uid: str) -> None:
        """Forget a job that is gone."""
        self._blocked_nodes.pop(uid, None)
        if self.open_asks.pop(uid, None) is not None:
            self._update_claims(uid)

    def _refresh(self, uid: str) -> None:
        """Update the progress and the claims of an ask after a change."""
        if (ask := self.open_asks.get(uid)) is not None:
            placeholders = self.by_job.get(uid, {}).values()
            ask.began = min((ask.began, *(pod.created for pod in placeholders)))
            ask.holding = tuple(pod for pod in placeholders if self._holds(pod, ask))
        self._update_claims(uid)
        self._changed(uid)

    def _holds(self, pod: Pod, ask: OpenAsk) -> bool:
        """Return whether a placeholder holds capacity for a member: its node can run the member."""
        member, row = ask.missing.get(pod.name), self._ledger.row(pod.node_name)
        if member is None or row is None or pod.deleting or pod.finished:
            return False
        return bool(self._ledger.eligible(member.constraints)[row])

    def _update_claims(self, uid: str) -> None:
        self.version += 1
        for pod in self.by_job.get(uid, {}).values():
            claim = self._claim_of(pod)
            if claim is None:
                self._ledger.drop(pod_key(pod.uid))
            else:
                self._ledger.claim(pod_key(pod.uid), claim)

    def _claim_of(self, pod: Pod) -> Claim | None:
        ask = self.open_asks.get(pod.placeholder_of)
        if ask is None or not self._is_new(pod.node_name, ask):
            return None
        claim = pod_claim(pod)
        return claim and replace(claim, priority=None)  # no job may preempt it

    def _is_new(self, name: str, ask: OpenAsk) -> bool:
        """Return whether a node was created since an ask began; an unknown node is new."""
        node = self._ledger.node(name)
        return bool(name) and (node is None or node.created >= math.floor(ask.began))

    def record_progress(self, now: float) -> None:
        """Record the progress of the asks until now, in epoch seconds."""
        for ask in self.open_asks.values():
            holding, new_nodes = len(ask.holding), self.new_nodes(ask)
            if new_nodes and (holding > ask.most_holding or new_nodes > ask.most_new_nodes):
                ask.progressed_at = now
            ask.most_holding = max(holding, ask.most_holding)
            ask.most_new_nodes = max(new_nodes, ask.most_new_nodes)

    # --- questions --------------------------------------------------------------------------------

    def unbound(self, uid: str) -> list[str]:
        """Return the names of the placeholders of a job that wait for a node."""
        return [name for name, pod in self.by_job.get(uid, {}).items() if not pod.node_name]

    def new_nodes(self, ask: OpenAsk) -> int:
        """Return the number of new nodes with placeholders of an ask."""
        nodes = {pod.node_name for pod in ask.holding}
        return sum(self._is_new(name, ask) for name in nodes)

    def is_complete(self, uid: str) -> bool:
        """Return whether placeholders hold capacity for every member without a node."""
        ask = self.open_asks[uid]
        return ask.to_create <= {pod.name for pod in ask.holding}

    def new_candidates(self, uid: str, *, skip: Collection[str]) -> Iterator[str]:
        """Yield the nodes created since a job asked, without `skip`, that could run a member."""
        ask = self.open_asks[uid]
        shapes = {(id(m.requests), id(m.constraints)): m for m in ask.missing.values()}
        for name in self._created_since(ask.began):
            if name in skip:
                continue
            node, row = self._ledger.node(name), self._ledger.row(name)
            if node is None or row is None:
                continue
            for member in shapes.values():
                fits = all(node.allocatable.get(r, 0) >= n for r, n in member.requests.items())
                if fits and self._ledger.eligible(member.constraints)[row]:
                    yield name
                    break

    def _created_since(self, began: float) -> Iterator[str]:
        """Yield the names of the nodes that were created since `began`, the newest node first."""
        if self._created is None:
            nodes = filter(None, self._ledger.nodes)
            self._created = sorted(((node.created, node.name) for node in nodes), reverse=True)
        for created, name in self._created:
            if created < math.floor(began):
                return
            yield name

    def claiming(self, uid: str) -> Iterator[Pod]:
        """Yield the placeholders of a job that claim capacity."""
        for pod in self.by_job.get(uid, {}).values():
            if self._ledger.claim_of(pod_key(pod.uid)) is not None:
                yield pod

    # --- steps ------------------------------------------------------------------------------------

    def due(self, now: float) -> Iterator[Ask | Withdraw]:
        """Yield the steps due by `now`, in monotonic seconds; call `finish` after each step."""
        needed = {_key(step): step for step in self._needed_steps()}
        for key in [key for key, retry_at in self._retry_at.items() if retry_at <= now]:
            del self._retry_at[key]
        for key, step in needed.items():
            if key not in self._retry_at:
                self._retry_at[key] = math.inf
                yield step

    def finish(self, step: Ask | Withdraw, now: float, *, accepted: bool, final: str = "") -> None:
        """Record at `now`, in monotonic seconds, that a step was `accepted` or has failed.

        `final`: the answer of the API server if it would refuse the step again, or empty.
        """
        key, pause = _key(step), _CREATED_PAUSE
        if accepted:
            self._failures.pop(key, None)
        else:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            pause = exponential_backoff(failures, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        self._retry_at[key] = now + pause
        if final and isinstance(step, Ask) and (ask := self.open_asks.get(step.job_uid)):
            ask.refused = final
            self._changed(step.job_uid)

    def next_retry_at(self) -> float:
        """Return when a step may next be retried, in monotonic seconds; infinity means never."""
        if self.idle:
            self._retry_at.clear()
            self._failures.clear()
        return min(self._retry_at.values(), default=math.inf)

    def _needed_steps(self) -> Iterator[Ask | Withdraw]:
        blocked = {node for nodes in self._blocked_nodes.values() for node in nodes}
        for uid, placeholders in self.by_job.items():
            missing = self.open_asks[uid].missing if uid in self.open_asks else {}
            for name, pod in placeholders.items():
                wanted = name in missing and pod.node_name not in blocked
                lost = bool(pod.node_name) and wanted and pod not in self.open_asks[uid].holding
                if not pod.deleting and (pod.finished or lost or not wanted):
                    yield Withdraw(pod)
        for uid, ask in self.open_asks.items():
            known, limits = self.by_job.get(uid, {}), None
            for name in ask.to_create - known.keys():
                limits = limits or self.limits_of(self._jobs[uid])
                yield Ask(name, uid, ask.missing[name], limits)


def _missing(
    tracked: TrackedJob, pods: Collection[Pod], *, workers: int, preempts: bool
) -> tuple[Mapping[str, Member], frozenset[str]]:
    """Return the members that need a placeholder, by its name, and `to_create` (see OpenAsk).

    `workers`: the number of workers to ask for; 0 means all workers.
    """
    job = with_workers(tracked.job, workers) if workers else tracked.job
    present, missing, to_create = by_replica(pods), dict[str, Member](), set[str]()
    # The pods of the last start use their capacity until they have ended.
    ending = {pod.replica for pod in pods if not pod.finished} if job.suspend else set()
    for member in members_of(job):
        pod, name = present.get(member.key), _name(job.uid, member)
        if job.suspend or (pod is not None and pod.gated and not tracked.forming):
            missing[name] = member
            to_create |= set() if member.key in ending else {name}
        elif pod is None:
            missing |= {name: member} if tracked.forming else {}
        elif not (pod.node_name or pod.finished or (pod.pinned_to and not preempts)):
            missing[name] = member
    return missing, frozenset(to_create)


def _share_placeholders(
    job_uid: str, missing: Mapping[str, Member], to_create: Collection[str]
) -> tuple[Mapping[str, Member], Mapping[str, int], frozenset[str]]:
    """Return the fields of an ask in which members with equal constraints share a placeholder."""
    alike: dict[Constraints, dict[str, Member]] = {}
    for name, member in missing.items():
        alike.setdefault(member.constraints, {})[name] = member
    shared, counts, created = dict[str, Member](), dict[str, int](), set[str]()
    for members in alike.values():
        requests = sum((Counter(member.requests) for member in members.values()), Counter[str]())
        first = replace(next(iter(members.values())), requests=requests)
        name = _name(job_uid, first)
        shared[name], counts[name] = first, len(members)
        created |= {name} if members.keys() <= {*to_create} else set()
    return shared, counts, frozenset(created)


def _name(job_uid: str, member: Member) -> str:
    """Return the name of a placeholder, unique for each job, member and shape."""
    shape = (job_uid, sorted(member.requests.items()), member.constraints)
    digest = hashlib.sha256(repr(shape).encode()).hexdigest()[:16]
    return f"{member.key.type}-{member.key.index}-{digest}"


def _key(step: Ask | Withdraw) -> _Key:
    return type(step), step.name
