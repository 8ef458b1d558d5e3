"""Who shares out the CPU of the node while the jobs run."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from e2e.bench.companion.site import Pod, Pods
from e2e.testbed.paths import REPOSITORY
from kfext import names

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
        self.resizes = 0

    def start(self, pods: Pods, *, now: float) -> None:
        """Begin to act on the pods of a namespace in which there is nothing yet."""

    def look(self, found: Sequence[Pod], *, now: float) -> None:
        """Act if it is time to; called about once a second with the pods that run."""

    def stop(self) -> None:
        """End what `start` began."""


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


PLAIN, AGAIN = "plain", "plain again"
"""The first is what the others are compared with; the second is the same, to see the spread."""
OURS, DEAD = "kfext", "kfext, its controller killed"
Makers = Mapping[str, Callable[[], Arm]]
"""How each arm is made, by its name."""


def plain_and(name: str, make: Callable[[], Arm]) -> Makers:
    """Return plain Kubernetes twice, and one more arm."""
    return {PLAIN: Arm, AGAIN: Arm, name: make}


def resizing() -> Arm:
    """Return kfext for jobs that let it resize them."""
    return Kfext({names.RESIZE: "cpu"})


def killed(jobs: int) -> Arm:
    """Return the same; its controller is killed at a resize once so many jobs have come."""
    return Killed({names.RESIZE: "cpu"}, jobs=jobs)
