"""What a job's settings allow of its place: all that the solver knows of them, as one value."""

from collections.abc import Iterable
from dataclasses import dataclass

from kfext.core.settings.resolve import Settings
from kfext.core.settings.values import Colocation


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits within which a gang is placed, or a reservation made for it.

    Equal limits give equal answers, so that they are a key of what is remembered of an answer. No
    field has a default: a limit that is not passed on is an error of types, not a silent one.

    `one_node`: only a single node will do. `excluded`: names of nodes that are out of the question.
    `topology_keys`: labels of nodes, the widest domain first, such as a zone and then a rack.
    `assumed`: what a pod that requests none of a resource counts as in scores, never in what fits.
    """

    one_node: bool
    excluded: tuple[str, ...]
    topology_keys: tuple[str, ...]
    assumed: tuple[tuple[str, int], ...]


def limits_of(settings: Settings, *, excluded: Iterable[str]) -> Limits:
    """Return the limits of a job with these settings; `excluded` are nodes that failed it."""
    placement = settings.placement
    return Limits(
        one_node=settings.colocation is Colocation.REQUIRED,
        excluded=tuple(excluded),
        topology_keys=placement.topology_keys,
        assumed=tuple(sorted(placement.assumed_requests.items())),
    )
