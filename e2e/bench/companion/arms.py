"""The arms: ways to divide the CPU of the node between the running jobs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from e2e.bench.companion.site import Pod, Pods
from e2e.testbed.paths import REPOSITORY
from kfext import names

DECIDING_PACKAGES = ("model", "core", "state", "kube", "controller")
"""The packages of kfext that affect its changes of running jobs."""


class Arm:
    """A way to divide the CPU; this class is plain Kubernetes, where all pods are equal.

    Each run has a new instance. `managed`: whether kfext manages the namespace of the jobs.
    `annotations`: added to each job. `sources`: files and folders on which the runs depend.
    """

    managed = False
    annotations: Mapping[str, str] = {}
    sources: Sequence[Path] = ()

    def __init__(self) -> None:
        self.resizes = 0

    def start(self, pods: Pods, *, now: float) -> None:
        """Begin to act on the pods of a namespace that is still empty."""

    def poll(self, pods: Sequence[Pod], *, now: float) -> None:
        """Act if an action is due; called about once a second with the running pods."""

    def stop(self) -> None:
        """Undo `start`."""


class Kfext(Arm):
    """kfext as installed; the `annotations` of a job decide its policies."""

    managed = True
    sources = tuple(REPOSITORY / "kfext" / package for package in DECIDING_PACKAGES)

    def __init__(self, annotations: Mapping[str, str]) -> None:
        super().__init__()
        self.annotations = annotations
        self._last_cpu: dict[str, tuple[str, str]] = {}

    def poll(self, pods: Sequence[Pod], *, now: float) -> None:
        """Count the changes of the CPU requests and limits of pods."""
        for pod in pods:
            self.resizes += self._last_cpu.get(pod.name, pod.cpu) != pod.cpu
            self._last_cpu[pod.name] = pod.cpu


class ControllerKilled(Kfext):
    """kfext; its controller is killed at its first resize after `jobs` jobs have arrived.

    The controller is not restarted during the run, so the prioritised job keeps its boost until its
    end, and no other job is boosted. All jobs have to have arrived, since without a controller a
    new job would wait.
    """

    def __init__(self, annotations: Mapping[str, str], *, jobs: int) -> None:
        super().__init__(annotations)
        self._jobs = jobs
        self._resizes_before: int | None = None
        self._killed = False

    def start(self, pods: Pods, *, now: float) -> None:
        self._kfext = pods.kfext

    def poll(self, pods: Sequence[Pod], *, now: float) -> None:
        super().poll(pods, now=now)
        if len(self._last_cpu) == self._jobs and self._resizes_before is None:
            self._resizes_before = self.resizes
        if (
            not self._killed
            and self._resizes_before is not None
            and self.resizes > self._resizes_before
        ):
            self._killed = True
            self._kfext.kill_controller()

    def stop(self) -> None:
        if self._killed:
            self._kfext.restart_killed_controller()


PLAIN, PLAIN_AGAIN = "plain", "plain again"
"""The reference of all other arms, and its repetition, which shows the spread."""
KFEXT, KFEXT_KILLED = "kfext", "kfext, its controller killed"
Makers = Mapping[str, Callable[[], Arm]]
"""The constructor of each arm, by its name."""


def plain_and(name: str, make: Callable[[], Arm]) -> Makers:
    """Return plain Kubernetes, its repetition, and the arm that `make` constructs."""
    return {PLAIN: Arm, PLAIN_AGAIN: Arm, name: make}


def resizing() -> Arm:
    return Kfext({names.RESIZE: "cpu"})


def killed(jobs: int) -> Arm:
    """Return the arm of `resizing` with its controller killed at a resize after `jobs` arrivals."""
    return ControllerKilled({names.RESIZE: "cpu"}, jobs=jobs)
