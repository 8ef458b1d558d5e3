"""Decode pods and nodes straight from the wire into model values that share equal parts.

A pod has 5-20 KB on the wire and a few hundred bytes here. The structs name the fields that the
parsers in `kfext.model` read, so no other field becomes a Python object; only the parsers interpret
the fields. An object that does not fit the structs is decoded whole. The parsers never raise, so
decoding fails only for text that is not a JSON object.
"""

import sys
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from kfext.model.bounds import MAX_RENDERED, beyond
from kfext.model.namespace import parse_namespace
from kfext.model.network_policy import parse_network_policy
from kfext.model.node import Node, parse_node
from kfext.model.pod import Pod, PodDemand, controller_of, parse_demand, parse_pod
from kfext.model.priority import parse_priority_class
from kfext.model.quantity import Resources
from kfext.model.quota import LimitRange, parse_quota
from kfext.model.rendered import Rendered, parse_rendered
from kfext.model.shared_gpu import parse_shared_gpu
from kfext.model.tolerant import mapping, text
from kfext.model.volume import Volume, parse_storage_class, parse_volume, parse_volume_claim

T = TypeVar("T")

_SHARED = 1024
"""The most distinct values that are cached; in a cluster with more, it bounds the memory."""
MAX_BYTES = 4 * 2**20
"""The most bytes of all texts together. The spec of an ordinary pod has a few hundred bytes."""
LONGEST = 64 * 2**10
"""The most bytes of a cached text; pods with a longer text are rare, or an attack."""


class _Slim(msgspec.Struct, rename="camel", omit_defaults=True):
    """Base of the structs: unknown fields are skipped, and absent fields stay absent."""


class _Owned(_Slim):
    name: Any = None
    namespace: Any = None
    uid: Any = None
    annotations: Any = None
    owner_references: Any = None


class _Metadata(_Owned):
    resource_version: Any = None
    labels: Any = None
    creation_timestamp: Any = None
    deletion_timestamp: Any = None


_Text = msgspec.Raw | msgspec.UnsetType
"""A value as raw JSON, for the cache of demands."""


class _Container(_Slim):
    name: _Text = msgspec.UNSET
    resources: _Text = msgspec.UNSET
    resize_policy: _Text = msgspec.UNSET
    ports: _Text = msgspec.UNSET
    restart_policy: _Text = msgspec.UNSET


class _Volume(_Slim):
    """The types of volumes that kube-scheduler checks, including claims.

    The name is absent: a token's volume has another name in each pod, so equal pods would differ.
    """

    persistent_volume_claim: _Text = msgspec.UNSET
    ephemeral: _Text = msgspec.UNSET
    aws_elastic_block_store: _Text = msgspec.UNSET
    azure_disk: _Text = msgspec.UNSET
    cinder: _Text = msgspec.UNSET
    gce_persistent_disk: _Text = msgspec.UNSET
    iscsi: _Text = msgspec.UNSET
    portworx_volume: _Text = msgspec.UNSET
    rbd: _Text = msgspec.UNSET
    vsphere_volume: _Text = msgspec.UNSET


class _PodSpec(_Slim):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    volumes: list[_Volume] | None = None
    node_name: Any = None
    node_selector: _Text = msgspec.UNSET
    affinity: _Text = msgspec.UNSET
    tolerations: _Text = msgspec.UNSET
    scheduling_gates: _Text = msgspec.UNSET
    host_network: _Text = msgspec.UNSET
    priority: _Text = msgspec.UNSET
    scheduler_name: _Text = msgspec.UNSET
    overhead: _Text = msgspec.UNSET
    resources: _Text = msgspec.UNSET
    topology_spread_constraints: _Text = msgspec.UNSET
    resource_claims: _Text = msgspec.UNSET
    workload_ref: _Text = msgspec.UNSET
    scheduling_group: _Text = msgspec.UNSET


class _Condition(_Slim):
    type: Any = None
    reason: Any = None
    message: Any = None


class _ContainerStatus(_Slim):
    name: _Text = msgspec.UNSET
    resources: _Text = msgspec.UNSET
    allocated_resources: _Text = msgspec.UNSET


class _PodStatus(_Slim):
    phase: Any = None
    conditions: list[_Condition] | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None


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


class _Rendered(_Slim):
    metadata: _Owned | None = None
    spec: msgspec.Raw = msgspec.Raw(b"null")


class Shared(Generic[T]):
    """A cache of decoded values by their JSON texts; the oldest values are evicted first.

    It is bounded by the bytes of the texts. A bound on their number would not bound the memory: a
    text can have 1.5 MiB, and the value can be larger still.
    """

    def __init__(self, *, most: int = MAX_BYTES, longest: int = LONGEST) -> None:
        self.bytes = 0
        self._most = most
        self._longest = longest
        self._known: dict[bytes, T] = {}

    def get_or_decode(self, text: bytes, decode: Callable[[bytes], T]) -> T:
        """Return the value that `decode` returns for a text; equal texts share it."""
        cached = self._known.get(text)
        if cached is not None:
            return cached
        value = decode(text)
        if len(text) <= self._longest:
            self._known[text] = value
            self.bytes += len(text)
            while self.bytes > self._most:
                oldest = next(iter(self._known))
                del self._known[oldest]
                self.bytes -= len(oldest)
        return value


_slim_pod = msgspec.json.Decoder(_Pod)
_slim_node = msgspec.json.Decoder(_Node)
_slim_rendered = msgspec.json.Decoder(_Rendered)


