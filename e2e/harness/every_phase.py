"""One job in each phase; each job proceeds once its obstacle is removed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from e2e.harness.jobs import suspended, workers
from e2e.harness.pods import FOREIGN_GATE, admit_pods, refuse_pods, remove_foreign_gate, succeed
from e2e.harness.space import Space
from e2e.testbed.cluster import Testbed
from kfext.names import NATIVE_GPU

GPU = {"nvidia.com/gpu": "1", "cpu": "1"}
_NODE = {"cpu": "32", "memory": "64Gi"}
_WRAPPER = {
    "apiVersion": "workload.codeflare.dev/v1beta2",
    "kind": "AppWrapper",
    "name": "wrapper",
    "uid": "none",
    "controller": True,
}


class EveryPhase:
    """The jobs; a phase that needs special nodes or policies has a namespace of its own."""

    def __init__(self, new_space: Callable[..., Space], testbed: Testbed) -> None:
        self._testbed = testbed
        self.space, self.crowded, self.starved, self.unbound, self.wrapped = (
            new_space() for _ in range(5)
        )
        self.space.nodes(2, **_NODE, gpu="4")
        self.space.policy(placement={"reserveAfter": "1s", "bindTimeout": "10m"})
        self.crowded.nodes(1, **_NODE, gpu="2")
        self.crowded.policy(placement={"releaseAfter": "1s"})
        for space in (self.unbound, self.wrapped):
            space.policy(placement={"bindTimeout": "10m"})

    def reach(self) -> None:
        """Submit the jobs and wait until each is in its phase."""
        space = self.space
        space.submit(workers("finished", 1, each={"cpu": "1"}))
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
            lambda: "for it until" in space.view("queued").get("message", ""),
            "it has a reservation",
        )
        space.submit(workers("behind", 2, each=GPU))
        space.until(
            lambda: space.view("behind").get("reason") == "Reserved",
            "it may not pass the reservation",
        )
        self.crowded.submit(workers("released", 4, each=GPU))
        self.crowded.phase("released", "Released")
        refuse_pods(self.starved)
        self.starved.submit(workers("planned", 2, each=GPU))
        self.starved.phase("planned", "Planned")
        self._wrap()
        self._testbed.stop_process("kube-scheduler")
        self.unbound.submit(workers("binding", 2, each=GPU))
        self.unbound.phase("binding", "Binding")

    def _wrap(self) -> None:
        """Submit a job that a foreign controller owns: 0.3 suspends it, this version gates it."""
        (node,) = self.wrapped.nodes(1, **_NODE, gpu="2")
        self.wrapped.take_gpus("thief", node, 1)
        manifest = workers("wrapped", 2, each=GPU)
        manifest["metadata"]["ownerReferences"] = [_WRAPPER]
        self.wrapped.submit(manifest)
        self.wrapped.until(
            lambda: self.wrapped.view("wrapped").get("phase") in {"Queued", "Gated"}, "it waits"
        )

    def proceed(self) -> None:
        """Remove the obstacle of each job, and wait until each is placed."""
        space = self.space
        self._testbed.restart_process("kube-scheduler")
        _wait_running(self.unbound, "binding")
        admit_pods(self.starved, "planned")
        _wait_running(self.starved, "planned")
        remove_foreign_gate(space, "gated")
        _wait_running(space, "gated")
        space.nodes(2, **_NODE, gpu="8")
        space.patch_job("suspended", {"spec": {"runPolicy": {"suspend": False}}})
        for name, count in {"placed": 2, "queued": 8, "behind": 2, "suspended": 2}.items():
            _wait_running(space, name, count)
        space.phase("finished", "Finished")
        # 0.3 ran at some time, before the upgrade or after the downgrade, and suspended this job.
        self.wrapped.phase("wrapped", "Queued")
        assert suspended(self.wrapped.job("wrapped"))
        self.wrapped.nodes(1, **_NODE, gpu="2")
        _wait_running(self.wrapped, "wrapped")
        # A released job stays released: only kube-scheduler places its remaining pods.
        self.crowded.nodes(1, **_NODE, gpu="4")
        _wait_running(self.crowded, "released", 4, phase="Released")

    def check_histories(self) -> None:
        """Check that a TrainingPlan of 0.3 has a history from the upgrade on."""
        status = self.space.view("queued")
        phases = [entry["what"] for entry in status["history"]]
        assert (phases[0], phases[-1]) == ("Queued", "Placed"), phases
        times = [entry["time"] for entry in status["history"]]
        assert times == sorted(times)
        assert status["history"][-1]["nodes"] == status["nodes"]
        places = {place["node"]: place["pods"] for place in status["places"]}
        assert (sorted(places), sum(places.values())) == (status["nodes"], 8)
        assert status["requests"][NATIVE_GPU] == "1"

    def check_writes(self) -> None:
        """Check that kfext started each planned job once, and pinned each of its pods once."""
        for space in (self.space, self.starved, self.unbound):
            space.check_pins()
        # The list leaves out the job that a person suspended.
        assert self.space.starts() == len(("finished", "placed", "gated", "queued", "behind"))
        assert self.starved.starts() == self.unbound.starts() == 1
        assert set(self.wrapped.pins().values()) == {1}


def _wait_running(space: Space, job: str, count: int = 2, *, phase: str = "Placed") -> None:
    space.bound(job, count)
    space.phase(job, phase)


@contextmanager
def every_phase(new_space: Callable[..., Space], testbed: Testbed) -> Iterator[EveryPhase]:
    """Yield the jobs; after the `with` block kube-scheduler runs again, even if the case failed."""
    try:
        yield EveryPhase(new_space, testbed)
    finally:
        testbed.restart_process("kube-scheduler")
