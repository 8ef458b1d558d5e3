"""The parts of volume claims, volumes and storage classes that decide where a pod may run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kfext.model.constraints import Term, parse_terms
from kfext.model.tolerant import mapping, sequence, text

_BOUND = "pv.kubernetes.io/bind-completed"
_CLASS = "volume.beta.kubernetes.io/storage-class"
_ZONES = frozenset(
    {
        *("topology.kubernetes.io/zone", "topology.kubernetes.io/region"),
        *("failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"),
    }
)


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A PersistentVolumeClaim.

    `volume`: the volume that it names; empty if it names none.
    `bound`: whether it is permanently bound to that volume.
    `one_pod`: whether only one pod may use it at a time.
    """

    namespace: str
    name: str
    volume: str = ""
    bound: bool = False
    storage_class: str = ""
    one_pod: bool = False


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolume.

    `namespace`: the namespace of its claim; empty if any claim may bind to it.
    `terms`: its node affinity: at least one term must match. None means that it has none.
    `zoned`: whether its labels name a zone.
    """

    name: str
    namespace: str = ""
    terms: tuple[Term, ...] | None = None
    zoned: bool = False


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A storage class; `delayed`: whether its claims are bound only for a pod with a node."""

    name: str
    delayed: bool = False


def parse_volume_claim(raw: Mapping[str, Any]) -> VolumeClaim:
    """Return a claim from its JSON object. Never raises."""
    metadata, spec = mapping(raw.get("metadata")), mapping(raw.get("spec"))
    annotations = mapping(metadata.get("annotations"))
    volume = text(spec.get("volumeName"))
    return VolumeClaim(
        namespace=text(metadata.get("namespace")),
        name=text(metadata.get("name")),
        volume=volume,
        bound=bool(volume) and _BOUND in annotations,
        storage_class=text(annotations.get(_CLASS)) or text(spec.get("storageClassName")),
        one_pod="ReadWriteOncePod" in sequence(spec.get("accessModes")),
    )


def parse_volume(raw: Mapping[str, Any]) -> Volume:
    """Return a volume from its JSON object. Never raises."""
    metadata, spec = mapping(raw.get("metadata")), mapping(raw.get("spec"))
    return Volume(
        name=text(metadata.get("name")),
        namespace=text(mapping(spec.get("claimRef")).get("namespace")),
        terms=parse_terms(mapping(spec.get("nodeAffinity")).get("required")),
        zoned=not _ZONES.isdisjoint(mapping(metadata.get("labels"))),
    )


def parse_storage_class(raw: Mapping[str, Any]) -> StorageClass:
    """Return a storage class from its JSON object. Never raises."""
    return StorageClass(
        name=text(mapping(raw.get("metadata")).get("name")),
        delayed=raw.get("volumeBindingMode") == "WaitForFirstConsumer",
    )
