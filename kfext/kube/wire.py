"""Decode pods and nodes straight from the wire into model values that share equal parts.

A pod is 5-20 KB on the wire and some hundred bytes here. The structs name the fields that the
parsers in `kfext.model` read, so no other field ever becomes a Python object; only the parsers
interpret the fields. An object that does not fit the structs is decoded whole. The parsers never
raise, so decoding fails only for text that is not a JSON object.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from kfext.kube.shared import Shared
from kfext.kube.wire_structs import WireCondition, WireNode, WirePod, WirePodStatus
from kfext.model.constraints import Constraints, Term
from kfext.model.namespace import Namespace, parse_namespace
from kfext.model.network_policy import NetworkPolicy, parse_network_policy
from kfext.model.node import Node, Taint, parse_node
from kfext.model.pod import Pod, PodDemand, parse_demand, parse_pod
from kfext.model.priority import PriorityClass, parse_priority_class
from kfext.model.quantity import Resources
from kfext.model.quota import LimitRange, Quota, parse_quota
from kfext.model.shared_gpu import SharedGpu, parse_shared_gpu
from kfext.model.tolerant import mapping, text
from kfext.model.volume import (
    StorageClass,
    Volume,
    VolumeClaim,
    parse_storage_class,
    parse_volume,
    parse_volume_claim,
)

T = TypeVar("T")

# How many distinct values are cached for sharing. A cluster has few kinds of pods; the limit bounds
# the memory in one that has many, each of them as large as model.bounds allows.
_SHARED = 1024


_slim_pod = msgspec.json.Decoder(WirePod)
_slim_node = msgspec.json.Decoder(WireNode)


def decode_pod(raw: bytes) -> Pod:
    """Return a pod. Raises msgspec.DecodeError or TypeError for what is not a JSON object."""
    try:
        pod = _slim_pod.decode(raw)
    except msgspec.ValidationError:  # JSON that does not fit the structs
        return parse_pod(_whole(raw))
    if pod.spec is None:
        return parse_pod(_whole(raw))
    node_name = pod.spec.node_name
    if pod.spec.scheduling_gates is msgspec.UNSET:  # only a gated pod keeps its constraints
        pod.spec.node_name = None
    status = pod.status or WirePodStatus()
    allocated = _allocated(status)
    fields = {
        "metadata": msgspec.to_builtins(pod.metadata),
        "spec": {"nodeName": node_name},
        "status": {"phase": status.phase, "conditions": msgspec.to_builtins(status.conditions)},
    }
    key = b"[" + msgspec.json.encode(pod.spec) + b"," + allocated + b"]"
    return parse_pod(fields, demand=_demands.of(key, _asks))


def _allocated(status: WirePodStatus) -> bytes:
    """Return what of a status tells what a pod has been given, as raw JSON.

    Most pods of a template agree in it.
    """
    containers, inits = status.container_statuses, status.init_container_statuses
    if all(one.resources is msgspec.UNSET for one in (*(containers or ()), *(inits or ()))):
        return b"{}"
    resizing = [
        WireCondition(type=one.type, reason=one.reason)
        for one in status.conditions or ()
        if one.type == "PodResizePending"
    ]
    return msgspec.json.encode(
        WirePodStatus(
            conditions=resizing, container_statuses=containers, init_container_statuses=inits
        )
    )


def _asks(spec_and_status: bytes) -> PodDemand:
    """Return what a spec and status, as raw JSON in a list, require."""
    demand = parse_demand(*msgspec.json.decode(spec_and_status))
    return replace(
        demand, requests=_resources(demand.requests), constraints=_constraints(demand.constraints)
    )


_demands: Shared[PodDemand] = Shared()
"""What the specs and statuses seen last require: pods of one template share the result."""


def decode_namespace(raw: bytes) -> Namespace:
    """Return a namespace; there are few, so it is read whole. Raises msgspec.DecodeError."""
    return parse_namespace(mapping(msgspec.json.decode(raw)))


def decode_priority_class(raw: bytes) -> PriorityClass:
    """Return a priority class; there are few, so it is read whole. Raises msgspec.DecodeError."""
    return parse_priority_class(mapping(msgspec.json.decode(raw)))


def decode_limit_range(raw: bytes) -> LimitRange:
    """Return that a namespace has a LimitRange. Raises msgspec.DecodeError."""
    metadata = mapping(mapping(msgspec.json.decode(raw)).get("metadata"))
    return LimitRange(text(metadata.get("namespace")), text(metadata.get("resourceVersion")))


def decode_quota(raw: bytes) -> Quota:
    """Return a resource quota; there are few, so it is read whole. Raises msgspec.DecodeError."""
    return parse_quota(mapping(msgspec.json.decode(raw)))


def decode_network_policy(raw: bytes) -> NetworkPolicy:
    """Return a network policy; there are few, so it is read whole. Raises msgspec.DecodeError."""
    return parse_network_policy(mapping(msgspec.json.decode(raw)))


def decode_shared_gpu(raw: bytes) -> SharedGpu | None:
    """Return a SharedGPU, None for one that no agent has written. Raises msgspec.DecodeError."""
    return parse_shared_gpu(mapping(msgspec.json.decode(raw)))


def decode_volume_claim(raw: bytes) -> VolumeClaim:
    """Return a volume claim; it is small, so it is read whole. Raises msgspec.DecodeError."""
    return parse_volume_claim(mapping(msgspec.json.decode(raw)))


def decode_volume(raw: bytes) -> Volume:
    """Return a volume; it is small, so it is read whole. Raises msgspec.DecodeError."""
    volume = parse_volume(mapping(msgspec.json.decode(raw)))
    return replace(volume, terms=_terms(volume.terms))


def decode_storage_class(raw: bytes) -> StorageClass:
    """Return a storage class; there are few, so it is read whole. Raises msgspec.DecodeError."""
    return parse_storage_class(mapping(msgspec.json.decode(raw)))


def decode_node(raw: bytes) -> Node:
    """Return a node. Raises msgspec.DecodeError or TypeError for what is not a JSON object."""
    node = _decode(raw, _slim_node, parse_node)
    return replace(
        node,
        allocatable=_resources(node.allocatable),
        labels={sys.intern(key): sys.intern(value) for key, value in node.labels.items()},
        taints=_taints(node.taints),
    )


def _decode(
    raw: bytes, slim: msgspec.json.Decoder[Any], parse: Callable[[Mapping[str, Any]], T]
) -> T:
    try:
        fields = msgspec.to_builtins(slim.decode(raw))
    except msgspec.ValidationError:  # JSON that does not fit the structs
        fields = _whole(raw)
    return parse(fields)


def _whole(raw: bytes) -> dict[str, Any]:
    fields = msgspec.json.decode(raw)
    if not isinstance(fields, dict):
        raise TypeError(f"expected a JSON object, got {type(fields).__name__}")
    return fields


def _resources(resources: Resources) -> Resources:
    return _resources_of(tuple(resources.items()))


@lru_cache(maxsize=_SHARED)
def _resources_of(items: tuple[tuple[str, int], ...]) -> Resources:
    return {sys.intern(name): number for name, number in items}


@lru_cache(maxsize=_SHARED)
def _constraints(constraints: Constraints) -> Constraints:
    return constraints


@lru_cache(maxsize=_SHARED)
def _terms(terms: tuple[Term, ...] | None) -> tuple[Term, ...] | None:
    return terms


@lru_cache(maxsize=_SHARED)
def _taints(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    return taints
