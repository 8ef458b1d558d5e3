"""Random histories of jobs while kfext changes their CPU, with invariants after every scan.

Users opt in and out and resize pods by hand, pods are replaced, kubelets and the API server refuse,
and controllers die between the patch of a job and the write to its pod.
"""

from typing import Any

from hypothesis import note
from hypothesis import strategies as st

from kfext.core.lifecycle.steps import Resize
from kfext.errors import ApiError, Conflict, Forbidden
from kfext.model.cpu_size import CpuSize
from kfext.model.cpu_state import CpuState
from kfext.model.quantity import CPU
from kfext.model.verdict import Verdict
from kfext.sim.objects import LivePod
from kfext.state.running.cpu.contest import MIN_REQUEST
from tests.unit.resizing.bed import NODE_CPU, SCAN_SECONDS, CpuBed

MAX_JOBS = 5
RESTORED_AFTER = 330.0
"""The CPU is restored at most this many seconds after the last failure."""
SETTLED_AFTER = 600.0
"""No change is in progress this many seconds after all jobs have opted out."""
BY_HAND = (33, 41)
"""Requests in millicores that a user sets by hand, and kfext never writes."""
ERRORS: dict[str, ApiError | None] = {
    "": None,
    "maximum cpu usage is 1": Forbidden(status=403, reason="Forbidden", message="too much"),
    "cannot patch resource": Forbidden(status=403, reason="Forbidden", message="cannot patch"),
    "conflict": Conflict(status=409, reason="Conflict", message="it has changed"),
}


