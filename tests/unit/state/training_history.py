"""Random lives of jobs under the companion, with what must hold after every round.

Users opt in and out and resize pods by hand, pods are replaced, kubelets and the API server refuse,
and controllers die between the note on a job and the write to its pod.
"""

from dataclasses import replace

from hypothesis import note
from hypothesis import strategies as st

from kfext import names
from kfext.core.companion.cpu import LEAST_LIMIT
from kfext.core.lifecycle.steps import Resize
from kfext.model.cpu_size import TrainerCpu
from kfext.model.cpu_state import CpuState
from kfext.model.moment import Moment
from kfext.model.policy import Mode, PolicyChoice, TrainingPolicy
from kfext.model.verdict import Verdict
from kfext.state.tracked_job import TrackedJob
from tests.unit.state.training_node import ROUND, Training, TrainingNode

REQUEST = 20
MOST_JOBS = 5
PAUSED = 330.0
"""Seconds for which a failure may keep anything from being restored."""
SETTLED = 600.0
"""Seconds after which nothing is under way any more once all jobs have opted out."""
BY_HAND = (777, 1013)
SMALL_BUDGET = TrainingPolicy(
    "p", companion={"resize": PolicyChoice(Mode.ACT, parameters={"budget": 0.005})}
)


class TrainingHistory(TrainingNode):
    """A node and what happens there.

    `ours`: the limit of each pod that is not kfext's. `off`: since when a job has opted out.
    `left_alone`: the jobs that somebody else has resized after kfext had, until that is forgotten.
    `touched`: those whose pod is not as the operator made it.
    `failed`: when a write or a kubelet failed last. `dies`: whether the controller does after the
        next note on a job, before it writes to the pod.
    """

    def __init__(self, draw: st.DataObject) -> None:
        self.policy: TrainingPolicy | None = None
        super().__init__(size=draw.draw(st.sampled_from([1400, 150]), "size"))
        self.draw = draw
        self.failed = -PAUSED
        self.dies = False
        self.ours: dict[str, int | None] = {}
        self.off: dict[str, float] = {}
        self.left_alone: dict[str, int] = {}
        self.touched: set[str] = set()
        self._busy: set[str] = set()
        self._made = 0

    # --- acts -----------------------------------------------------------------------------------

    def submits(self) -> None:
        if len(self.trainings) < MOST_JOBS:
            self._submit(
                f"job-{self._made}",
                converges=self.draw.draw(st.sampled_from([2.0, 2.0, 40.0, 400.0]), "converges"),
                pace=self.draw.draw(st.sampled_from([None, None, 20.0]), "pace"),
                resize=self.draw.draw(st.sampled_from(["cpu", "cpu", "observe", "off"]), "resize"),
                limit=self.draw.draw(st.sampled_from([None, None, 1000, 300, 30]), "limit"),
            )

    def crowds(self) -> None:
        """Two jobs that have converged are restricted for one that grows."""
        for name in ("old", "older"):
            if name not in self.trainings:
                self._submit(name, converges=2.0)
        self.run(300)
        if "new" not in self.trainings:
            self._submit("new", converges=400.0)
        self.run(100)

    def _submit(self, name: str, *, limit: int | None = None, **fields: object) -> None:
        self.ours[name] = limit
        self.touched.discard(name)
        self.left_alone.pop(name, None)
        self.off.pop(name, None)
        if fields.get("resize") == "off":
            self.off[name] = self.at
        self._made += 1
        self.submit(name, limit=limit, uid=f"uid-{self._made}", **fields)  # type: ignore[arg-type]

    def goes_on(self) -> None:
        self.run(ROUND * self.draw.draw(st.integers(1, 20), "rounds"))

    def finishes(self) -> None:
        if name := self._one():
            self.finish(name)

    def opts(self) -> None:
        if name := self._one():
            value = self.draw.draw(st.sampled_from(["off", "off", "observe", "cpu"]), "resize")
            self._opt(name, value)

    def _opt(self, name: str, value: str) -> None:
        self.annotate(name, value)
        if value == "off":
            self.off.setdefault(name, self.at)
        else:
            self.off.pop(name, None)

    def is_sized_by_hand(self) -> None:
        if not (name := self._one()):
            return
        limit = self.draw.draw(st.sampled_from(BY_HAND), "limit")
        state = self.tracked(self.trainings[name]).state.cpu
        known = {*state.written.get("worker-0", ()), *(one.limit for one in state.asked.values())}
        if limit in known:
            return
        self.size_by_hand(name, limit)
        self.touched.add(name)
        self.ours[name] = limit
        if state.asked and name not in self.off:
            self.left_alone[name] = limit

    def is_given_another_request(self) -> None:
        if name := self._one():
            self.request_by_hand(name, REQUEST + 5)
            self.touched.add(name)

    def is_replaced(self) -> None:
        name = self._one()
        if name and name not in self.touched:
            one = self.pod(name)
            self.planner.cluster.observe_pod(one, None)
            cpu = TrainerCpu(REQUEST, self.ours[name], given=self.ours[name])
            again = replace(one, uid=f"{one.uid}+", resource_version="1", trainer=cpu)
            self.planner.cluster.observe_pod(None, replace(again, resize_problem=None))

    def loses_its_controller(self) -> None:
        self.restart()

    def loses_it_between_note_and_write(self) -> None:
        self.dies = True

    def is_refused(self) -> None:
        answers = ["", "", "maximum cpu usage is 1", "cannot patch resource", "conflict"]
        answer = self.draw.draw(st.sampled_from(answers), "answer")
        self.answer = lambda step: answer

    def has_a_kubelet_that_refuses(self) -> None:
        reason = self.draw.draw(st.sampled_from(["", "", "Infeasible", "Deferred"]), "reason")
        self.kubelet = Verdict(reason, "not now") if reason else None

    def has_a_small_budget(self) -> None:
        self.policy = SMALL_BUDGET
        self.planner.settings.observe_policy(SMALL_BUDGET)

    def _one(self) -> str:
        present = sorted(self.trainings)
        return self.draw.draw(st.sampled_from(present), "job") if present else ""

    # --- the world ------------------------------------------------------------------------------

    def restart(self) -> None:
        super().restart()
        if self.policy is not None:
            self.planner.settings.observe_policy(self.policy)

    def _write(self, tracked: TrackedJob, step: Resize, now: Moment) -> None:
        """The note on the job is written first, whatever becomes of its pods."""
        name, answer = tracked.job.name, self.answer(step)
        note(f"{self.at:g} {name} {[size.limit for _, size in step.sizes]} {answer}")
        assert name not in self._busy, "one operation on a job at a time"
        self._busy.add(name)
        self.written.append((name, step))
        made = self.trainings[name].made
        made.annotated(names.STATE, step.state.encode(job_uid=tracked.job.uid))
        self.planner.cluster.take_job(made.build(), made.raw)
        if self.dies:
            return
        if answer and step.sizes:
            self.failed = self.at
            final = "" if answer == "conflict" else answer
            self.planner.finish(tracked, now, complete=False, refused=bool(final), final=final)
            return
        for one, size in step.sizes:
            self._sized_by_kfext(name, size.limit)
            self._size(one, size.limit)
        self.planner.finish(tracked, now)

    def _sized_by_kfext(self, name: str, limit: int) -> None:
        asked = self.size if self.ours[name] is None else self.ours[name]
        assert asked is not None
        assert min(asked, max(LEAST_LIMIT, REQUEST + 1)) <= limit <= asked
        assert limit > REQUEST, "the QoS class is kept"
        assert name not in self.left_alone

    def round(self) -> None:
        self._busy.clear()
        super().round()
        if self.dies:
            self.dies = False
            if self._busy:
                self.restart()
        if any(self.pod(name).resize_problem for name in self.trainings):
            self.failed = self.at
        self._check()

    # --- what must hold -------------------------------------------------------------------------

    def _check(self) -> None:
        for name, training in self.trainings.items():
            tracked = self.tracked(training)
            assert not tracked.busy
            calm = max(self.off.get(name, self.at), self.failed + PAUSED)
            if self.at - calm > 2 * ROUND:
                assert self._is_the_users(name), name
            if self.at - calm > SETTLED:
                assert tracked.state.cpu == CpuState(), name
            if tracked.state.cpu == CpuState():
                self.left_alone.pop(name, None)
            if name in self.left_alone:
                assert self.limit(name) == self.left_alone[name]
            if name not in self.touched:
                rests = tracked.state.cpu.rests.values()
                assert not any("another client" in reason for reason in rests), name

    def _is_the_users(self, name: str) -> bool:
        limit, asked = self.limit(name), self.ours[name]
        return limit == asked or (asked is None and limit == self.size)

    def ends(self) -> None:
        """All is well again and all jobs opt out."""
        self.answer, self.kubelet = lambda step: "", None
        for name in self.trainings:
            self._opt(name, "off")
        end = self.at + PAUSED + SETTLED + 3 * ROUND
        while self.at < end and any(map(self._noted, self.trainings.values())):
            self.round()
        assert not any(map(self._noted, self.trainings.values()))
        assert all(map(self._is_the_users, self.trainings))

    def _noted(self, training: Training) -> bool:
        return self.tracked(training).state.cpu != CpuState()


ACTS = (
    TrainingHistory.submits,
    TrainingHistory.submits,
    TrainingHistory.goes_on,
    TrainingHistory.goes_on,
    TrainingHistory.goes_on,
    TrainingHistory.finishes,
    TrainingHistory.opts,
    TrainingHistory.opts,
    TrainingHistory.is_sized_by_hand,
    TrainingHistory.is_given_another_request,
    TrainingHistory.is_replaced,
    TrainingHistory.loses_its_controller,
    TrainingHistory.loses_it_between_note_and_write,
    TrainingHistory.is_refused,
    TrainingHistory.has_a_kubelet_that_refuses,
    TrainingHistory.has_a_small_budget,
)
