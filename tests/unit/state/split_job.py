"""A job whose server idles and whose worker is starved, alone on its node under the companion."""

from collections.abc import Callable
from dataclasses import replace

from kfext import names
from kfext.core.lifecycle.steps import Resize
from kfext.model.cpu_size import TrainerCpu
from kfext.model.cpu_use import CpuUse
from kfext.model.log_line import LogLine
from kfext.model.moment import Moment
from kfext.model.namespace import Namespace
from kfext.model.plan import Plan
from kfext.model.pod import ReplicaKey
from kfext.state.planner import Planner
from tests.builders import job, node, pod

NODE, UID, LIMIT = "a", "uid-1", 400
USES = {"worker": 0.4, "ps": 0.02}


class SplitJob:
    """`answer`: why the API server refuses the sizes of a step, empty if it does not.

    `steps`: those of the last round. `written`: all limits that were written.
    """

    def __init__(self) -> None:
        self.at = 0.0
        self.answer: Callable[[Resize], str] = lambda step: ""
        self.steps: list[Resize] = []
        self.written: list[int] = []
        self.planner = Planner()
        managed = Namespace("team", {names.MANAGED: "true"})
        self.planner.settings.observe_namespace(None, managed)
        self.cluster = self.planner.cluster
        self.cluster.observe_node(None, node(NODE, cpu="1400m"))
        self.made = job("TFJob", uid=UID).worker(1, cpu="20m").ps(1, cpu="20m").resumed()
        places = {ReplicaKey(type_, 0): NODE for type_ in USES}
        self.annotate(names.PLAN, Plan(UID, 1, places).encode())
        self.annotate(names.RESIZE, "cpu")
        for type_ in USES:
            one = pod(self.made.build(), type_, 0, bound=NODE, phase="Running")
            cpu = TrainerCpu(20, LIMIT, given=LIMIT)
            self.cluster.observe_pod(None, replace(one, trainer=cpu))

    def annotate(self, key: str, value: str) -> None:
        self.made.annotated(key, value)
        self.cluster.take_job(self.made.build(), self.made.raw)

    def limits(self) -> dict[str, int | None]:
        pods = self.cluster.pods(UID)
        return {pod.replica.type: pod.trainer.limit for pod in pods if pod.replica and pod.trainer}

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self.round()

    def round(self) -> None:
        """Ten seconds, at the end of which kubelets have set what was written before."""
        self.at += 10
        now = Moment(wall=self.at, monotonic=self.at)
        for one in self.cluster.pods(UID):
            assert one.trainer is not None
            self._size(one.uid, given=one.trainer.limit)
        progress = self.planner.progress
        for read in progress.due(self.at, most=1):
            progress.take(read, [LogLine(self.at - 1, f"step {self.at:.0f}")], now)
        if self.at % 30 == 0:
            uses = {
                pod.uid: USES[pod.replica.type] for pod in self.cluster.pods(UID) if pod.replica
            }
            found = {uid: CpuUse(cores, at=self.at, window=30.0) for uid, cores in uses.items()}
            progress.measured(found)
        self.planner.tick(now)
        begun = self.planner.companion.steps(now)
        self.steps = []
        for tracked, step in begun:
            assert isinstance(step, Resize)
            self.steps.append(step)
            self.annotate(names.STATE, step.state.encode(job_uid=UID))
            final = self.answer(step)
            if not final:
                for one, size in step.sizes:
                    self.written.append(size.limit)
                    self._size(one.uid, limit=size.limit)
            self.planner.finish(tracked, now, refused=bool(final), final=final)

    def _size(self, uid: str, **cpu: int | None) -> None:
        one = next(pod for pod in self.cluster.pods(UID) if pod.uid == uid)
        assert one.trainer is not None
        trainer = replace(one.trainer, **cpu)  # type: ignore[arg-type]
        version = str(int(one.resource_version) + 1)
        self.cluster.observe_pod(one, replace(one, resource_version=version, trainer=trainer))
