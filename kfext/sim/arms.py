"""The arms of a comparison: the schedulers and policies that a simulated cluster can have."""

import math
from collections.abc import Callable
from functools import partial
from random import Random

from kfext.model.parameters import Queueing, QueueOrder
from kfext.model.policy import Mode, PolicyChoice, TrainingPolicy
from kfext.sim.cluster import Cluster, World
from kfext.state.running.registry import POLICIES

Arm = Callable[[World, int], Cluster]
"""Returns a cluster at second 0; the number seeds its luck, such as which writes are late."""

GANG, KFEXT, PLAIN = "gang", "kfext", "plain"


def of_policy(policy: TrainingPolicy | None) -> Arm:
    """Return the arm of kfext under a policy; None stands for the built-in policy."""
    return partial(Cluster, policy=policy)


def companion(*acting: str, order: QueueOrder = QueueOrder.ARRIVAL) -> Arm:
    """Return the arm of kfext in which only the named policies of the companion act."""
    modes = {
        policy.name: PolicyChoice(Mode.ACT if policy.name in acting else Mode.OFF)
        for policy in POLICIES
    }
    return of_policy(TrainingPolicy("arm", companion=modes, queue=Queueing(order)))


class _Plain:
    """Kubernetes alone: it binds pods one by one, so gangs may stay incomplete and never end."""

    def __init__(self, cluster: Cluster) -> None:
        random = Random(cluster.luck)
        cluster.api.admit = lambda raw: raw
        cluster.kubelets.turn = lambda _live: random.random()

    def next_turn(self) -> float:
        """Return infinity: there is nothing to decide."""
        return math.inf

    def turn(self) -> None:
        """Do nothing."""


_ALL = [policy.name for policy in POLICIES]
ARMS: dict[str, Arm] = {
    PLAIN: lambda world, luck: Cluster(world.rigid(), luck, scheduler=_Plain),
    GANG: companion(),
    KFEXT: of_policy(None),
    "kfext-shortest": companion(*_ALL, order=QueueOrder.SHORTEST),
    **{f"only-{name}": companion(name) for name in _ALL},
    **{f"without-{name}": companion(*(set(_ALL) - {name})) for name in _ALL},
}
"""The arms by name. `plain`: Kubernetes alone. `gang`: kfext without its companion."""
