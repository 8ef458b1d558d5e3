"""The checker: all rules, and how long each may be broken.

The checker reads only the API server's answers, and shares no code with kfext. The tally counts the
actions and states of a soak, so that a soak of an idle cluster is noticed.
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
"""The number of strikes after which kfext releases a job."""
_ENOUGH_ATTEMPTS = 20
_ENOUGH_JOBS = 400
"""After this many submitted jobs each effect must have been seen; for some actions, after
`_ENOUGH_ATTEMPTS`."""
_MAY_BE_IN_VAIN = (
    *("forge", "limit", "pin_gated", "pin_stranger", "plant", "refuse_here", "resize", "stray"),
    *("opt", "set_workers", "submit_forged", "upset"),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """The time that kfext may take, in seconds in which it was at work.

    `bind`, `create`: the timeouts of the policy in force. `slack`: delays of the operator, of
    kube-scheduler and of a busy machine. `word`: until a reason appears. `steady`: until watches of
    different kinds agree.
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
    """A fault that must not last longer than `seconds`; `check` returns where it exists now."""

    name: str
    seconds: float
    check: Callable[[Cluster], Findings]


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken for too long. `key`: the uid of a job or pod, or a node's name."""

    rule: str
    key: str
    at: float
    lasted: float
    message: str

    def __str__(self) -> str:
        return f"[{self.rule}] at {self.at:.0f} s, for {self.lasted:.1f} s: {self.message}"


@dataclass
class Checker:
    """Checks clusters one after the other; `violations` has each rule and key at most once."""

    limits: Limits
    violations: list[Violation] = field(default_factory=list)
    checks: int = 0
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

    def record_pod(self, raw: dict[str, Any]) -> None:
        """Record a state of a pod, which may be gone before the next check."""
        self.memory.record_pod(raw)

    def check(self, cluster: Cluster) -> list[Violation]:
        """Check a cluster; return the faults that have just lasted too long."""
        self.checks += 1
        self.memory.record_cluster(cluster)
        new = [violation for rule in self._rules for violation in self._check_rule(rule, cluster)]
        self.violations += new
        return new

    def _check_rule(self, rule: Rule, cluster: Cluster) -> list[Violation]:
        faults = rule.check(cluster)
        self.seen[rule.name] += len(faults)
        for ended in [
            pair for pair in self._since if pair[0] == rule.name and pair[1] not in faults
        ]:
            del self._since[ended]
        new = []
        for key, message in faults.items():
            since = self._since.setdefault((rule.name, key), cluster.at)
            lasted = cluster.at - since
            self.worst[rule.name] = max(self.worst.get(rule.name, 0.0), lasted)
            if lasted >= rule.seconds and (rule.name, key) not in self._reported:
                self._reported.add((rule.name, key))
                new.append(Violation(rule.name, key, cluster.at, lasted, message))
        return new


