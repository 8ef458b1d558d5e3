"""The claims that jobs and pods have on the ledger."""

from kfext.core.ledger.claims import plan_claims
from kfext.model.plan import Plan
from kfext.model.pod import ReplicaKey
from tests.builders import JobBuilder, job, pods

PLAN = Plan(
    "uid-1",
    1,
    {ReplicaKey("ps", 0): "a", ReplicaKey("worker", 0): "a", ReplicaKey("worker", 1): "b"},
    port=20000,
)


def ports_held(of: JobBuilder, **state: object) -> int:
    made = of.build()
    claims = plan_claims(made, PLAN, pods(made, bound="a", **state))
    return sum(bool(claim.host_ports) for claim in claims.values())


def test_a_planned_pod_holds_the_ports_that_it_declares_itself() -> None:
    container = {"name": "pytorch", "ports": [{"containerPort": 9090}]}
    made = job().master(spec={"containers": [container]}).build()
    plan = Plan("uid-1", 1, {ReplicaKey("master", 0): "a"}, port=20000)
    held_ports = {
        port for claim in plan_claims(made, plan, ()).values() for port in claim.host_ports
    }
    assert held_ports == {("TCP", 9090), ("TCP", 20000)}


def test_ports_are_free_again_when_the_last_pod_has_ended() -> None:
    running = job("TFJob").ps(1).worker(2)
    assert ports_held(running) == 2
    ended = running.condition("Succeeded")
    assert ports_held(ended, phase="Running") == 2
    assert ports_held(ended, phase="Succeeded") == 0
