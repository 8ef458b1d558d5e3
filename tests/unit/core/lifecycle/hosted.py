"""Jobs that request the host network: a queued job, and a running job with its pods."""

from typing import Any

from kfext.core.ledger.claims import plan_claims
from kfext.core.ledger.ledger import Ledger
from kfext.core.lifecycle.next_step import next_step
from kfext.core.lifecycle.situation import HostNetworkRequest
from kfext.core.lifecycle.steps import Step
from kfext.model.job import TrainingJob
from kfext.model.job_state import JobState
from kfext.model.plan import Plan
from kfext.model.pod import Pod, ReplicaKey
from tests.builders import Raw, job, ledger, node, pod, situation_of
from tests.unit.core.lifecycle.cases import NOW

PORTS = (20000, 20009)
HOST = HostNetworkRequest(ports=PORTS, interfaces=("ib0",))
IN_QUEUE = job().master(cpu="1").worker(2, cpu="1").held().build()
ON_HOST: Raw = {"hostNetwork": True}


def step_of(
    job: TrainingJob, capacity: Ledger, *, host: HostNetworkRequest | None = HOST, **more: Any
) -> Step:
    fields = {"pods": (), "plan": None, "state": JobState(), "now": NOW, **more}
    return next_step(situation_of(job=job, host_network=host, **fields), capacity)


def one_node() -> Ledger:
    return ledger(node("a", cpu="4"))


def started(kind: str = "PyTorchJob") -> TrainingJob:
    return job(kind).worker(3, cpu="1").resumed().build()


def planned(port: int = 20000, on: str = "a") -> Plan:
    return Plan("uid-1", 1, {ReplicaKey("worker", n): on for n in range(3)}, port=port)


def gang(job: TrainingJob, *, missed: int = 0) -> tuple[Pod, ...]:
    """Three pods at the gate, on the host network; the webhook missed the last `missed`."""
    return tuple(
        pod(job, "worker", n, gated=n < 3 - missed, bound="" if n < 3 - missed else "a",
            spec=ON_HOST if n < 3 - missed else None)
        for n in range(3)
    )  # fmt: skip


def ledger_of(job: TrainingJob, plan: Plan) -> Ledger:
    capacity = ledger(node("a", cpu="4"), node("b", cpu="4"))
    for key, claim in plan_claims(job, plan, ()).items():
        capacity.claim(key, claim)
    return capacity
