"""The fields of pods and nodes that the parsers in `kfext.model` read, as structs of the wire."""

from typing import Any

import msgspec


class _Slim(msgspec.Struct, rename="camel", omit_defaults=True):
    """Base of the structs: unknown fields are skipped, and absent fields stay absent."""


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


_Text = msgspec.Raw | msgspec.UnsetType
"""A value that is kept as raw JSON, for the cache of demands."""


class _Container(_Slim):
    name: _Text = msgspec.UNSET
    resources: _Text = msgspec.UNSET
    resize_policy: _Text = msgspec.UNSET
    ports: _Text = msgspec.UNSET
    restart_policy: _Text = msgspec.UNSET


class _Volume(_Slim):
    """The types of volumes that kube-scheduler judges, claims among them.

    Not the name: that of a token's volume differs from pod to pod, so equal pods would not share.
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


class WireCondition(_Slim):
    """A condition of a pod."""

    type: Any = None
    reason: Any = None
    message: Any = None


class _ContainerStatus(_Slim):
    name: _Text = msgspec.UNSET
    resources: _Text = msgspec.UNSET
    allocated_resources: _Text = msgspec.UNSET


class WirePodStatus(_Slim):
    """The status of a pod."""

    phase: Any = None
    conditions: list[WireCondition] | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None


class WirePod(_Slim):
    """A pod."""

    metadata: _Metadata | None = None
    spec: _PodSpec | None = None
    status: WirePodStatus | None = None


class _NodeSpec(_Slim):
    taints: Any = None
    unschedulable: Any = None


class _NodeStatus(_Slim):
    allocatable: Any = None


class WireNode(_Slim):
    """A node."""

    metadata: _Metadata | None = None
    spec: _NodeSpec | None = None
    status: _NodeStatus | None = None
