"""The checker: all rules, each with the time that it may be broken.

It reads only the answers of the API server, and shares no code with kfext. The tally counts the
actions and states of a soak, so a soak of an idle cluster is noticed.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from e2e.soak import capacity, gangs, scaling, stops
from e2e.soak.capacity import Findings
from e2e.soak.facts import POOL, WRITE_REFUSED, Cluster
from e2e.soak.memory import Memory

STRIKES = 3
"""Lost placements in a row after which kfext releases the job."""
_IN_VAIN = 20
_MANY = 400
"""Submitted jobs after which each effect must have been seen; `_IN_VAIN` counts attempts."""
_MAY_BE_IN_VAIN = (
    *("forge", "limit", "pin_gated", "pin_stranger", "plant", "refuse_here", "resize", "stray"),
    *("opt", "set_workers", "submit_forged", "upset"),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """The time that kfext may take, in seconds in which it was at work.

    `bind` and `create` are the timeouts of the policy in force. `slack` is for delays of the
    operator, of kube-scheduler and of a busy machine, `word` for a reason to appear, `steady` for
    watches of different kinds to agree.
    """

    bind: float
    create: float
    slack: float = 45.0
    word: float = 45.0
    steady: float = 10.0

    @property
    def gang(self) -> float:
        """The longest time that a gang may occupy nodes without being whole."""
        return STRIKES * self.bind + self.create + self.slack


@dataclass(frozen=True, slots=True)
class Rule:
    """A fault that must not last longer than `seconds`; `look` returns where it exists now."""

    name: str
    seconds: float
    look: Callable[[Cluster], Findings]


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken for too long; `key` is the uid of a job or pod, or names a node."""

    rule: str
    key: str
    at: float
    lasted: float
    message: str

    def __str__(self) -> str:
        return f"[{self.rule}] at {self.at:.0f} s, for {self.lasted:.1f} s: {self.message}"


@dataclass
class Checker:
    """Checks clusters one after the other; `violations` grows, by each key once per rule."""

    limits: Limits
    violations: list[Violation] = field(default_factory=list)
    looks: int = 0
    worst: dict[str, float] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    """The number of times that a rule was found broken, however briefly."""

    def __post_init__(self) -> None:
        self.memory = Memory(create_timeout=self.limits.create)
        self._rules = _rules(self.limits, self.memory)
        self._since: dict[tuple[str, str], float] = {}
        self._reported: set[tuple[str, str]] = set()

    @property
    def rules(self) -> tuple[Rule, ...]:
        return self._rules

    def pod(self, raw: dict[str, Any]) -> None:
        """Record a state of a pod that may be gone before the next look."""
        self.memory.pod(raw)

    def look(self, cluster: Cluster) -> list[Violation]:
        """Check a cluster; return the faults that have just lasted too long."""
        self.looks += 1
        self.memory.cluster(cluster)
        fresh = [violation for rule in self._rules for violation in self._judge(rule, cluster)]
        self.violations += fresh
        return fresh

    def _judge(self, rule: Rule, cluster: Cluster) -> list[Violation]:
        now = rule.look(cluster)
        self.seen[rule.name] += len(now)
        for known in [pair for pair in self._since if pair[0] == rule.name and pair[1] not in now]:
            del self._since[known]
        fresh = []
        for key, message in now.items():
            since = self._since.setdefault((rule.name, key), cluster.at)
            lasted = cluster.at - since
            self.worst[rule.name] = max(self.worst.get(rule.name, 0.0), lasted)
            if lasted >= rule.seconds and (rule.name, key) not in self._reported:
                self._reported.add((rule.name, key))
                fresh.append(Violation(rule.name, key, cluster.at, lasted, message))
        return fresh


def _rules(limits: Limits, memory: Memory) -> tuple[Rule, ...]:
    def of_gangs(look: Callable[[Cluster, Memory], Findings], seconds: float) -> Rule:
        return Rule(look.__name__, seconds, lambda cluster: look(cluster, memory))

    def of_capacity(look: Callable[[Cluster], Findings], seconds: float) -> Rule:
        return Rule(look.__name__, seconds, look)

    return (
        of_capacity(capacity.overcommitted, 0.0),
        of_capacity(capacity.overpromised, limits.gang),
        of_capacity(capacity.double_booked, limits.steady),
        of_gangs(capacity.idle_room, limits.slack),
        of_gangs(gangs.elsewhere, 0.0),
        of_gangs(gangs.failed, limits.steady),
        of_gangs(gangs.half_held, limits.gang),
        of_gangs(gangs.survivors_alone, limits.gang),
        of_gangs(gangs.never_created, limits.slack),
        of_gangs(gangs.restarted_endlessly, 0.0),
        of_gangs(gangs.placed_unasked, limits.steady),
        of_gangs(gangs.held_unasked, limits.slack),
        of_gangs(scaling.out_of_range, limits.steady),
        of_gangs(scaling.resized_endlessly, 0.0),
        of_gangs(scaling.replaced, limits.steady),
        of_gangs(scaling.servers_resized, limits.steady),
        of_gangs(scaling.scaled_unasked, 0.0),
        of_gangs(scaling.wish_overruled, 0.0),
        of_gangs(scaling.grown_too_far, 0.0),
        of_gangs(scaling.work_lost, 0.0),
        of_gangs(scaling.sized_in_silence, limits.word),
        of_gangs(gangs.unbound, limits.bind + limits.slack),
        of_gangs(gangs.two_plans, limits.steady),
        of_gangs(gangs.torn_apart, limits.steady),
        of_gangs(gangs.gated_in_silence, limits.slack),
        of_gangs(gangs.queued_in_silence, limits.word),
        of_gangs(gangs.misreported, limits.word),
        of_gangs(gangs.suspended_by_nobody, limits.steady),
        of_gangs(stops.stopped_unasked, 0.0),
        of_gangs(stops.stopped_without_cause, 0.0),
        of_gangs(stops.stopped_in_vain, stops.HOLD_SECONDS + limits.slack),
        of_gangs(stops.broken_for_a_gang, 0.0),
        of_gangs(stops.planned_onto_drained, 0.0),
        of_gangs(stops.too_many_placeholders, 0.0),
        of_gangs(stops.asked_for_nobody, limits.slack),
    )


