"""Running jobs that kfext has changed or is changing: another version continues the change.

The nodes are fake, and so are the training, the metrics API and the agent of the node with a GPU.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from e2e.harness.fake_cpu import fake_cpu
from e2e.harness.fake_kubelet import FakeKubelet, FakeProgram, fake_kubelet, training
from e2e.harness.jobs import pinned_to, specs, suspended, workers
from e2e.harness.kube import Object, RefusedError
from e2e.harness.pods import end_now, end_slowly, succeed, uids
from e2e.harness.scaling import FULL, LEAST, TRAIN, Scene
from e2e.harness.space import CASE, Space
from e2e.testbed import fakenodes
from kfext import names
from kfext.model.gpu import UNITS, reservation_of, resource_of

PRIORITISED, RIVAL = "prioritised", "rival"
MOVES = "moves"
FIRST, SECOND = "first", "second"
REQUEST = "500m"
"""The CPU request in the manifests of the prioritised job and of its rival."""
_CORES, _NODE_CORES = 2.0, "4"
_FEWER_STEPS, _MANY_STEPS = 100_000, 1_000_000
"""The steps of the prioritised job, which would end first, and of the other jobs."""
_PATIENCE_SECONDS = 300.0
_GPU = {names.NATIVE_GPU: "1", "cpu": "1"}
_CARDS = "/apis/kfext.dev/v1alpha1/sharedgpus"
_SLOT = 0
_RESERVATIONS = f"/api/v1/namespaces/{names.GPU_NAMESPACE}/pods"


@dataclass
class UnderWay:
    """Each change has a namespace and nodes of its own."""

    scene: Scene
    cpu: Space
    sharing: Space
    moving: Space
    kubelet: FakeKubelet
    background: ExitStack
    target: str = ""
    """The node that the moving job moves to."""
    before: Object = field(default_factory=dict)
    """The uids of the pods that must survive each change of the version; see `_surviving_uids`."""

    def reach(self) -> None:
        """Submit the jobs and wait until each is in its state."""
        for node in self.scene.fill():
            self.kubelet.take_over(self.cpu.kube, node)
        self._train(self.scene.space, TRAIN)
        self.scene.crowd()
        self._reserve_gpu()
        self._compete()
        self.scene.wait_scaled_down()
        self.cpu.patiently(self._is_boosted, seconds=_PATIENCE_SECONDS)
        # The move is last because nothing else may change during a move, and it lasts up to 300 s.
        self._begin_move()
        self.before = self._surviving_uids()

    def proceed(self) -> None:
        assert self._surviving_uids() == self.before
        self._finish_move()
        assert self._is_boosted(), "its CPU is still boosted"
        self._submit_sharer(SECOND)
        self._wait_sharing(SECOND)
        self.scene.end_gang()
        self.scene.wait_full_size()
        self.scene.wait_reason(names.REASON_AS_ASKED)
        assert self._surviving_uids() == self.before
        succeed(self.cpu, f"{RIVAL}-master-0")
        self.cpu.patiently(lambda: self._request() == REQUEST, seconds=_PATIENCE_SECONDS)
        for name in (FIRST, SECOND):
            succeed(self.sharing, f"{name}-master-0")
        self.sharing.until(lambda: not self._reservations(), "the GPU is released")

    def check_writes(self) -> None:
        """Check that no change was made twice: the sizes, starts and pins that kfext wrote."""
        assert self.scene.sizes() == [LEAST, FULL]
        spaces = (self.scene.space, self.cpu, self.sharing, self.moving)
        assert [space.starts() for space in spaces] == [2, 2, 2, 2]
        self.sharing.check_pins()
        pins = self.cpu.pins()
        del pins["resize"]
        assert set(pins.values()) == {1}

    def _surviving_uids(self) -> Object:
        """Return the uids of the pods that no upgrade or downgrade may replace."""
        stay = sorted(uids(self.scene.space, TRAIN).items())[:LEAST]
        jobs = (uids(self.cpu, PRIORITISED), uids(self.sharing, FIRST))
        (reservation,) = self._reservations()
        return dict(stay) | jobs[0] | jobs[1] | {"reservation": reservation["metadata"]["uid"]}

    def _train(self, space: Space, job: str, *, total: int = _MANY_STEPS) -> None:
        program = FakeProgram(total=total)
        self.background.enter_context(training(space, job, self.kubelet, program))

    # --- boosted CPU ------------------------------------------------------------------------------

    def _compete(self) -> None:
        """Run two jobs that contend for the CPU of a node; the prioritised job would end first."""
        (node,) = self.cpu.nodes(1, cpu=_NODE_CORES, memory="64Gi")
        self.kubelet.take_over(self.cpu.kube, node)
        # Only 0.3 has this parameter.
        resize = {"mode": "act", "parameters": {"change": 0.3}}
        self.cpu.policy(companion={"resize": resize})
        for name, total in ((PRIORITISED, _FEWER_STEPS), (RIVAL, _MANY_STEPS)):
            manifest = workers(name, 1, annotations={names.RESIZE: "cpu"})
            for spec in specs(manifest).values():
                (container,) = spec["template"]["spec"]["containers"]
                container["resources"] = {"requests": {"cpu": REQUEST}}
            self.cpu.submit(manifest)
            self.cpu.bound(name, 1)
            self._train(self.cpu, name, total=total)

    def _request(self) -> str:
        pod = self.cpu.kube.get(self.cpu.path("pods", f"{PRIORITISED}-master-0"))
        request: str = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        return request

    def _is_boosted(self) -> bool:
        request = self._request()
        return not request.endswith("m") or int(request[:-1]) > int(REQUEST[:-1])

    # --- a shared GPU -----------------------------------------------------------------------------

    def _reserve_gpu(self) -> None:
        """Submit a job that reserves the GPU of a node, and report the card as an agent would."""
        space, node = self.sharing, f"{self.sharing.name}-shares"
        capacity = {"cpu": "32", "memory": "64Gi", "pods": "110"}
        capacity |= {names.NATIVE_GPU: "1", resource_of(_SLOT): str(UNITS)}
        labels = {CASE: space.name}
        space.create_nodes([fakenodes.node(node, capacity=capacity, labels=labels, taints=[])])
        name = reservation_of(node, _SLOT)
        kind = {"apiVersion": "kfext.dev/v1alpha1", "kind": "SharedGPU"}
        card = kind | {"metadata": {"name": name}, "spec": {"node": node, "slot": _SLOT}}
        space.kube.create(_CARDS, card)
        self.background.callback(space.kube.delete, f"{_CARDS}/{name}")
        status: Object = {"memoryMiB": 80 * 1024, "healthy": True}
        space.kube.patch(f"{_CARDS}/{name}/status", {"status": status})
        self._submit_sharer(FIRST)
        pods = space.until(self._reservations, "a GPU is reserved")
        status = {"card": "GPU-8f1b2c3d", "reservation": pods[0]["metadata"]["uid"]}
        space.kube.patch(f"{_CARDS}/{name}/status", {"status": status})
        self._wait_sharing(FIRST)

    def _submit_sharer(self, name: str) -> None:
        self.sharing.submit(workers(name, 1, each=_GPU, annotations={names.GPU_SHARE: "0.5"}))

    def _wait_sharing(self, name: str) -> None:
        """Wait until a job runs with half of the GPU."""
        self.sharing.bound(name, 1)
        self.sharing.phase(name, "Placed")
        ((container,),) = (pod["spec"]["containers"] for pod in self.sharing.pods(name))
        assert container["resources"]["limits"][resource_of(_SLOT)] == str(UNITS // 2)

    def _reservations(self) -> list[Object]:
        return self.sharing.kube.items(_RESERVATIONS)

    # --- a move -----------------------------------------------------------------------------------

    def _begin_move(self) -> None:
        """Start to move a job from two nodes to one; it is stopped, but its pods still exist."""
        space = self.moving
        first, second = space.nodes(2, cpu="4", memory="64Gi", gpu="2")
        for node in (first, second):
            self.kubelet.take_over(space.kube, node)
            space.take_gpus(node, node, 1)
        space.submit(workers(MOVES, 2, each=_GPU, annotations={names.MIGRATE: "checkpointed"}))
        assert set(space.bound(MOVES, 2).values()) == {first, second}
        space.phase(MOVES, "Placed")
        self._train(space, MOVES)
        end_slowly(space, _pods(space, MOVES))
        space.kube.delete(space.path("pods", second), grace=0)
        self.target = second
        space.patiently(
            lambda: self._moved(names.REASON_MOVING) and suspended(space.job(MOVES)),
            seconds=_PATIENCE_SECONDS,
        )

    def _finish_move(self) -> None:
        """Let the pods end, and wait until the job runs on the target."""
        space = self.moving
        end_now(space, _pods(space, MOVES))
        assert set(space.bound(MOVES, 2).values()) == {self.target}
        space.phase(MOVES, "Placed")
        assert all(len(pinned_to(pod)) == 1 for pod in space.pods(MOVES))
        space.until(lambda: self._moved(names.REASON_TOGETHER), "its condition says that it moved")

    def _moved(self, reason: str) -> bool:
        """Return whether the condition Moved of the job has a reason."""
        conditions = self.moving.view(MOVES).get("conditions", [])
        return (names.MOVED, reason) in {(each["type"], each["reason"]) for each in conditions}


def _pods(space: Space, job: str) -> list[str]:
    """Return the names of the pods of a job, including terminating pods."""
    return [pod["metadata"]["name"] for pod in space.pods(job, ending=True)]


@contextmanager
def under_way(new_space: Callable[..., Space]) -> Iterator[UnderWay]:
    """Simulate kubelet and CPU usage during a `with` block. kfext must be installed."""
    elastic, cpu, sharing, moving = (new_space() for _ in range(4))
    use = fake_cpu(cpu, pods=[f"{name}-master-0" for name in (PRIORITISED, RIVAL)], cores=_CORES)
    with ExitStack() as background, fake_kubelet(cpu.kfext.testbed) as kubelet, use:
        try:
            yield UnderWay(Scene(elastic), cpu, sharing, moving, kubelet, background)
        finally:
            with suppress(RefusedError):  # without a finalizer their namespace can end
                end_now(moving, _pods(moving, MOVES))
