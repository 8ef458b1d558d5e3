"""What an elastic training would print on fake nodes, where nothing trains.

Its lines are those of `e2e/jobs/elastic_ddp.py` and `elastic_ps.py`: steps, checkpoints, answers to
requests. It goes as fast as it has workers, and goes on from its last checkpoint when their number
has changed, if it is one that must.
"""

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic

from e2e.harness.background import in_background
from e2e.harness.fake_kubelet import FakeKubelet
from e2e.harness.kube import Object
from e2e.harness.space import Space
from kfext import names

_LOOK_SECONDS = 0.5
_ANNOUNCED_EVERY = 60.0
PACE = 1.5
"""Steps that one worker does in a second."""


@dataclass
class FakeProgram:
    """A program with as many workers as `advance` is given, which prints what that returns.

    It saves when it is asked to, and at no other time.

    `total`: steps to its end. `saves`: whether it can save, and says so. `silent`: whether it
        leaves requests unanswered. `restarts`: whether it goes on from its last checkpoint when its
        workers have changed.
    """

    total: int = 10**6
    saves: bool = True
    silent: bool = False
    restarts: bool = True
    step: int = 0
    saved: int = 0
    _team: Sequence[str] = ()
    _answered: int = 0
    _progress: float = 0.0
    _announced: float = math.inf

    def advance(self, seconds: float, team: Sequence[str], asked: int) -> list[str]:
        """Let time pass with these workers; `asked` is the request for a checkpoint, 0 for none."""
        lines = self._meet(team)
        if not team:
            return lines
        self._announced += seconds
        if self.saves and self._announced >= _ANNOUNCED_EVERY:
            lines.append("kfext.checkpoint 0")
            self._announced = 0.0
        self._progress += seconds * PACE * len(team)
        whole = int(self._progress)
        self._progress -= whole
        for _ in range(min(whole, self.total - self.step)):
            self.step += 1
            lines.append(f"step {self.step}/{self.total} loss={math.exp(-self.step / 5000):.6f}")
        if self.saves and not self.silent and asked > self._answered:
            self._answered, self.saved = asked, self.step
            lines += [f"saved checkpoint at step {self.step}", f"kfext.checkpoint {asked}"]
        return lines

    def _meet(self, team: Sequence[str]) -> list[str]:
        if team == self._team:
            return []
        first, self._team = not self._team, team
        if first:
            self._answered = 0  # a process that has begun knows of no request
        if not team or not (first or self.restarts):
            return []
        self.step, self._progress, self._announced = self.saved, 0.0, math.inf
        return [f"resumed at step {self.step} with world {len(team)}"]


@dataclass
class FakeTraining:
    """The program of a job whose pods run on fake nodes; `lines` has all that it has printed."""

    space: Space
    job: str
    kubelet: FakeKubelet
    program: FakeProgram
    lines: list[str] = field(default_factory=list)
    _known: dict[str, str] = field(default_factory=dict)

    def run(self, ending: threading.Event) -> None:
        """Train until the end."""
        last = monotonic()
        while not ending.wait(_LOOK_SECONDS):
            pods = [pod for pod in self.space.pods(self.job) if _trains(pod)]
            pods.sort(key=lambda pod: _rank(pod["metadata"]["name"]))
            now = monotonic()
            self._advance(now - last, pods)
            last = now

    def _advance(self, seconds: float, pods: Sequence[Object]) -> None:
        uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}
        for name, uid in uids.items():
            if self._known.get(name, uid) != uid:
                self.kubelet.forget(self.space.name, name)
        self._known |= uids
        asked = max(map(_asked, pods), default=0)
        printed = self.program.advance(seconds, list(uids.values()), asked)
        self.lines += printed
        if uids:
            log = self.kubelet.log_of(self.space.name, next(iter(uids)))
            for line in printed:
                log.write(line)


@contextmanager
def training(
    space: Space, job: str, kubelet: FakeKubelet, program: FakeProgram
) -> Iterator[FakeTraining]:
    """Have a job train for the time of a `with` block."""
    made = FakeTraining(space, job, kubelet, program)
    with in_background(made.run, name=f"training-{job}"):
        yield made


def _trains(pod: Object) -> bool:
    """Whether a program trains in a pod: not in one that serves parameters."""
    serves = pod["metadata"]["labels"].get(names.REPLICA_TYPE) == "ps"
    return not serves and bool(pod["status"].get("phase") == "Running")


def _rank(pod: str) -> tuple[str, int]:
    """Return what pods are ordered by; a master comes before the workers."""
    rest, _, index = pod.rpartition("-")
    return rest.rpartition("-")[2], int(index)


def _asked(pod: Object) -> int:
    """Return the number of the checkpoint that is asked for on a pod, 0 for none."""
    written = pod["metadata"].get("annotations", {}).get(names.CHECKPOINT_REQUEST, "")
    return int(written) if written.isdecimal() else 0