def decode_pod(raw: bytes) -> Pod:
    """Return a pod. Raises msgspec.DecodeError or TypeError for all but JSON objects."""
    try:
        pod = _slim_pod.decode(raw)
    except msgspec.ValidationError:  # the fields have other types
        return parse_pod(_decode_whole(raw))
    if pod.spec is None:
        return parse_pod(_decode_whole(raw))
    node_name = pod.spec.node_name
    if pod.spec.scheduling_gates is msgspec.UNSET:  # only a gated pod retains its constraints
        pod.spec.node_name = None
    status = pod.status or _PodStatus()
    allocated = _encode_allocated(status)
    fields = {
        "metadata": msgspec.to_builtins(pod.metadata),
        "spec": {"nodeName": node_name},
        "status": {"phase": status.phase, "conditions": msgspec.to_builtins(status.conditions)},
    }
    kind, _ = controller_of(fields["metadata"] or {})
    trainer = msgspec.json.encode(kind.container if kind else "")
    key = b"[" + b",".join((msgspec.json.encode(pod.spec), allocated, trainer)) + b"]"
    return parse_pod(fields, demand=_demands.get_or_decode(key, _decode_demand))


def _encode_allocated(status: _PodStatus) -> bytes:
    """Return the part of a status with the allocated resources of a pod, as raw JSON.

    It is equal for most pods of a template.
    """
    containers, inits = status.container_statuses, status.init_container_statuses
    if all(state.resources is msgspec.UNSET for state in (*(containers or ()), *(inits or ()))):
        return b"{}"
    resizing = [
        _Condition(type=condition.type, reason=condition.reason)
        for condition in status.conditions or ()
        if condition.type == "PodResizePending"
    ]
    return msgspec.json.encode(
        _PodStatus(
            conditions=resizing, container_statuses=containers, init_container_statuses=inits
        )
    )


def _decode_demand(key: bytes) -> PodDemand:
    """Return the demand of a pod; `key`: its spec, status and training container, as JSON."""
    spec, status, trainer = msgspec.json.decode(key)
    demand = parse_demand(spec, status, trainer=trainer)
    return replace(
        demand, requests=_share_resources(demand.requests), constraints=_share(demand.constraints)
    )


_demands: Shared[PodDemand] = Shared()
"""The demands of the pods that were decoded last; pods of one template share their demand."""


def read_whole(parse: Callable[[Mapping[str, Any]], T]) -> Callable[[bytes], T]:
    """Return a decoder for small or rare objects, which are read whole.

    The decoder raises msgspec.DecodeError.
    """
    return lambda raw: parse(mapping(msgspec.json.decode(raw)))


decode_namespace = read_whole(parse_namespace)
decode_priority_class = read_whole(parse_priority_class)
decode_quota = read_whole(parse_quota)
decode_network_policy = read_whole(parse_network_policy)
decode_shared_gpu = read_whole(parse_shared_gpu)
decode_volume_claim = read_whole(parse_volume_claim)
decode_storage_class = read_whole(parse_storage_class)


def decode_rendered(raw: bytes) -> Rendered | None:
    """Return an object that was rendered from a job, or None for an object of no job.

    A spec with too many values is not decoded. Raises msgspec.DecodeError.
    """
    slim = _slim_rendered.decode(raw)
    values = bytes(slim.spec).count(b",")
    spec = None if values > MAX_RENDERED else msgspec.json.decode(slim.spec)
    rendered = parse_rendered({"metadata": msgspec.to_builtins(slim.metadata), "spec": spec})
    if rendered is None or values <= MAX_RENDERED:
        return rendered
    excess = beyond("values", MAX_RENDERED, values)
    return replace(rendered, templates=replace(rendered.templates, beyond=excess))


def decode_limit_range(raw: bytes) -> LimitRange:
    """Return a LimitRange by its namespace and version. Raises msgspec.DecodeError."""
    metadata = mapping(mapping(msgspec.json.decode(raw)).get("metadata"))
    return LimitRange(text(metadata.get("namespace")), text(metadata.get("resourceVersion")))


def decode_volume(raw: bytes) -> Volume:
    """Return a volume; equal volumes share their terms. Raises msgspec.DecodeError."""
    volume = parse_volume(mapping(msgspec.json.decode(raw)))
    return replace(volume, terms=_share(volume.terms))


def decode_node(raw: bytes) -> Node:
    """Return a node. Raises msgspec.DecodeError or TypeError for all but JSON objects."""
    try:
        fields = msgspec.to_builtins(_slim_node.decode(raw))
    except msgspec.ValidationError:  # JSON that does not fit the structs
        fields = _decode_whole(raw)
    node = parse_node(fields)
    return replace(
        node,
        allocatable=_share_resources(node.allocatable),
        labels={sys.intern(key): sys.intern(value) for key, value in node.labels.items()},
        taints=_share(node.taints),
    )


def _decode_whole(raw: bytes) -> dict[str, Any]:
    fields = msgspec.json.decode(raw)
    if not isinstance(fields, dict):
        raise TypeError(f"expected a JSON object, got {type(fields).__name__}")
    return fields


def _share_resources(resources: Resources) -> Resources:
    return _cached_resources(tuple(resources.items()))


@lru_cache(maxsize=_SHARED)
def _cached_resources(items: tuple[tuple[str, int], ...]) -> Resources:
    return {sys.intern(name): number for name, number in items}


@lru_cache(maxsize=3 * _SHARED)
def _share(value: Hashable) -> Any:
    """Return the first of all equal constraints, terms or taints."""
    return value