def _rules(limits: Limits, memory: Memory) -> tuple[Rule, ...]:
    def rule_with_memory(check: Callable[[Cluster, Memory], Findings], seconds: float) -> Rule:
        return Rule(check.__name__, seconds, lambda cluster: check(cluster, memory))

    def rule_without_memory(check: Callable[[Cluster], Findings], seconds: float) -> Rule:
        return Rule(check.__name__, seconds, check)

    return (
        rule_without_memory(capacity.overcommitted, 0.0),
        rule_without_memory(capacity.overpromised, limits.gang),
        rule_without_memory(capacity.double_booked, limits.steady),
        rule_with_memory(capacity.idle_room, limits.slack),
        rule_with_memory(gangs.elsewhere, 0.0),
        rule_with_memory(gangs.failed, limits.steady),
        rule_with_memory(gangs.half_held, limits.gang),
        rule_with_memory(gangs.survivors_alone, limits.gang),
        rule_with_memory(gangs.never_created, limits.slack),
        rule_with_memory(gangs.restarted_endlessly, 0.0),
        rule_with_memory(gangs.placed_unasked, limits.steady),
        rule_with_memory(gangs.held_unasked, limits.slack),
        rule_with_memory(scaling.out_of_range, limits.steady),
        rule_with_memory(scaling.resized_endlessly, 0.0),
        rule_with_memory(scaling.replaced, limits.steady),
        rule_with_memory(scaling.servers_resized, limits.steady),
        rule_with_memory(scaling.scaled_unasked, 0.0),
        rule_with_memory(scaling.wish_overruled, 0.0),
        rule_with_memory(scaling.grown_too_far, 0.0),
        rule_with_memory(scaling.work_lost, 0.0),
        rule_with_memory(scaling.sized_in_silence, limits.word),
        rule_with_memory(gangs.unbound, limits.bind + limits.slack),
        rule_with_memory(gangs.two_plans, limits.steady),
        rule_with_memory(gangs.torn_apart, limits.steady),
        rule_with_memory(gangs.gated_in_silence, limits.slack),
        rule_with_memory(gangs.queued_in_silence, limits.word),
        rule_with_memory(gangs.misreported, limits.word),
        rule_with_memory(gangs.suspended_by_nobody, limits.steady),
        rule_with_memory(stops.stopped_unasked, 0.0),
        rule_with_memory(stops.stopped_without_cause, 0.0),
        rule_with_memory(stops.stopped_in_vain, stops.HOLD_SECONDS + limits.slack),
        rule_with_memory(stops.broken_for_a_gang, 0.0),
        rule_with_memory(stops.planned_onto_drained, 0.0),
        rule_with_memory(stops.too_many_placeholders, 0.0),
        rule_with_memory(stops.asked_for_nobody, limits.slack),
    )


@dataclass
class Tally:
    """`done`: the number of actions, by name. `most`: the most jobs, pods and nodes in a state."""

    done: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)

    def record(self, cluster: Cluster, memory: Memory) -> None:
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
        """Return a message if no TrainJob was placed, of many jobs (one in seven is a TrainJob)."""
        if self.most["TrainJobs placed whole"] or self.done["submit"] < _ENOUGH_JOBS:
            return []
        return [f"[vain] {self.done['submit']} jobs came, and no TrainJob was ever placed"]

    def unscaled(self, memory: Memory) -> list[str]:
        """Return a message if kfext scaled no job, of many jobs (one in eight is elastic)."""
        if memory.sizes.done or self.done["submit"] < _ENOUGH_JOBS:
            return []
        return [f"[vain] {self.done['submit']} jobs came, and none was ever scaled"]

    def unstopped(self, memory: Memory, *, autoscaler: bool) -> Iterator[str]:
        """Yield a message if many jobs, many drains or an autoscaler had no effect."""
        done = memory.stops.done
        if self.done["submit"] >= _ENOUGH_JOBS and not done["preempted"]:
            yield f"[vain] {self.done['submit']} jobs came, and none was stopped for another"
        if self.done["drain_node"] >= _ENOUGH_ATTEMPTS and not done["drained"]:
            yield f"[vain] {self.done['drain_node']} nodes were drained, and no job was stopped"
        if self.done["submit"] >= _ENOUGH_JOBS and autoscaler and not self.most["nodes added"]:
            yield "[vain] no node came from the autoscaler"

    def in_vain(self, effects: Mapping[str, int]) -> list[str]:
        """Return a message for each action that never took effect. `effects`: numbers by name."""
        return [
            f"[vain] {name} was tried {self.done[name]} times, and never took effect"
            for name in _MAY_BE_IN_VAIN
            if self.done[name] >= _ENOUGH_ATTEMPTS and not effects.get(name)
        ]

    def __str__(self) -> str:
        done = dict(sorted(self.done.items()))
        return f"{self.done.total()} actions {done}\nmost at once: {dict(self.most)}"


def report(checker: Checker) -> str:
    delays = sorted(checker.memory.delays.values())
    lines = [
        f"{checker.checks} looks at {len(checker.rules)} rules",
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
    fractions = {"p50": 0.5, "p99": 0.99, "worst": 1.0}
    values = {
        name: times[min(len(times) - 1, int(fraction * len(times)))]
        for name, fraction in fractions.items()
    }
    return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in values.items())
