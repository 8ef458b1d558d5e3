"""Decode pods and nodes straight from the wire into model values, and share what is equal.

A pod is 5-20 KB on the wire and some hundred bytes here. The structs name the fields that the
parsers in `kfext.model` read, so that nothing else is ever materialised; the parsers stay the only
ones who interpret them. An object that does not fit the structs is read whole: the parsers are
total, so only text that is no JSON fails.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from kfext.model.constraints import Constraints
from kfext.model.namespace import Namespace, parse_namespace
from kfext.model.node import Node, Taint, parse_node
from kfext.model.pod import Pod, ReplicaKey, parse_pod
from kfext.model.quantity import Resources
from kfext.model.tolerant import mapping

T = TypeVar("T")

# How many distinct values are remembered for sharing. A cluster has few kinds of pods; the bound
# keeps one with many from growing without end.
_SHARED = 8192


class _Slim(msgspec.Struct, rename="camel", omit_defaults=True):
    """Base of the structs: unknown fields are skipped, absent ones stay absent."""


class _Metadata(_Slim):
    name: Any = None
    namespace: Any = None
    uid: Any = None
    resource_version: Any = None
    labels: Any = None
    annotations: Any = None
    owner_references: Any = None
    creation_timestamp: Any = None
    deletion_timestamp: Any = None


class _Container(_Slim):
    resources: Any = None
    ports: Any = None
    restart_policy: Any = None


class _PodSpec(_Slim):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    node_name: Any = None
    node_selector: Any = None
    affinity: Any = None
    tolerations: Any = None
    scheduling_gates: Any = None
    host_network: Any = None
    overhead: Any = None
    resources: Any = None


class _Condition(_Slim):
    type: Any = None
    reason: Any = None
    message: Any = None


class _PodStatus(_Slim):
    phase: Any = None
    conditions: list[_Condition] | None = None


class _Pod(_Slim):
    metadata: _Metadata | None = None
    spec: _PodSpec | None = None
    status: _PodStatus | None = None


class _NodeSpec(_Slim):
    taints: Any = None
    unschedulable: Any = None


class _NodeStatus(_Slim):
    allocatable: Any = None


class _Node(_Slim):
    metadata: _Metadata | None = None
    spec: _NodeSpec | None = None
    status: _NodeStatus | None = None


_slim_pod = msgspec.json.Decoder(_Pod)
_slim_node = msgspec.json.Decoder(_Node)


def decode_pod(raw: bytes) -> Pod:
    """Return the pod; raises msgspec.DecodeError or TypeError for what is no JSON object."""
    pod = _decode(raw, _slim_pod, parse_pod)
    return replace(
        pod,
        namespace=sys.intern(pod.namespace),
        owner_uid=sys.intern(pod.owner_uid),
        node_name=sys.intern(pod.node_name),
        pinned_to=None if pod.pinned_to is None else sys.intern(pod.pinned_to),
        phase=sys.intern(pod.phase),
        gates=_tuple(pod.gates),
        replica=None if pod.replica is None else _replica(pod.replica),
        requests=_resources(pod.requests),
        constraints=None if pod.constraints is None else _constraints(pod.constraints),
        host_ports=_tuple(pod.host_ports),
        unschedulable=sys.intern(pod.unschedulable),
        plan_generation=sys.intern(pod.plan_generation),
    )


def decode_namespace(raw: bytes) -> Namespace:
    """Return a namespace; there are few, so it is read whole. Raises msgspec.DecodeError."""
    return parse_namespace(mapping(msgspec.json.decode(raw)))


def decode_node(raw: bytes) -> Node:
    """Return the node; raises msgspec.DecodeError or TypeError for what is no JSON object."""
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
    except msgspec.ValidationError:  # JSON, but not shaped as the API says
        fields = msgspec.json.decode(raw)
    if not isinstance(fields, dict):
        raise TypeError(f"expected a JSON object, got {type(fields).__name__}")
    return parse(fields)


def _resources(resources: Resources) -> Resources:
    return _resources_of(tuple(resources.items()))


@lru_cache(maxsize=_SHARED)
def _resources_of(items: tuple[tuple[str, int], ...]) -> Resources:
    return {sys.intern(name): number for name, number in items}


@lru_cache(maxsize=_SHARED)
def _tuple(values: tuple[T, ...]) -> tuple[T, ...]:
    return values


@lru_cache(maxsize=_SHARED)
def _replica(key: ReplicaKey) -> ReplicaKey:
    return key


@lru_cache(maxsize=_SHARED)
def _constraints(constraints: Constraints) -> Constraints:
    return constraints


@lru_cache(maxsize=_SHARED)
def _taints(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    return taints
