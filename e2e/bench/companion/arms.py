"""The arms: ways to divide the CPU of the node between the running jobs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from e2e.bench.companion.site import Pod, Pods
from e2e.testbed.paths import REPOSITORY
from kfext import names

DECIDES = ("model", "core", "state", "kube", "controller")
"""The packages of kfext that affect its changes of running jobs."""


class Arm:
    """A way to divide the CPU; this class is plain Kubernetes, where all pods are equal.

    Each run has an arm of its own. `managed`: whether kfext manages the namespace of the jobs;
    `annotations`: of the jobs. `sources`: files and folders on which its runs depend.
    """

    managed = False
    annotations: Mapping[str, str] = {}
    sources: Sequence[Path] = ()

    def __init__(self) -> None:
        self.resizes = 0

    def start(self, pods: Pods, *, now: float) -> None:
        """Begin to act on the pods of a namespace that is still empty."""

    def look(self, pods: Sequence[Pod], *, now: float) -> None:
        """Act if an action is due; called about once a second with the running pods."""

    def stop(self) -> None:
        """Undo `start`."""


class Kfext(Arm):
    """kfext as installed; the `annotations` of a job decide its policies."""

    managed = True
    sources = tuple(REPOSITORY / "kfext" / package for package in DECIDES)

    def __init__(self, annotations: Mapping[str, str]) -> None:
        super().__init__()
        self.annotations = annotations
        self._cpu: dict[str, tuple[str, str]] = {}

    def look(self, pods: Sequence[Pod], *, now: float) -> None:
        """Count the resizes; a new pod has the CPU request of its user."""
        for pod in pods:
            self.resizes += self._cpu.get(pod.name, pod.cpu) != pod.cpu
            self._cpu[pod.name] = pod.cpu


class Killed(Kfext):
    """kfext; its controller is killed at its first resize after a number of jobs has arrived.

    It is not restarted in the run, so the prioritised job keeps its boost until its end, and no
    other job is boosted. A job that arrives just before would wait until a controller returns.
    """

    def __init__(self, annotations: Mapping[str, str], *, jobs: int) -> None:
        super().__init__(annotations)
        self._jobs = jobs
        self._before: int | None = None
        self._dead = False

    def start(self, pods: Pods, *, now: float) -> None:
        self._kfext = pods.kfext

    def look(self, pods: Sequence[Pod], *, now: float) -> None:
        super().look(pods, now=now)
        if len(self._cpu) == self._jobs and self._before is None:
            self._before = self.resizes
        if not self._dead and self._before is not None and self.resizes > self._before:
            self._dead = True
            self._kfext.kill_controller()

    def stop(self) -> None:
        if self._dead:
            self._kfext.restart_killed_controller()


PLAIN, AGAIN = "plain", "plain again"
"""The reference of all other arms, and its repetition, which shows the spread."""
OURS, DEAD = "kfext", "kfext, its controller killed"
Makers = Mapping[str, Callable[[], Arm]]
"""The constructor of each arm, by its name."""


def plain_and(name: str, make: Callable[[], Arm]) -> Makers:
    """Return plain Kubernetes twice, and another arm."""
    return {PLAIN: Arm, AGAIN: Arm, name: make}


def resizing() -> Arm:
    """Return kfext for jobs that allow resizes."""
    return Kfext({names.RESIZE: "cpu"})


def killed(jobs: int) -> Arm:
    """Return the same arm, with its controller killed at a resize after `jobs` arrivals."""
    return Killed({names.RESIZE: "cpu"}, jobs=jobs)
