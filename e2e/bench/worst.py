"""The most expensive objects that the API server accepts: the cost of one, and of 200 at once.

For each dimension that a user can make large, one job and one pod of up to 1.4 MB, or with 250 KB
of annotations (e2e.bench.worst_objects). In this process: the review, from the bytes of the
AdmissionReview to the answer's bytes; and the controller, from the decoded JSON of a watch event
to the decision on a cluster of 1,000 nodes, and the memory that is kept after it.

Then, on a real API server, 200 such objects at once, half of them jobs and half pods, with the
controller as a process: whether the leader stays the same, the largest memory, and the same again
for a controller that starts while all of them exist. The API server itself needs up to fifteen CPU
seconds and 110 MB for each, so this part takes about ten minutes and half of a memory of 24 GiB.
"""

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import orjson

from e2e.bench import crowd, worst_objects
from e2e.bench.bed import ScaleBench, scale_cluster, with_client
from e2e.bench.report import WORST_CONTROLLER, WORST_KEPT, WORST_MEMORY, WORST_REVIEW, table
from e2e.bench.worst_objects import Object
from kfext import names
from kfext.core.admission.new_job import mutate_job
from kfext.core.admission.review import ReviewContext, ReviewResult
from kfext.errors import ApiError, Conflict
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.kube.wire import decode_pod, decode_rendered
from kfext.model.kinds.registered import KINDS
from kfext.model.moment import Moment
from kfext.model.namespace import Namespace
from kfext.model.node import parse_node
from kfext.state.planner.planner import Planner
from kfext.webhook.review import answer, parse

