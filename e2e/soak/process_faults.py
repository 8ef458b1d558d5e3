"""Faults of kfext itself: its processes die, stop, or lose the API server.

kfext must not lose the Lease without such a cause, nor use too much memory.
"""

import math
import time
from dataclasses import dataclass, field
from pathlib import Path

import urllib3

from e2e.harness.faults import Exchange, Refuse
from e2e.harness.install import read
from e2e.harness.kfext_process import Kfext
from e2e.harness.processes import ControllerProcess
from e2e.harness.wait import until
from e2e.soak.facts import amount

_AFTERMATH_SECONDS = 30.0
"""How long after its end a pause still explains a loss of the Lease: a successor leads after 15 s,
and both processes may have to wait for a busy machine."""
_MIB = 1 << 20
_BURST_SECONDS = 3.0


@dataclass
class Leadership:
    """The holder of the Lease, as a process id. Times are in seconds of a monotonic clock.

    `unexplained`: changes of the holder that no fault of the earlier holder explains.
    """

    changes: int = 0
    unexplained: list[str] = field(default_factory=list)
    _holder: int | None = None
    _lost: float | None = None
    _excused_until: dict[int, float] = field(default_factory=dict)

    def record_fault(self, pid: int | None) -> None:
        """Record that a process is killed, or prevented from working until it may `resume`."""
        if pid is not None:
            self._excused_until[pid] = math.inf

    def resume(self, pid: int, *, at: float) -> None:
        self._excused_until[pid] = at + _AFTERMATH_SECONDS

    def record_holder(self, holder: int | None, *, at: float) -> None:
        """Record the current holder; None means that no process of kfext holds the Lease."""
        if holder is None:
            # The time of the loss counts: the next holder may come much later.
            self._lost = at if self._lost is None else self._lost
            return
        lost, self._lost = at if self._lost is None else self._lost, None
        if holder == self._holder:
            return
        before, self._holder = self._holder, holder
        if before is None:
            return
        self.changes += 1
        if self._excused_until.get(before, 0.0) < lost:
            self.unexplained.append(
                f"at {at:.0f} s the Lease went from process {before} to {holder}, unasked"
            )


def peak_bytes(pid: int | None) -> int:
    """Return the peak memory of a process in bytes; 0 if it does not run."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    peaks = [line.split()[1] for line in text.splitlines() if line.startswith("VmHWM:")]
    return int(peaks[0]) * 1024 if peaks else 0  # a process that is ending has none


def limit_bytes() -> int:
    """Return the memory limit of the controller in bytes, from its Deployment."""
    (deployment,) = [
        manifest
        for manifest in read("base/controller/deployment.yaml")
        if manifest["kind"] == "Deployment"
    ]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return int(amount(container["resources"]["limits"]["memory"]))


def too_large(peak: int, limit: int) -> list[str]:
    """Return a message if the peak memory of a controller reached its limit."""
    peak_mib, limit_mib = f"{peak / _MIB:.0f} MiB", f"{limit / _MIB:.0f} MiB"
    message = f"[memory] a controller had {peak_mib}, its limit is {limit_mib}"
    return [message] if peak >= limit else []


class ProcessFaults:
    """Actions on kfext's processes: one method per action.

    There are two controllers, one of them a warm standby; kills and pauses hit the leader.
    `tick` restarts dead processes, and counts the seconds in which kfext was at work.
    """

    def __init__(self, kfext: Kfext) -> None:
        self._kfext = kfext
        self._controllers = (kfext.controller, kfext.standby)
        self._paused: ControllerProcess | None = None
        self._faults_end_at: float | None = None
        self._last = time.monotonic()
        self.seconds_at_work = 0.0
        """Seconds in which a controller led and was not stopped."""
        self.kills = 0
        self.leadership = Leadership()
        self.peak_bytes = 0
        """The peak memory of a controller."""

    def kill_controller(self, both: bool) -> None:
        for process in self._controllers if both else (self.leader or self._controllers[0],):
            self.leadership.record_fault(process.pid)
            process.kill()
            self.kills += 1

    def pause_controller(self) -> None:
        """SIGSTOP the leader: it does nothing, and later continues with old knowledge."""
        self._paused = self.leader
        if self._paused is not None:
            self.leadership.record_fault(self._paused.pid)
            self._paused.freeze()

    def continue_controller(self) -> None:
        if self._paused is not None and self._paused.pid is not None:
            self.leadership.resume(self._paused.pid, at=time.monotonic())
            self._paused.thaw()
        self._paused = None

    def kill_webhook(self) -> None:
        self._kfext.kill_webhook()
        self.kills += 1

    def start_webhook(self) -> None:
        self._kfext.start_webhook()

    def cut_watches(self) -> None:
        for controller in self._controllers:
            controller.proxy.drop_watches()

    def refuse(self, status: int, times: int, carried_out: bool) -> None:
        """Answer some writes with an error; `carried_out`: whether they take effect anyway."""
        for controller in self._controllers:
            fault = Refuse(_is_write, status=status, times=times, carried_out=carried_out)
            controller.proxy.arm(fault)
        self._faults_end_at = time.monotonic() + _BURST_SECONDS

    def tick(self) -> float:
        """End faults that are due, restart dead processes, and return `seconds_at_work`."""
        now = time.monotonic()
        if self._faults_end_at is not None and now > self._faults_end_at:
            self._end_faults()
        self.peak_bytes = max(
            self.peak_bytes, *(peak_bytes(controller.pid) for controller in self._controllers)
        )
        for process in self._controllers:
            if process.pid is None:  # killed, or ended because it lost its Lease, as it should
                process.wait_dead()
                process.launch(environment=self._kfext.environment)
        leader = self.leader
        self.leadership.record_holder(leader.pid if leader else None, at=now)
        if leader is not None and leader is not self._paused:
            self.seconds_at_work += now - self._last
        self._last = now
        return self.seconds_at_work

    def end(self) -> None:
        self.continue_controller()
        self._end_faults()
        if not self._kfext.webhook.alive:
            self.start_webhook()
        self.tick()
        until(lambda: self.leader, what="a controller leads", account=self._kfext.tail)

    def gauge(self, name: str) -> float:
        """Return the value of a gauge of the leader; -1 while no leader answers."""
        leader = self.leader
        try:
            return leader.metric(name) if leader else -1.0
        except (urllib3.exceptions.HTTPError, StopIteration):
            return -1.0

    @property
    def leader(self) -> ControllerProcess | None:
        """The controller that holds the Lease, as the API server shows it."""
        holder = (self._kfext.lease() or {}).get("holderIdentity") or ""
        return next(
            (controller for controller in self._controllers if controller.is_holder(holder)), None
        )

    def _end_faults(self) -> None:
        for controller in self._controllers:
            controller.proxy.heal()
        self._faults_end_at = None


def _is_write(exchange: Exchange) -> bool:
    return exchange.is_write
