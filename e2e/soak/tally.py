"""What a soak did and saw, so that a soak of an idle cluster shows."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from e2e.soak.facts import WRITE_REFUSED, Cluster
from e2e.soak.invariants import Checker
from e2e.soak.memory import Memory

_IN_VAIN = 20
_MANY = 200
"""So often an action may be tried without effect, each time because there is nothing to do."""
_MAY_BE_IN_VAIN = (
    *("forge", "limit", "pin_gated", "pin_stranger", "plant", "refuse_here", "resize", "stray"),
    *("opt", "set_workers", "submit_forged", "upset"),
)


@dataclass
class Tally:
    """`done` counts actions; `most` is how much of something there was at once."""

    done: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)

    def see(self, cluster: Cluster, memory: Memory) -> None:
        """Note how much is going on."""
        gangs = cluster.gangs.values()
        for what, much in {
            "jobs": len(cluster.gangs),
            "queued": sum(gang.held and gang.suspended for gang in gangs),
            "released": sum(gang.released for gang in gangs),
            "pods bound": sum(bool(pod.node) and not pod.over for pod in cluster.pods),
            "nodes shut": sum(not node.open for node in cluster.nodes.values()),
            "nodes not ready": sum(not node.ready for node in cluster.nodes.values()),
            "pods gated": sum(pod.gated for pod in cluster.pods),
            "kept from writing": sum(gang.view.get("reason") == WRITE_REFUSED for gang in gangs),
            "starts of a job": max(map(len, memory.starts.values()), default=0),
        }.items():
            self.most[what] = max(self.most[what], much)

    def unscaled(self, memory: Memory) -> list[str]:
        """Return that kfext never scaled a job, if many came: one in eight may be scaled."""
        if memory.sizes.done or self.done["submit"] < _MANY:
            return []
        return [f"[vain] {self.done['submit']} jobs came, and the size of none was ever changed"]

    def in_vain(self, took: Mapping[str, int]) -> list[str]:
        """Return which actions never took effect, by their counts of effects."""
        return [
            f"[vain] {name} was tried {self.done[name]} times, and never took effect"
            for name in _MAY_BE_IN_VAIN
            if self.done[name] >= _IN_VAIN and not took.get(name)
        ]

    def __str__(self) -> str:
        done = dict(sorted(self.done.items()))
        return f"{self.done.total()} actions {done}\nmost at once: {dict(self.most)}"


def report(checker: Checker) -> str:
    """Return how near the rules of a checker came to being broken."""
    told = sorted(checker.memory.told.values())
    lines = [
        f"{checker.looks} looks at {len(checker.rules)} rules",
        f"time to a reason of {len(told)} jobs: " + _percentiles(told),
        f"jobs that ran and were scaled: {dict(checker.memory.sizes.done)}",
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
    at = {
        name: times[min(len(times) - 1, int(share * len(times)))] for name, share in places.items()
    }
    return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in at.items())
