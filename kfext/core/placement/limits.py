"""The limits that a job's settings set for its placement: all of them that the solver needs."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Self

from kfext.core.settings.table import Settings
from kfext.core.settings.values import Colocation
from kfext.model.constraints import Constraints
from kfext.model.shared_gpu import Place
from kfext.names import COLOCATION


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits within which a gang is placed, or a reservation made for it.

    Equal limits give equal answers, so they are part of the key of cached answers. No field has a
    default, so that the type checker finds a limit that is not passed on.

    `one_node`: whether all members must go to a single node.
    `excluded`: the names of nodes that may not be used.
    `closed`: the slots of nodes that may not be shared.
    `topology_keys`: labels of nodes, the widest domain first, such as a zone and then a rack.
    `assumed`: the amounts that count in scores, never in fits, for a pod without requests.
    `assumed_burst`: the millicores that a pod without a CPU limit is taken to use if it can; None
        if it does not count how much CPU pods can use.
    """

    one_node: bool
    excluded: tuple[str, ...]
    closed: tuple[Place, ...]
    topology_keys: tuple[str, ...]
    assumed: tuple[tuple[str, int], ...]
    assumed_burst: int | None

    def with_terms(self, pods: Iterable[Constraints]) -> Self:
        """Return the limits of a gang of such pods, which may require to be together themselves."""
        together = any(constraints.together for constraints in pods)
        return replace(self, one_node=True) if together else self

    def allow(self, nodes: Collection[str]) -> bool:
        """Return whether a whole gang may be on these nodes."""
        return not (self.one_node and len(set(nodes)) > 1)


def limits_of(
    settings: Settings, *, excluded: Iterable[str], closed: Iterable[Place] = ()
) -> Limits:
    """Return the limits of a job with these settings.

    `excluded` are nodes that failed it, `closed` slots where it would meet a job from which it is
    kept apart.
    """
    placement = settings.placement
    return Limits(
        one_node=settings.colocation is Colocation.REQUIRED,
        excluded=tuple(excluded),
        closed=tuple(closed),
        topology_keys=placement.topology_keys,
        assumed=tuple(sorted(placement.assumed_requests.items())),
        assumed_burst=None if COLOCATION in settings.stated else placement.assumed_burst,
    )
