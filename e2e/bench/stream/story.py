"""What became of one job under one arm, and of all of them."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Self

from e2e.harness.jobs import specs
from e2e.harness.look import ended

Object = dict[str, Any]


@dataclass(slots=True)
class Story:
    """One job; seconds since the run began, None for what never was.

    `trained`: when all pods that it was to have then ran for the first time.
    `outcome`: the condition with which it has ended.
    `sizes`: the numbers of its replicas one after the other, from when it trained.
    `redone`: steps that it did more than once.
    """

    submitted: float
    trained: float | None = None
    ended: float | None = None
    outcome: str = ""
    sizes: list[int] | None = None
    redone: int = 0

    def see(self, body: Object, pods: Iterable[Object], *, now: float) -> None:
        """Note what job and pods look like now."""
        size = sum(spec["replicas"] for spec in specs(body).values())
        running = sum(pod["status"].get("phase") in {"Running", "Succeeded"} for pod in pods)
        if self.trained is None and 0 < size <= running:
            self.trained, self.sizes = now, [size]
        elif self.sizes and self.sizes[-1] != size:
            self.sizes.append(size)
        if outcome := ended(body):
            self.ended, self.outcome = now, outcome
            self.trained = now if self.trained is None else self.trained

    @property
    def succeeded(self) -> bool:
        """Whether it came to a good end."""
        return self.outcome == "Succeeded"

    @property
    def rescales(self) -> int:
        """How often its size changed."""
        return len(self.sizes or [0]) - 1

    def elapsed(self, until: float) -> float:
        """Return the seconds from its submission to its end; to `until` for one without end."""
        return (until if self.ended is None else self.ended) - self.submitted

    def wait(self, until: float) -> float:
        """Return the part of that before it trained."""
        return (until if self.trained is None else self.trained) - self.submitted

    def run(self, until: float) -> float:
        """Return the rest of it."""
        return self.elapsed(until) - self.wait(until)


@dataclass(frozen=True, slots=True)
class Outcome:
    """All jobs under one arm, by name; `until`: when the last ended, or patience did.

    `used`, `reserved` and `capacity` are core seconds while there was a job: of all pods by the
    nodes' meters, of the requests of those that ran, and of the nodes.
    """

    jobs: dict[str, Story]
    until: float
    used: float
    reserved: float
    capacity: float

    def stored(self) -> Object:
        """Return it as JSON."""
        return asdict(self)

    @classmethod
    def of(cls, stored: Object) -> Self:
        """Return what was stored."""
        jobs = {name: Story(**one) for name, one in stored["jobs"].items()}
        return cls(**{**stored, "jobs": jobs})
