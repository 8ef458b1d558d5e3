"""The arms of a comparison: who starts, places and scales the jobs of a model cluster."""

from collections.abc import Callable, Mapping

from kfext.core.companion.registry import POLICIES
from kfext.model.policy import Mode, PolicyChoice, QueueOrder, TrainingPolicy
from kfext.sim.baselines import Carrier, EqualShare, Plain, Rule, Shortest
from kfext.sim.cluster import Cluster, World
from kfext.sim.dragon import Dragon
from kfext.sim.objects import LiveJob

Arm = Callable[[World, int], Cluster]
"""Returns a cluster that has not begun; the number draws what is luck: late writes and retries."""

GANG, KFEXT, PLAIN = "gang", "kfext", "plain"


def of_policy(policy: TrainingPolicy | None) -> Arm:
    """Return kfext under a policy of its administrator; None: the built-in policy."""
    return lambda world, luck: Cluster(luck, policy=policy, world=world)


def _companion(*acting: str, order: QueueOrder = QueueOrder.ARRIVAL) -> Arm:
    """Return kfext with the named policies of its companion alone."""
    modes = {
        policy.name: PolicyChoice(Mode.ACT if policy.name in acting else Mode.OFF)
        for policy in POLICIES
    }
    return of_policy(TrainingPolicy("arm", companion=modes, queue_order=order))


def _carrier(rule: Callable[[Mapping[str, LiveJob]], Rule], *, saves: bool = True) -> Arm:
    return lambda world, luck: Cluster(luck, world=world, scheduler=Carrier(rule, saves=saves))


_ALL = [policy.name for policy in POLICIES]
ARMS: dict[str, Arm] = {
    PLAIN: lambda world, luck: Cluster(luck, world=world.rigid(), scheduler=Plain(luck)),
    GANG: _companion(),
    KFEXT: of_policy(None),
    "kfext-shortest": _companion(*_ALL, order=QueueOrder.SHORTEST),
    "gang-shortest": _companion(order=QueueOrder.SHORTEST),
    **{f"only-{name}": _companion(name) for name in _ALL},
    **{f"without-{name}": _companion(*(set(_ALL) - {name})) for name in _ALL},
    "dragon": _carrier(lambda _jobs: Dragon(began=0.0), saves=False),
    "equal-share": _carrier(EqualShare),
    "srpt": _carrier(Shortest),
}
"""The arms by name. `plain`: Kubernetes alone. `gang`: kfext without its companion."""