_NODES = 1000
_EACH, _QUICK = 100, 10
_NODES_THERE = 200
_NAMESPACE, _TENANT = "bench-worst", "team"
_SETTLE_SECONDS = 20.0
_PATIENCE_SECONDS = 120.0
_CONTEXT = ReviewContext(namespace=Namespace("", {names.MANAGED: "true"}), controller_alive=True)


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one object: CPU milliseconds of review and controller, MiB that the controller keeps."""

    review: float
    controller: float
    kept: float


def measure(*, quick: bool) -> str:
    """Return the tables."""
    repeats = 1 if quick else 5
    singles = _table(
        "job", {what: _job(make(), repeats) for what, make in worst_objects.jobs().items()}
    )
    stored = worst_objects.pods(storable=True)
    pods = _table("pod", {what: _unreviewed(make(), repeats) for what, make in stored.items()})
    made = worst_objects.jobsets()
    jobsets = _table("JobSet", {what: _unreviewed(make(), repeats) for what, make in made.items()})
    with scale_cluster("worst", hooks=True) as bench:
        count = _QUICK if quick else _EACH
        together = with_client(bench, lambda client: _together(bench, client, count))
    return "\n\n".join([singles, pods, jobsets, together])


def _table(kind: str, costs: Mapping[str, Cost]) -> str:
    rows = [
        (
            what,
            f"{cost.review:.1f} {WORST_REVIEW.judge(cost.review)}" if cost.review else "-",
            f"{cost.controller:.1f} {WORST_CONTROLLER.judge(cost.controller)}",
            f"{cost.kept:.2f} {WORST_KEPT.judge(cost.kept)}",
        )
        for what, cost in costs.items()
    ]
    title = f"The most expensive {kind}s, {_NODES} nodes"
    return table(
        title,
        (f"{kind} with many or large", "review CPU ms", "controller CPU ms", "kept MiB"),
        rows,
    )


# --- one at a time --------------------------------------------------------------------------------


def _job(raw: Object, repeats: int) -> Cost:
    review = orjson.dumps(_review(raw))
    stored = orjson.dumps(_stored(raw))

    def reviewed() -> None:
        request = parse(review)
        left = ReviewResult(warnings=(request.excess,))
        answer(request, left if request.excess else mutate_job(request.decoded(), _CONTEXT))

    def decided(planner: Planner) -> None:
        planner.cluster.observe_job(orjson.loads(stored))
        planner.tick(Moment(wall=100.0, monotonic=100.0))

    return Cost(
        review=min(_milliseconds(reviewed) for _ in range(repeats)),
        controller=_deciding(decided, repeats),
        kept=_kept(decided),
    )


def _unreviewed(raw: Object, repeats: int) -> Cost:
    """Return the cost of a pod or a JobSet."""
    stored = orjson.dumps(_stored(raw))

    def observed(planner: Planner) -> None:
        if raw["kind"] == "Pod":
            planner.cluster.observe_pod(None, decode_pod(stored))
        else:
            planner.cluster.observe_rendered(None, decode_rendered(stored))
        planner.tick(Moment(wall=100.0, monotonic=100.0))

    return Cost(
        review=0.0,
        controller=_deciding(observed, repeats),
        kept=_kept(observed),
    )


def _planner() -> Planner:
    """Return a planner that knows the TrainJob of the JobSets."""
    planner = Planner()
    managed = Namespace(_TENANT, labels={names.MANAGED: "true"})
    planner.settings.observe_namespace(None, managed)
    for number in range(_NODES):
        planner.cluster.observe_node(None, parse_node(_node(number)))
    planner.cluster.observe_job(worst_objects.train_job(_TENANT))
    planner.tick(Moment(wall=1.0, monotonic=1.0))
    return planner


def _node(number: int) -> Object:
    allocatable = {"cpu": "32", "memory": "256Gi", "nvidia.com/gpu": "8", "pods": "110"}
    return {
        "metadata": {"name": crowd.node_name(number), "labels": {"zone": str(number % 3)}},
        "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}] if number % 2 else []},
        "status": {"allocatable": allocatable},
    }


def _review(raw: Object) -> Object:
    request = {"uid": "u", "namespace": _TENANT, "operation": "CREATE", "object": raw}
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


def _stored(raw: Object) -> Object:
    """Return the object as it was stored, if it is a job as kfext would have held it."""
    stored = deepcopy(raw)
    stored["metadata"] |= {"namespace": _TENANT, "uid": "uid-1", "resourceVersion": "1"}
    if stored["kind"] == "Pod":
        stored["spec"] |= {"schedulingGates": [{"name": names.GATE}]}
    elif stored["kind"] != "JobSet":
        stored["metadata"].setdefault("annotations", {})[names.HELD] = "true"
        stored["spec"]["runPolicy"] = {"suspend": True}
    return stored


def _deciding(work: Callable[[Planner], object], repeats: int) -> float:
    """Return the milliseconds of some work, each time with a planner that is new to the object."""
    planners = [_planner() for _ in range(repeats)]
    return min(_milliseconds(partial(work, planner)) for planner in planners)


def _milliseconds(work: Callable[[], object]) -> float:
    gc.collect()
    began = time.process_time()
    work()
    return 1e3 * (time.process_time() - began)


def _kept(work: Callable[[Planner], object]) -> float:
    """Return the MiB that a planner keeps after some work."""
    planner = _planner()
    gc.collect()
    tracemalloc.start()
    work(planner)
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used / 2**20


# --- all at once ----------------------------------------------------------------------------------


async def _together(bench: ScaleBench, client: Client, count: int) -> str:
    await crowd.create_namespace(client, _NAMESPACE)
    await crowd.create_nodes(client, _NODES_THERE, gpus=8)
    leader, before = await _leader(client), bench.memory()
    refused = await _create(client, count)
    await asyncio.sleep(_SETTLE_SECONDS)
    rows = [
        ("jobs and pods created", f"{2 * count}", ""),
        *((f"not accepted by the API server: {what}", why, "") for what, why in refused.items()),
        ("memory of the controller before, MiB", f"{before:.0f}", ""),
        _peak("controller", bench.controller_pid),
        ("the same leader", "yes" if await _leader(client) == leader else "no: MISS", ""),
    ]
    bench.stop_controller()
    began = time.monotonic()
    bench.launch_controller()
    while not bench.samples().get("kfext_leading"):
        if time.monotonic() - began > _PATIENCE_SECONDS:
            raise TimeoutError(f"the controller does not lead\n{bench.tail()}")
        await asyncio.sleep(0.1)
    leads = time.monotonic() - began
    await asyncio.sleep(_SETTLE_SECONDS)
    rows += [
        ("start to leading with all of them there, s", f"{leads:.1f}", ""),
        _peak("controller that started so", bench.controller_pid),
        ("memory of the controller 20 s later, MiB", f"{bench.memory():.0f}", ""),
    ]
    return table(
        f"{count} jobs and {count} pods of about 1.4 MB at once, {_NODES_THERE} nodes",
        ("figure", "value", "target"),
        rows,
    )


async def _create(client: Client, count: int) -> dict[str, str]:
    """Create as many jobs and pods, all kinds in turn; return the refused ones, and why.

    One at a time: the API server alone takes seconds for each. A kind that is refused once, also by
    no answer in time, is not tried again, so each of the objects can exist.
    """
    refused: dict[str, str] = {}
    for path, kinds in (
        (paths.jobs(KINDS["PyTorchJob"], _NAMESPACE), worst_objects.jobs(storable=True)),
        (paths.pods(_NAMESPACE), worst_objects.pods(storable=True)),
    ):
        left = [(what, make()) for what, make in kinds.items()]
        for number in range(count):
            created = False
            while not created:
                what, raw = left[number % len(left)]
                body = {**raw, "metadata": {**raw["metadata"], "name": f"worst-{number}"}}
                try:
                    await client.create(path, body)
                except Conflict:
                    created = True  # by a try that was not answered in time
                except ApiError as error:
                    refused[f"{raw['kind']} with {what}"] = str(error)[:60]
                    left.remove((what, raw))
                else:
                    created = True
    return refused


async def _leader(client: Client) -> tuple[str, int]:
    lease = await client.get(paths.leases(names.NAMESPACE, names.LEASE))
    spec = lease["spec"]
    return spec["holderIdentity"], spec.get("leaseTransitions", 0)


def _peak(whose: str, pid: int) -> tuple[str, str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    peak = next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))
    return (f"largest memory of the {whose}, MiB", f"{peak:.0f}", WORST_MEMORY.judge(peak))
