"""Jobs that train on one node under the companion; API server and kubelet obey at once.

The kubelet sets limits in the next round, unless it is told to refuse. Logs are read every 10 s,
the use of CPU is measured every 30 s.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from kfext import names
from kfext.core.companion.policy import Shown
from kfext.core.lifecycle.steps import Resize
from kfext.model.cpu_size import TrainerCpu
from kfext.model.cpu_use import CpuUse
from kfext.model.log_line import LogLine
from kfext.model.moment import Moment
from kfext.model.namespace import Namespace
from kfext.model.plan import Plan
from kfext.model.pod import Pod, ReplicaKey
from kfext.model.policy import TrainingPolicy
from kfext.model.verdict import Verdict
from kfext.names import PLACED
from kfext.state.planner import Planner
from kfext.state.tracked_job import TrackedJob
from tests.builders import JobBuilder, job, node, pod
from tests.unit.core.companion.simulator import fair

NODE, SIZE = "a", 1400
ROUND = 10.0
_READS = 40
"""How often in a round logs are read, of which two of one node at most each time."""


@dataclass
class Training:
    """A job of one worker. `converges`: core-seconds in which its loss halves.

    `pace`: its steps a second, whatever CPU it gets; None: they follow its CPU.
    `takes`: its work in core-seconds, None if it does not show how far it is.
    `saved`: whether it has saved a checkpoint that its log does not show yet.
    """

    made: JobBuilder
    converges: float
    pace: float | None = None
    takes: float | None = None
    done: float = 0.0
    use: int = 0
    saved: bool = False

    @property
    def uid(self) -> str:
        return self.made.build().uid

    @property
    def line(self) -> str:
        loss = math.exp2(-self.done / self.converges)
        if self.takes is None:
            return f"step {int(100 * self.done)} loss {loss:.5f}"
        # No program prints a step beyond its last.
        done = min(self.done, self.takes)
        return f"step {int(100 * done)}/{int(100 * self.takes)} loss {loss:.5f}"

    def print(self, at: float) -> list[LogLine]:
        """Return the last lines of its log."""
        lines = [LogLine(at - ago, self.line) for ago in (6, 3, 0)]
        if self.saved:
            lines.append(LogLine(at, f"saved checkpoint at step {int(100 * self.done)}"))
            self.saved = False
        return lines

    def work(self, seconds: float) -> None:
        self.done += seconds * (self.use / 1000 if self.pace is None else self.pace / 100)


class TrainingNode:
    """The node, and a planner that is driven as the controller drives it.

    `shown`: what is shown of the CPU of jobs by name, `sizes`: of their number of workers.
    """

    def __init__(self, policy: TrainingPolicy | None = None, *, size: int = SIZE) -> None:
        self.at = 0.0
        self.size = size
        self.trainings: dict[str, Training] = {}
        self.written: list[tuple[str, Resize]] = []
        self.shown: dict[str, Shown | None] = {}
        self.sizes: dict[str, Shown | None] = {}
        self.answer: Callable[[Resize], str] = lambda step: ""
        self.kubelet: Verdict | None = None
        self.planner = self._controller()
        if policy is not None:
            self.planner.settings.observe_policy(policy)

    def _controller(self) -> Planner:
        planner = Planner()
        managed = Namespace("team", {names.MANAGED: "true"})
        planner.settings.observe_namespace(None, managed)
        planner.cluster.observe_node(None, node(NODE, cpu=f"{self.size}m"))
        return planner

    def restart(self) -> None:
        """Have another controller lead, which knows the objects alone."""
        before, self.planner = self.planner, self._controller()
        for training in self.trainings.values():
            self.planner.cluster.observe_job(training.made.raw)
            self._place(training, before.cluster.pods(training.uid))

    def manage(self, value: str) -> None:
        self.planner.settings.observe_namespace(
            Namespace("team"), Namespace("team", {names.MANAGED: value})
        )

    def submit(
        self,
        name: str,
        *,
        converges: float = 300.0,
        pace: float | None = None,
        takes: float | None = None,
        resize: str = "cpu",
        elastic: bool = False,
        limit: int | None = None,
        uid: str = "",
        **fields: object,
    ) -> Training:
        made = job(name=name, uid=uid or f"uid-{name}").worker(1, cpu="20m").resumed()
        made.annotated(names.RESIZE, resize)
        if elastic:
            made.elastic(minReplicas=1, maxReplicas=2, maxRestarts=100)
            made.annotated(names.ELASTIC, "1-2")
        plan = Plan(made.build().uid, 1, {ReplicaKey("worker", 0): NODE})
        made.annotated(names.PLAN, plan.encode())
        training = self.trainings[name] = Training(made, converges, pace, takes)
        self.planner.cluster.observe_job(made.raw)
        built = made.build()
        cpu = TrainerCpu(request=20, limit=limit, given=limit)
        one = replace(pod(built, "worker", 0, bound=NODE), phase="Running", trainer=cpu, **fields)  # type: ignore[arg-type]
        self._place(training, (one,))
        return training

    def _place(self, training: Training, pods: tuple[Pod, ...]) -> None:
        for one in pods:
            self.planner.cluster.observe_pod(None, one)
        self.tracked(training).phase = PLACED

    def tracked(self, training: Training) -> TrackedJob:
        return self.planner.cluster.jobs[training.uid]

    def pod(self, name: str) -> Pod:
        (one,) = self.planner.cluster.pods(self.trainings[name].uid)
        return one

    def limit(self, name: str) -> int | None:
        trainer = self.pod(name).trainer
        assert trainer is not None
        return trainer.limit

    def size_by_hand(self, name: str, limit: int) -> None:
        """Somebody else changes the limit of a pod."""
        self._size(self.pod(name), limit)

    def request_by_hand(self, name: str, request: int) -> None:
        """Somebody else changes the request of a pod."""
        one = self.pod(name)
        assert one.trainer is not None
        self._observe(one, trainer=replace(one.trainer, request=request))

    def annotate(self, name: str, value: str, key: str = names.RESIZE) -> None:
        made = self.trainings[name].made.annotated(key, value)
        self.planner.cluster.take_job(made.build(), made.raw)

    def replace_pod(self, name: str) -> None:
        """Have the operator make the pod anew, as the user wrote it."""
        one = self.pod(name)
        self.planner.cluster.observe_pod(one, None)
        cpu = TrainerCpu(request=20, limit=None)
        fresh = replace(one, uid=f"{one.uid}-again", resource_version="1", trainer=cpu)
        self.planner.cluster.observe_pod(None, fresh)

    def finish(self, name: str) -> None:
        self.planner.cluster.observe_pod(self.pod(name), None)
        self.planner.cluster.forget_job(self.trainings.pop(name).uid)

    def run(self, seconds: float) -> "TrainingNode":
        for _ in range(round(seconds / ROUND)):
            self.round()
        return self

    def round(self) -> None:
        self.at += ROUND
        self._work()
        self._kubelet()
        progress = self.planner.progress
        for part in range(_READS):
            then = self.at - ROUND + ROUND * part / _READS
            for read in progress.due(then, most=100):
                lines = self.trainings[read.tracked.job.name].print(then)
                progress.take(read, lines, Moment(wall=then, monotonic=then))
        self._measure()
        self._act()

    def _act(self) -> None:
        now = Moment(wall=self.at, monotonic=self.at)
        self.planner.tick(now)
        for tracked, step in self.planner.companion.steps(now):
            assert isinstance(step, Resize)
            self._write(tracked, step, now)
        for tracked, type_, shown in self.planner.companion.news():
            of = self.shown if type_ == names.RESIZED else self.sizes
            of[tracked.job.name] = shown

    def _measure(self) -> None:
        if self.at % 30 == 0:
            read = {one.uid for one in self.planner.progress.running()}
            self.planner.progress.measured(
                {
                    self.pod(name).uid: CpuUse(one.use / 1000, at=self.at, window=30.0)
                    for name, one in self.trainings.items()
                    if self.pod(name).uid in read
                }
            )

    def _work(self) -> None:
        live = list(self.trainings.items())
        most = [min(self.size, self.limit(name) or self.size) for name, _ in live]
        for (_, training), use in zip(live, fair(most, self.size), strict=True):
            training.use = use
            training.work(ROUND)

    def _kubelet(self) -> None:
        for name in self.trainings:
            one = self.pod(name)
            if one.trainer is not None and one.trainer.given != one.trainer.limit:
                if self.kubelet is None or one.trainer.limit == self.size:
                    done = replace(one.trainer, given=one.trainer.limit)
                    self._observe(one, trainer=done, resize_problem=None)
                else:
                    self._observe(one, resize_problem=self.kubelet)

    def _write(self, tracked: TrackedJob, step: Resize, now: Moment) -> None:
        final = self.answer(step)
        if not final:
            self.written.append((tracked.job.name, step))
            made = self.trainings[tracked.job.name].made
            made.annotated(names.STATE, step.state.encode(job_uid=tracked.job.uid))
            self.planner.cluster.take_job(made.build(), made.raw)
            for one, size in step.sizes:
                self._size(one, size.limit)
        self.planner.finish(tracked, now, refused=bool(final), final=final)

    def _size(self, one: Pod, limit: int) -> None:
        assert one.trainer is not None
        self._observe(one, trainer=replace(one.trainer, limit=limit))

    def _observe(self, one: Pod, **fields: object) -> None:
        version = str(int(one.resource_version) + 1)
        newer = replace(one, resource_version=version, **fields)  # type: ignore[arg-type]
        self.planner.cluster.observe_pod(one, newer)
