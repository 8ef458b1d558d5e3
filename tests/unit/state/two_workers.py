"""A job with two running workers as the companion follows it; the tests carry out the writes."""

from dataclasses import replace

from kfext.core.lifecycle.steps import Resize
from kfext.model.cpu_size import TrainerCpu
from kfext.model.cpu_state import CpuState
from kfext.model.cpu_use import CpuUse
from kfext.model.job_state import JobState
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.names import STATE
from kfext.state.planner.planner import Planner
from kfext.state.running.cpu.cpu_signals import job_signal, signals_of
from kfext.state.running.cpu.record import CpuRecord
from kfext.state.running.cpu.record import record_of as cpu_record
from kfext.state.running.cpu.rollout import ResizeRollout
from kfext.state.running.proposal import Proposal, Size
from kfext.state.running.running_job import RunningJob
from kfext.state.running.signals import JobSignal, Signals
from tests.builders import job, node, pod
from tests.unit.state.running.jobs import proposal

NODE, SIZE = "a", 1400
SHRINK, GROW = Size("uid-1-worker-0", 200), Size("uid-1-worker-1", 600)
TWO_STAGES = proposal("uid-1", stages=((SHRINK,), (GROW,)))


class TwoWorkers:
    """Two pods that run; `change`, `write` and `set` act as the API server and the kubelet."""

    def __init__(self, limit: int | None = 400) -> None:
        self.builder = job().worker(2, cpu="20m").resumed()
        self.changes = 0
        self.planner = planner = Planner()
        self.cluster, self.uses = planner.cluster, planner.progress.uses
        self.cluster.observe_node(None, node(NODE, cpu=f"{SIZE}m"))
        self.cluster.observe_job(self.builder.raw)
        for index in (0, 1):
            worker = pod(self.builder.build(), "worker", index, bound=NODE, phase="Running")
            cpu = TrainerCpu(20, limit, given=limit)
            self.cluster.observe_pod(None, replace(worker, trainer=cpu))
        tracked = self.cluster.jobs["uid-1"]
        self.job = RunningJob(tracked)
        self.job.replace_record(CpuRecord(began=0.0, measured_at=0.0))
        self.resizing = ResizeRollout(self.cluster, self.uses, lambda _: self.changes)

    def pod(self, index: int) -> Pod:
        return next(pod for pod in self.pods if pod.replica and pod.replica.index == index)

    @property
    def pods(self) -> tuple[Pod, ...]:
        return self.cluster.pods("uid-1")

    def change(self, index: int, **fields: object) -> None:
        """Show a newer version of a pod; `limit` and `given` are fields of its CPU."""
        before = self.pod(index)
        assert before.trainer is not None
        names = ("limit", "given", "request", "allocated")
        cpu = {key: fields.pop(key) for key in names if key in fields}
        newer = replace(before, resource_version=str(int(before.resource_version) + 1), **fields)  # type: ignore[arg-type]
        self.cluster.observe_pod(before, replace(newer, trainer=replace(before.trainer, **cpu)))  # type: ignore[arg-type]

    def lose(self, index: int) -> None:
        self.cluster.observe_pod(self.pod(index), None)

    def signals(self) -> tuple[JobSignal, Signals]:
        signal = job_signal(self.job, self.pods, None, self.uses, in_flight=False)
        return signal, signals_of(self.cluster, [signal], self.uses, measured=self.pods)

    # --- an operation ---------------------------------------------------------------------------

    def begin(self, chosen: Proposal = TWO_STAGES, **more: object) -> Resize | None:
        return self.resizing.begin(self.job, chosen, resized=False, **more)  # type: ignore[arg-type]

    def write(self, step: Resize | None, *, at: float = 0.0) -> None:
        """Carry out a step as the API server does."""
        assert step is not None
        self.record_state(step.state.cpu)
        for resized, size in step.sizes:
            assert resized.replica is not None
            self.change(resized.replica.index, limit=size.limit)
        self.resizing.finish(self.job, complete=True, final="", now=at)

    def record_state(self, state: CpuState) -> None:
        """Record the CPU state of the job in its annotation."""
        builder = self.builder.annotated(STATE, JobState(cpu=state).encode(job_uid="uid-1"))
        self.cluster.record_job(builder.build(), builder.raw)

    def refuse(self, final: str = "", *, at: float = 0.0) -> None:
        self.resizing.finish(self.job, complete=False, final=final, now=at)

    def set(self, index: int) -> None:
        """Set the limit of a pod as the kubelet does."""
        trainer = self.pod(index).trainer
        assert trainer is not None
        self.change(index, given=trainer.limit)

    def measure(self, at: float, *indices: int) -> None:
        pods = [self.pod(index) for index in indices or (0, 1)]
        self.uses.record({pod.uid: CpuUse(0.1, at=at, window=30.0) for pod in pods})

    def advance(self, now: float = 0.0) -> Resize | None:
        return self.resizing.advance(self.job, now=now)

    def refused(self) -> Verdict | None:
        return cpu_record(self.job).refused
