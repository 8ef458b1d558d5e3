"""A job in each phase, which goes on from there once nothing holds it back any more."""

import subprocess
from collections.abc import Callable
from contextlib import ExitStack

from e2e.harness.jobs import job, suspended, workers
from e2e.harness.pods import (
    FOREIGN_GATE,
    admit_pods,
    end_now,
    end_slowly,
    refuse_pods,
    refusing,
    squatter,
    succeed,
    take_foreign_gate,
)
from e2e.harness.processes import COMMAND
from e2e.harness.space import Space
from e2e.testbed.cluster import Testbed

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}
CPU = {"cpu": "1"}
_DISK = {
    "targetPortal": "192.0.2.1:3260",
    "iqn": "iqn.2001-04.com.example:disk",
    "lun": 0,
    "readOnly": True,
}
UNMODELLED = {"volumes": [{"name": "disk", "iscsi": _DISK}]}
"""A term that only kube-scheduler judges: 0.1 does not know that, and places such jobs."""


class EveryPhase:
    """The jobs, with a namespace of its own where a phase needs one."""

    def __init__(self, new_space: Callable[..., Space], testbed: Testbed) -> None:
        self._testbed = testbed
        self._refused = ExitStack()
        self.space, self.crowded, self.starved, self.unbound, self.stopped = (
            new_space() for _ in range(5)
        )
        self.space.nodes(2, cpu="32", memory="64Gi", gpu="4")
        self.space.policy(placement={"reserveAfter": "1s", "bindTimeout": "10m"})
        self.crowded.nodes(1, cpu="32", memory="64Gi", gpu="2")
        self.stopped.nodes(1, cpu="32", memory="64Gi")

    def reach(self) -> None:
        """Submit the jobs and wait until each is where it shall be."""
        space = self.space
        space.submit(workers("finished", 1, each=CPU))
        space.phase("finished", "Placed")
        succeed(space, "finished-master-0")
        space.phase("finished", "Finished")
        space.submit(workers("placed", 2, each=GPU))
        space.phase("placed", "Placed")
        space.submit(workers("gated", 2, each=GPU, pod=FOREIGN_GATE))
        space.phase("gated", "Gated")
        space.submit(workers("suspended", 2, each=GPU, policy={"suspend": True}))
        space.phase("suspended", "Suspended")
        space.submit(workers("queued", 8, each=GPU))
        space.until(
            lambda: "for it until" in space.view("queued").get("message", ""), "room is kept"
        )
        space.submit(workers("reserved", 2, each=GPU))
        _waits(space, "reserved", "Reserved")
        self._reach_released()
        refuse_pods(self.starved)
        self.starved.submit(workers("planned", 2, each=GPU))
        self.starved.phase("planned", "Planned")
        self._reach_stopped()
        self.unbound.policy(placement={"bindTimeout": "10m"})
        self._testbed.stop_process("kube-scheduler")
        self.unbound.submit(workers("binding", 2, each=GPU))
        self.unbound.phase("binding", "Binding")

    def _reach_released(self) -> None:
        """A job that a person released, and a job with terms that 0.1 does not know."""
        crowded = self.crowded
        crowded.submit(workers("released", 4, each=GPU))
        crowded.phase("released", "Queued")
        config = f"--kubeconfig={self._testbed.kubeconfig}"
        release = [str(COMMAND), "release", "released", "-n", crowded.name, config]
        subprocess.run(release, check=True, capture_output=True)
        crowded.phase("released", "Released")
        crowded.until(lambda: sum(map(bool, crowded.homes("released").values())) == 2, "2 fit")
        crowded.submit(workers("unmodelled", 2, each=GPU, pod=UNMODELLED))
        crowded.until(lambda: crowded.view("unmodelled"), "kfext has seen it")

    def _reach_stopped(self) -> None:
        """A job that kfext suspended, since some of its pods were refused; the others still end."""
        stopped = self.stopped
        stopped.policy(placement={"createTimeout": "10s"})
        self._refused.enter_context(
            refusing(
                stopped,
                unless="!object.metadata.name.contains('worker')",
                message="no workers today",
                probe=squatter("worker"),
            )
        )
        stopped.submit(job("stopped", {"PS": 1, "Worker": 1}, kind="TFJob", each=CPU))
        stopped.until(lambda: stopped.pods("stopped"), "the other pod exists")
        end_slowly(stopped, ["stopped-ps-0"])
        _waits(stopped, "stopped", "WaitingForSuspend", kind="TFJob")
        assert suspended(stopped.job("stopped", "TFJob"))

    def go_on(self) -> None:
        """Take away what holds each of them back, and see each arrive."""
        space = self.space
        self.admit()
        self.unbound.bound("binding", 2)
        admit_pods(self.starved, "planned")
        self.starved.bound("planned", 2)
        end_now(self.stopped, ["stopped-ps-0"])
        take_foreign_gate(space, "gated")
        space.bound("gated", 2)
        space.nodes(2, cpu="32", memory="64Gi", gpu="8")
        space.bound("queued", 8)
        space.bound("reserved", 2)
        space.patch_job("suspended", {"spec": {"runPolicy": {"suspend": False}}})
        space.bound("suspended", 2)
        for name in ("placed", "gated", "queued", "reserved", "suspended"):
            space.phase(name, "Placed")
        space.phase("finished", "Finished")
        self.unbound.phase("binding", "Placed")
        self.starved.phase("planned", "Placed")
        self.stopped.bound("stopped", 2)
        self.stopped.phase("stopped", "Placed", "TFJob")
        # What is released stays so: the pods that found no room wait for kube-scheduler alone.
        self.crowded.nodes(1, cpu="32", memory="64Gi", gpu="4")
        self.crowded.bound("released", 4)
        self.crowded.bound("unmodelled", 2)
        self.crowded.phase("released", "Released")

    def admit(self) -> None:
        """Have kube-scheduler at work, and the API server accept all pods of the stopped job."""
        self._testbed.restart_process("kube-scheduler")
        self._refused.close()

    def check_writes(self) -> None:
        """Check that kfext started each job once under a plan, and pinned each of its pods once."""
        for space in (self.space, self.starved, self.unbound, self.stopped):
            space.check_pins()
        # The job that a person suspended is not among them.
        assert self.space.starts() == len(("finished", "placed", "gated", "queued", "reserved"))
        assert self.starved.starts() == self.unbound.starts() == 1
        assert self.stopped.starts() == 2
        assert (self.crowded.starts(), self.crowded.pins()) == (0, {})


def _waits(space: Space, name: str, reason: str, kind: str = "PyTorchJob") -> None:
    """Wait until a queued job waits for a reason."""
    space.until(lambda: space.view(name, kind).get("reason") == reason, f"{name} is {reason}")
    assert space.view(name, kind)["phase"] == "Queued"