class CpuHistory(CpuBed):
    """A node with its jobs; all jobs are given by name.

    `without`: the millicores that the pod of each job requests without kfext.
    `off`: when each job opted out. `failed`: when a write or a kubelet failed last.
    `left_alone`: the request that another client wrote after kfext; kfext must not change it.
    `touched`: the jobs with a pod that another client has resized.
    """

    def __init__(self, draw: st.DataObject) -> None:
        super().__init__(size=draw.draw(st.sampled_from([1400, 150]), "size"))
        self.draw = draw
        self.failed = -RESTORED_AFTER
        self.most_used = 0
        self.without: dict[str, int] = {}
        self.off: dict[str, float] = {}
        self.left_alone: dict[str, int] = {}
        self.touched: set[str] = set()
        self._submitted = 0
        self._checked = 0
        self._answer = ""
        self.faults.refusal = self._refusal

    # --- events -----------------------------------------------------------------------------------

    def submits(self) -> None:
        if len(self.present) < MAX_JOBS:
            self._submit(
                f"job-{self._submitted}",
                limit=self.draw.draw(st.sampled_from([0, 0, 1000, 300, 30]), "limit"),
                cpu=self.draw.draw(st.sampled_from([20, 20, 25]), "cpu"),
                work=self.draw.draw(st.sampled_from([None, 300.0, 2000.0]), "work"),
                loss_half_life=self.draw.draw(
                    st.sampled_from([2.0, 2.0, 40.0, 400.0]), "loss_half_life"
                ),
                pace=self.draw.draw(st.sampled_from([None, None, 20.0]), "pace"),
                resize=self.draw.draw(st.sampled_from(["cpu", "cpu", "observe", "off"]), "resize"),
            )

    def crowds(self) -> None:
        """Let the node have a long and a short job, so that kfext prioritises the short job."""
        for name, work in (("long", 9000.0), ("short", 900.0)):
            if name not in self.present and len(self.present) < MAX_JOBS:
                self._submit(name, work=work)
        self.run_scans(15)

    def _submit(self, name: str, *, cpu: int = 20, **fields: Any) -> None:
        self.without[name] = cpu
        self.touched.discard(name)
        self.left_alone.pop(name, None)
        self.off.pop(name, None)
        if fields.get("resize") == "off":
            self.off[name] = self.clock.now
        self._submitted += 1
        self.add(name, cpu=cpu, **fields)
        while not self.running(name):
            self.after(1)

    def running(self, name: str) -> bool:
        return any(pod.runs for pod in self.job(name).pods.values())

    def goes_on(self) -> None:
        self.run_scans(self.draw.draw(st.integers(1, 20), "scans"))

    def finishes(self) -> None:
        if name := self._any_job():
            self.delete(name)

    def opts(self) -> None:
        if name := self._any_job():
            value = self.draw.draw(st.sampled_from(["off", "off", "observe", "cpu"]), "resize")
            self._opt(name, value)

    def _opt(self, name: str, value: str) -> None:
        self.set_policy(name, value)
        if value == "off":
            self.off.setdefault(name, self.clock.now)
        else:
            self.off.pop(name, None)

    def is_sized_by_hand(self) -> None:
        if not (name := self._any_job()):
            return
        request = self.draw.draw(st.sampled_from(BY_HAND), "request")
        state = self.tracked(name).state.cpu
        sizes = (*state.written.get("worker-0", ()), *state.requested.values())
        if request in {size.request for size in sizes} or request >= (self.limit(name) or NODE_CPU):
            return
        self._check_written()
        self.size_by_hand(name, request=request)
        self.touched.add(name)
        self.without[name] = request
        if state.requested and name not in self.off:
            self.left_alone[name] = request

    def is_replaced(self) -> None:
        name = self._any_job()
        if name and name not in self.touched:
            self.replace_pod(name)

    def loses_its_controller(self) -> None:
        self.restart()

    def loses_it_between_patch_and_write(self) -> None:
        self.faults.dies = True

    def is_refused(self) -> None:
        self._answer = self.draw.draw(st.sampled_from(["", *ERRORS]), "answer")

    def _refusal(self, _uid: str, change: Any) -> ApiError | None:
        error = ERRORS[self._answer] if isinstance(change, dict) else None
        if error is not None:
            self.failed = self.clock.now
        return error

    def has_a_kubelet_that_refuses(self) -> None:
        reason = self.draw.draw(st.sampled_from(["", "", "Infeasible", "Deferred"]), "reason")
        self._set_kubelet(reason)

    def _set_kubelet(self, reason: str) -> None:
        def problem(live: LivePod) -> Verdict | None:
            request = live.pod.trainer.request if live.pod.trainer else 0
            changed = request != self.without[live.job.spec.name]
            return Verdict(reason, "not now") if reason and changed else None

        self.faults.resize = problem

    def _any_job(self) -> str:
        present = [name for name in sorted(self.present) if self.running(name)]
        return self.draw.draw(st.sampled_from(present), "job") if present else ""

    # --- invariants -------------------------------------------------------------------------------

    def run_scans(self, number: int) -> None:
        for _ in range(number):
            self.after(SCAN_SECONDS)
            self._check()

    def _check(self) -> None:
        self._check_written()
        self.most_used = max(self.most_used, self.kubelets.used["a"][CPU])
        assert self.most_used <= self.size, "no boost exceeds the free CPU"
        for name in filter(self.running, self.present):
            if self.pod(name).pod.resize_problem:
                self.failed = self.clock.now
            tracked, now = self.tracked(name), self.clock.now
            assert not tracked.busy
            since = max(self.off.get(name, now), self.failed + RESTORED_AFTER)
            if now - since > 2 * SCAN_SECONDS:
                assert self._is_the_users(name), name
            if now - since > SETTLED_AFTER:
                assert tracked.state.cpu == CpuState(), name
            if tracked.state.cpu == CpuState():
                self.left_alone.pop(name, None)
            if name in self.left_alone:
                assert self.request(name) == self.left_alone[name]
            if name not in self.touched:
                disabled = tracked.state.cpu.disabled.values()
                assert not any("another client" in reason for reason in disabled), name

    def _check_written(self) -> None:
        new, self._checked = self.driver.written[self._checked :], len(self.driver.written)
        for write in new:
            if isinstance(write.step, Resize):
                note(f"{write.at:g} {write.job} {[size.request for _, size in write.step.sizes]}")
                for _, size in write.step.sizes:
                    self._check_size(write.job, size)

    def _check_size(self, name: str, size: CpuSize) -> None:
        assert size.limit is None, "limits are never touched"
        assert size.request is not None
        assert min(self.without[name], MIN_REQUEST) <= size.request
        assert name not in self.left_alone
        if name in self.present:
            assert size.request < (self.limit(name) or NODE_CPU), "the QoS class is kept"

    def _is_the_users(self, name: str) -> bool:
        return self.request(name) == self.without[name]

    def ends(self) -> None:
        """End all faults, let all jobs opt out, and check that the users' requests return."""
        self._answer = ""
        self._set_kubelet("")
        for name in self.present:
            self._opt(name, "off")
        end = self.clock.now + RESTORED_AFTER + SETTLED_AFTER + 3 * SCAN_SECONDS
        while self.clock.now < end and any(map(self._has_record, self.present)):
            self.run_scans(1)
        assert not any(map(self._has_record, self.present))
        assert all(map(self._is_the_users, self.present))

    def _has_record(self, name: str) -> bool:
        return self.tracked(name).state.cpu != CpuState()


EVENTS = (
    CpuHistory.submits,
    CpuHistory.submits,
    CpuHistory.goes_on,
    CpuHistory.goes_on,
    CpuHistory.goes_on,
    CpuHistory.finishes,
    CpuHistory.opts,
    CpuHistory.opts,
    CpuHistory.is_sized_by_hand,
    CpuHistory.is_replaced,
    CpuHistory.loses_its_controller,
    CpuHistory.loses_it_between_patch_and_write,
    CpuHistory.is_refused,
    CpuHistory.has_a_kubelet_that_refuses,
)
