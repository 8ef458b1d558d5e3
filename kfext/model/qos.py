"""The QoS classes of Kubernetes: how a kubelet treats pods when resources are short."""

from enum import StrEnum


class QoS(StrEnum):
    """The QoS class of a pod; a resize never changes it."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"
