"""Jobs and nodes as policies see them."""

from dataclasses import replace
from typing import Any

from kfext.model.cpu_state import PodCpu
from kfext.model.policy import Mode, PolicyChoice
from kfext.state.running.proposal import Measure, PodSizes, Proposal, Rank, Size
from kfext.state.running.signals import JobSignal, NodeSignal, PodSignal, Signals

NODE = "n1"
ALLOCATABLE = 1400


def pod(uid: str = "p", **fields: Any) -> PodSignal:
    """A pod; `user_request`, `user_limit`: the user's CPU, where kfext changed it."""
    defaults: dict[str, Any] = {"component": "worker", "node": NODE, "request": 20}
    made = {**defaults, **fields}
    if made.keys() & {"user_request", "user_limit"}:
        request = made.pop("user_request", made["request"])
        made["user"] = PodCpu(request, made.pop("user_limit", made.get("limit")))
    return PodSignal(uid, **made)


def job(
    uid: str = "j", *pods: PodSignal, policy: str = "resize", mode: Mode = Mode.ACT, **fields: Any
) -> JobSignal:
    parameters = fields.pop("parameters", {})
    defaults: dict[str, Any] = {
        "pods": pods or (pod(f"{uid}-0"),),
        "policies": {policy: PolicyChoice(mode, parameters)},
    }
    return JobSignal(uid, **{**defaults, **fields})


def signals(*jobs: JobSignal, others: int = 0, allocatable: int = ALLOCATABLE) -> Signals:
    nodes = {NODE} | {pod.node for job in jobs for pod in job.pods}
    asked = {
        name: sum(pod.requested.request for job in jobs for pod in job.on(name)) for name in nodes
    }
    node = NodeSignal(allocatable, others, crowded=True)
    return Signals({name: replace(node, free=allocatable - asked[name]) for name in nodes}, jobs)


def proposal(of: str = "j", *, pods: int = 1, **fields: Any) -> Proposal:
    sizes = tuple(Size(f"{of}-{index}", limit=100) for index in range(pods))
    defaults: dict[str, Any] = {
        "policy": "resize",
        "reason": "a reason",
        "measure": Measure.USE,
        "rank": Rank.RESIZE,
    }
    change = PodSizes(fields.pop("stages", (sizes,)))
    return Proposal(job=of, change=change, **{**defaults, **fields})
