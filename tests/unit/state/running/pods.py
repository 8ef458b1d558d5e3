"""Pods of a job with four workers and a parameter server, with the CPU of their containers."""

from dataclasses import replace
from typing import Any

from kfext.model.cpu_size import TrainerCpu
from kfext.model.pod import Pod
from tests.builders import job, pod
from tests.unit.state.running.jobs import NODE

JOB = job("TFJob", uid="j").worker(4, cpu="20m").ps(1, cpu="20m").build()
REQUEST = 20


def running(
    index: int = 0,
    limit: int | None = None,
    *,
    type_: str = "worker",
    request: int = REQUEST,
    given: int | None = None,
    restarts: bool = False,
    allocated: int | None = None,
    **fields: Any,
) -> Pod:
    """Return a running pod with a CPU limit; its uid is its replica, such as worker-0."""
    bound = pod(JOB, type_, index, bound=NODE, phase="Running", uid=f"{type_}-{index}")
    return replace(bound, trainer=TrainerCpu(request, limit, given, restarts, allocated), **fields)
