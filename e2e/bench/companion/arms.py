"""Who shares out the CPU of the node while the jobs run."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from e2e.bench.companion import flowcon
from e2e.bench.companion.site import Pod, Pods
from e2e.testbed.paths import REPOSITORY
from kfext import names
from kfext.core.progress.lines import read_line

_METRIC = "loss"
DECIDES = ("model", "core", "state", "kube", "controller")
"""The packages of kfext that have a part in what it does to running jobs."""


class Arm:
    """One way to share out the CPU; as it stands, plain Kubernetes: all pods are equal.

    A new one is made for each run. `managed`: whether kfext handles the namespace of the jobs, and
    `annotations` are what they bear. `sources`: files and folders on which its runs depend.
    """

    managed = False
    annotations: Mapping[str, str] = {}
    sources: Sequence[Path] = ()

    def __init__(self) -> None:
        self.resizes = self.refused = 0

    def start(self, pods: Pods, *, now: float) -> None:
        """Begin to act on the pods of a namespace in which there is nothing yet."""

    def look(self, found: Sequence[Pod], *, now: float) -> None:
        """Act if it is time to; called about once a second with the pods that run."""

    def stop(self) -> None:
        """End what `start` began."""


class FlowCon(Arm):
    """FlowCon as published, by in-place resizes instead of `docker update`."""

    sources = (Path(flowcon.__file__),)

    def __init__(self, *, interval: float) -> None:
        super().__init__()
        self._interval = interval
        self._algorithm = flowcon.Algorithm(flowcon.ALPHA)
        self._use: dict[str, Use] = {}
        self._caps: dict[str, int] = {}

    def start(self, pods: Pods, *, now: float) -> None:
        self._pods = pods
        self._timer = flowcon.Timer(self._interval, now=now)

    def look(self, found: Sequence[Pod], *, now: float) -> None:
        for pod in found:
            if (seconds := self._pods.cpu_seconds(pod)) is not None:
                self._use.setdefault(pod.name, Use(self._interval)).note(now, seconds)
        names = frozenset(pod.name for pod in found)
        if not names or not self._timer.due(names, now=now):
            return
        shares = self._algorithm.run({pod.name: self._growth(pod, now) for pod in found})
        self._timer.ran(names, now=now, all_completing=self._algorithm.all_completing)
        self._apply(found, shares)

    def _growth(self, pod: Pod, now: float) -> float:
        cores = self._use[pod.name].mean() if pod.name in self._use else None
        share = None if cores is None else cores / (self._pods.node.millicores / 1000)
        change = flowcon.progress(losses(self._pods, pod), now=now, interval=self._interval)
        return flowcon.growth(change, share)

    def _apply(self, found: Sequence[Pod], shares: Mapping[str, float]) -> None:
        whole = self._pods.node.millicores
        for pod in found:
            if pod.name not in shares:
                continue
            cap = round(min(1.0, shares[pod.name]) * whole)
            if cap == self._caps.get(pod.name, whole):
                continue
            if self._pods.cap(pod, cap):
                self._caps[pod.name] = cap
                self.resizes += 1
            else:
                self.refused += 1


class Kfext(Arm):
    """kfext as it is installed; what it does to a job is a matter of its `annotations`."""

    managed = True
    sources = tuple(REPOSITORY / "kfext" / package for package in DECIDES)

    def __init__(self, annotations: Mapping[str, str]) -> None:
        super().__init__()
        self.annotations = annotations
        self._cpu: dict[str, tuple[str, str]] = {}

    def look(self, found: Sequence[Pod], *, now: float) -> None:
        """Count what has been resized; a pod comes with the CPU that its user wrote."""
        for pod in found:
            self.resizes += self._cpu.get(pod.name, pod.cpu) != pod.cpu
            self._cpu[pod.name] = pod.cpu


class Killed(Kfext):
    """kfext; its controller is killed at its first resize after a number of jobs has come.

    It is not started again in the run, so the favourite keeps its weight until it ends, and no
    other job gets any. A job that came just before would be held until a controller returns.
    """

    def __init__(self, annotations: Mapping[str, str], *, jobs: int) -> None:
        super().__init__(annotations)
        self._jobs = jobs
        self._before: int | None = None
        self._dead = False

    def start(self, pods: Pods, *, now: float) -> None:
        self._kfext = pods.kfext

    def look(self, found: Sequence[Pod], *, now: float) -> None:
        super().look(found, now=now)
        if len(self._cpu) == self._jobs and self._before is None:
            self._before = self.resizes
        if not self._dead and self._before is not None and self.resizes > self._before:
            self._dead = True
            self._kfext.kill_controller()

    def stop(self) -> None:
        if self._dead:
            self._kfext.restart_killed_controller()


class Use:
    """The CPU that a pod uses in an `interval` (seconds), from how much it has used in all."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._samples: deque[tuple[float, float]] = deque()

    def note(self, at: float, seconds: float) -> None:
        """Register what it has used until now."""
        self._samples.append((at, seconds))
        while at - self._samples[0][0] > self._interval:
            self._samples.popleft()

    def mean(self) -> float | None:
        """Return the cores that it used in the last interval, None after one sample."""
        if len(self._samples) < 2:
            return None
        (began, before), (until, after) = self._samples[0], self._samples[-1]
        return (after - before) / (until - began)


def losses(pods: Pods, pod: Pod) -> list[tuple[float, float]]:
    """Return the losses that a pod has printed so far, each with its time."""
    found = []
    for line in pods.log(pod.name):
        read = read_line(line.text)
        value = dict(read.measures).get(_METRIC) if read else None
        if value is not None:
            found.append((line.at, value))
    return found


PLAIN, AGAIN = "plain", "plain again"
"""The first is what the others are compared with; the second is the same, to see the spread."""
PUBLISHED, OURS = "FlowCon as published", "kfext"
DEAD = "kfext, its controller killed"
ONCE = (PUBLISHED,)
"""Run in the first repeat only: three repeats of it are measured in version 0.2."""
Makers = Mapping[str, Callable[[], Arm]]
"""How each arm is made, by its name."""


def arms(interval: float) -> Makers:
    """Return plain Kubernetes twice, kfext and FlowCon."""
    return {**plain_and(OURS, resizing), PUBLISHED: partial(FlowCon, interval=interval)}


def plain_and(name: str, make: Callable[[], Arm]) -> Makers:
    """Return plain Kubernetes twice, and one more arm."""
    return {PLAIN: Arm, AGAIN: Arm, name: make}


def resizing() -> Arm:
    """Return kfext for jobs that let it resize them."""
    return Kfext({names.RESIZE: "cpu"})


def killed(jobs: int) -> Arm:
    """Return the same; its controller is killed at a resize once so many jobs have come."""
    return Killed({names.RESIZE: "cpu"}, jobs=jobs)