@dataclass
class Tally:
    """`done` counts actions; `most` has the largest numbers of jobs, pods and nodes, by state."""

    done: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)

    def see(self, cluster: Cluster, memory: Memory) -> None:
        """Record the present numbers."""
        gangs = cluster.gangs.values()
        for state, number in {
            "jobs": len(cluster.gangs),
            "queued": sum(gang.held and gang.suspended for gang in gangs),
            "released": sum(gang.released for gang in gangs),
            "pods bound": sum(bool(pod.node) and not pod.over for pod in cluster.pods),
            "nodes shut": sum(not node.open for node in cluster.nodes.values()),
            "nodes not ready": sum(not node.ready for node in cluster.nodes.values()),
            "pods gated": sum(pod.gated for pod in cluster.pods),
            "with refused writes": sum(gang.view.get("reason") == WRITE_REFUSED for gang in gangs),
            "TrainJobs placed whole": sum(
                gang.kind == "TrainJob" and gang.uid in memory.whole and gang.handled
                for gang in gangs
            ),
            "starts of a job": max(map(len, memory.starts.values()), default=0),
            "nodes drained": sum(node.drained is not None for node in cluster.nodes.values()),
            "nodes added": sum(POOL in node.labels for node in cluster.nodes.values()),
            "placeholders": sum(bool(pod.placeholder_of) for pod in cluster.pods),
        }.items():
            self.most[state] = max(self.most[state], number)

    def without_train_jobs(self) -> list[str]:
        """Return a message if many jobs came, one in seven a TrainJob, and none was placed."""
        if self.most["TrainJobs placed whole"] or self.done["submit"] < _MANY:
            return []
        return [f"[vain] {self.done['submit']} jobs came, and no TrainJob was ever placed"]

    def unscaled(self, memory: Memory) -> list[str]:
        """Return a message if many jobs came, one in eight elastic, and kfext scaled none."""
        if memory.sizes.done or self.done["submit"] < _MANY:
            return []
        return [f"[vain] {self.done['submit']} jobs came, and none was ever scaled"]

    def unstopped(self, memory: Memory, *, autoscaler: bool) -> Iterator[str]:
        """Yield a message if many jobs, many drains or an autoscaler had no effect."""
        done = memory.stops.done
        if self.done["submit"] >= _MANY and not done["preempted"]:
            yield f"[vain] {self.done['submit']} jobs came, and none was stopped for another"
        if self.done["drain_node"] >= _IN_VAIN and not done["drained"]:
            yield f"[vain] {self.done['drain_node']} nodes were drained, and no job was stopped"
        if self.done["submit"] >= _MANY and autoscaler and not self.most["nodes added"]:
            yield "[vain] no node came from the autoscaler"

    def in_vain(self, effects: Mapping[str, int]) -> list[str]:
        """Return the actions that never took effect, by their counts of effects."""
        return [
            f"[vain] {name} was tried {self.done[name]} times, and never took effect"
            for name in _MAY_BE_IN_VAIN
            if self.done[name] >= _IN_VAIN and not effects.get(name)
        ]

    def __str__(self) -> str:
        done = dict(sorted(self.done.items()))
        return f"{self.done.total()} actions {done}\nmost at once: {dict(self.most)}"


def report(checker: Checker) -> str:
    """Return a report of how near each rule came to being broken."""
    delays = sorted(checker.memory.delays.values())
    lines = [
        f"{checker.looks} looks at {len(checker.rules)} rules",
        f"time to a reason of {len(delays)} jobs: " + _percentiles(delays),
        f"jobs that ran and were scaled: {dict(checker.memory.sizes.done)}, "
        f"stopped: {dict(checker.memory.stops.done)}",
    ]
    for rule in checker.rules:
        worst = checker.worst.get(rule.name, 0.0)
        lines.append(
            f"  {rule.name}: seen {checker.seen[rule.name]} times, "
            f"at worst for {worst:.1f} s of {rule.seconds:.0f} s"
        )
    return "\n".join(lines)


def _percentiles(times: list[float]) -> str:
    if not times:
        return "none"
    places = {"p50": 0.5, "p99": 0.99, "worst": 1.0}
    values = {
        name: times[min(len(times) - 1, int(share * len(times)))] for name, share in places.items()
    }
    return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in values.items())
