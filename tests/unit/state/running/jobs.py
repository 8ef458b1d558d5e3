"""Builders of the signals of jobs and nodes, and of proposals."""

from dataclasses import replace
from typing import Any

from kfext.model.cpu_state import PodCpu
from kfext.model.policy import Mode, PolicyChoice
from kfext.state.running.proposal import Measure, PodSizes, Proposal, Rank, Size
from kfext.state.running.signals import JobSignal, NodeSignal, PodSignal, Signals

NODE = "n1"
ALLOCATABLE = 1400
"""The allocatable CPU of a node, in millicores."""


def pod(uid: str = "p", **fields: Any) -> PodSignal:
    """Return a pod; `user_request`, `user_limit`: the user's CPU if kfext has changed it."""
    defaults: dict[str, Any] = {"component": "worker", "node": NODE, "request": 20}
    values = {**defaults, **fields}
    if values.keys() & {"user_request", "user_limit"}:
        request = values.pop("user_request", values["request"])
        values["user"] = PodCpu(request, values.pop("user_limit", values.get("limit")))
    return PodSignal(uid, **values)


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
    """Return the signals of jobs and their nodes; `others`: the CPU use of other jobs per node."""
    nodes = {NODE} | {pod.node for job in jobs for pod in job.pods}
    node, free = NodeSignal(allocatable, others, crowded=True), dict.fromkeys(nodes, allocatable)
    for pod in (pod for job in jobs for pod in job.pods):
        free[pod.node] -= pod.requested.request
    return Signals({name: replace(node, free=free[name]) for name in nodes}, jobs)


def proposal(uid: str = "j", *, pods: int = 1, **fields: Any) -> Proposal:
    """Return a proposal that gives the first `pods` pods of a job a limit of 100m."""
    sizes = tuple(Size(f"{uid}-{index}", limit=100) for index in range(pods))
    defaults: dict[str, Any] = {
        "policy": "resize",
        "reason": "a reason",
        "measure": Measure.USE,
        "rank": Rank.RESIZE,
    }
    change = PodSizes(fields.pop("stages", (sizes,)))
    return Proposal(job=uid, change=change, **{**defaults, **fields})
