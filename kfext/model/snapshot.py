"""The cluster at one moment, as far as placement needs it: what a decision can rest on."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kfext.model.job import TrainingJob
from kfext.model.namespace import Namespace
from kfext.model.network_policy import NetworkPolicy
from kfext.model.node import Node
from kfext.model.pod import Pod
from kfext.model.policy import TrainingPolicy
from kfext.model.priority import PriorityClass
from kfext.model.quota import Quota


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that decides about places, over all namespaces.

    `classes` and `namespaces` are by name, `limit_ranges` the namespaces that have a LimitRange.
    """

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    jobs: tuple[TrainingJob, ...] = ()
    policies: tuple[TrainingPolicy, ...] = ()
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    quotas: tuple[Quota, ...] = ()
    limit_ranges: frozenset[str] = frozenset()
    network_policies: tuple[NetworkPolicy, ...] = ()
    autoscaler: bool = False
