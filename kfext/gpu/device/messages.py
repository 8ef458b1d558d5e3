"""The messages of kubelet's two gRPC services for plugins, as tables instead of generated code.

From `deviceplugin/v1beta1/api.proto` and `podresources/v1/api.proto` of k8s.io/kubelet 0.35,
without the fields that kfext neither reads nor writes: protobuf skips unknown fields.
"""

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Fields = tuple[tuple[str, int, str], ...]
"""Name, number and type of each field: a type of protobuf or a message, `[]` before repeated ones,
`{}` for a map of strings."""
_SCALARS = {
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
}

DEVICE_PLUGIN: Mapping[str, Fields] = {
    "Empty": (),
    "DevicePluginOptions": (
        ("pre_start_required", 1, "bool"),
        ("get_preferred_allocation_available", 2, "bool"),
    ),
    "RegisterRequest": (
        ("version", 1, "string"),
        ("endpoint", 2, "string"),
        ("resource_name", 3, "string"),
        ("options", 4, "DevicePluginOptions"),
    ),
    "Device": (("ID", 1, "string"), ("health", 2, "string")),
    "ListAndWatchResponse": (("devices", 1, "[]Device"),),
    "ContainerAllocateRequest": (("devices_ids", 1, "[]string"),),
    "AllocateRequest": (("container_requests", 1, "[]ContainerAllocateRequest"),),
    "Mount": (
        ("container_path", 1, "string"),
        ("host_path", 2, "string"),
        ("read_only", 3, "bool"),
    ),
    "CDIDevice": (("name", 1, "string"),),
    "ContainerAllocateResponse": (
        ("envs", 1, "{}"),
        ("mounts", 2, "[]Mount"),
        ("cdi_devices", 5, "[]CDIDevice"),
    ),
    "AllocateResponse": (("container_responses", 1, "[]ContainerAllocateResponse"),),
}
POD_RESOURCES: Mapping[str, Fields] = {
    "ListPodResourcesRequest": (),
    "ContainerDevices": (("resource_name", 1, "string"), ("device_ids", 2, "[]string")),
    "ContainerResources": (("name", 1, "string"), ("devices", 2, "[]ContainerDevices")),
    "PodResources": (
        ("name", 1, "string"),
        ("namespace", 2, "string"),
        ("containers", 3, "[]ContainerResources"),
    ),
    "ListPodResourcesResponse": (("pod_resources", 1, "[]PodResources"),),
    "AllocatableResourcesRequest": (),
    "AllocatableResourcesResponse": (("devices", 1, "[]ContainerDevices"),),
}


def messages(package: str, tables: Mapping[str, Fields]) -> dict[str, Any]:
    """Return the class of each message of a package, by name."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"kfext/{package}.proto", package=package, syntax="proto3"
    )
    for name, fields in tables.items():
        message = file.message_type.add(name=name)
        for field, number, type_ in fields:
            _add(message, package, field=field, number=number, type_=type_)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in tables
    }


def _add(message: Any, package: str, *, field: str, number: int, type_: str) -> None:
    kinds = descriptor_pb2.FieldDescriptorProto
    added = message.field.add(name=field, number=number, label=kinds.LABEL_OPTIONAL)
    if type_.startswith(("[]", "{}")):
        added.label = kinds.LABEL_REPEATED
    plain = type_.removeprefix("[]")
    if plain in _SCALARS:
        added.type = _SCALARS[plain]
        return
    added.type = kinds.TYPE_MESSAGE
    if type_ == "{}":
        entry = f"{field.capitalize()}Entry"
        pairs = message.nested_type.add(name=entry)
        pairs.options.map_entry = True
        for key, place in (("key", 1), ("value", 2)):
            pairs.field.add(
                name=key, number=place, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL
            )
        plain = f"{message.name}.{entry}"
    added.type_name = f".{package}.{plain}"
