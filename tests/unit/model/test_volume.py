"""The fields read from claims, volumes and storage classes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.constraints import Requirement, Term
from kfext.model.volume import (
    StorageClass,
    Volume,
    VolumeClaim,
    parse_storage_class,
    parse_volume,
    parse_volume_claim,
)
from tests.unit.objects import Raw, json_values

METADATA = {"namespace": "team", "name": "data"}
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}

CLAIMS: dict[str, tuple[Raw, VolumeClaim]] = {
    "a claim that is bound": (
        {"metadata": {**METADATA, "annotations": BOUND}, "spec": {"volumeName": "disk"}},
        VolumeClaim("team", "data", volume="disk", bound=True),
    ),
    "a claim that names its volume and is not bound to it yet": (
        {"metadata": METADATA, "spec": {"volumeName": "disk"}},
        VolumeClaim("team", "data", volume="disk"),
    ),
    "a claim of a storage class": (
        {"metadata": METADATA, "spec": {"storageClassName": "fast"}},
        VolumeClaim("team", "data", storage_class="fast"),
    ),
    "a claim with its class in the old annotation": (
        {
            "metadata": {
                **METADATA,
                "annotations": {"volume.beta.kubernetes.io/storage-class": "old"},
            },
            "spec": {},
        },
        VolumeClaim("team", "data", storage_class="old"),
    ),
    "a claim for one pod at a time": (
        {"metadata": METADATA, "spec": {"accessModes": ["ReadWriteOncePod"]}},
        VolumeClaim("team", "data", one_pod=True),
    ),
}


@pytest.mark.parametrize(("raw", "want"), CLAIMS.values(), ids=CLAIMS)
def test_a_claim_is_read(raw: Raw, want: VolumeClaim) -> None:
    assert parse_volume_claim(raw) == want


VOLUMES: dict[str, tuple[Raw, Volume]] = {
    "a volume that every node can use": (
        {"metadata": {"name": "disk"}, "spec": {"claimRef": {"namespace": "team"}}},
        Volume("disk", "team"),
    ),
    "a volume that some nodes can use": (
        {
            "metadata": {"name": "disk"},
            "spec": {
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [ZONE]}]}}
            },
        },
        Volume("disk", terms=(Term((Requirement("zone", "In", ("a",)),)),)),
    ),
    "a volume with the label of a zone": (
        {"metadata": {"name": "disk", "labels": {"topology.kubernetes.io/zone": "a"}}},
        Volume("disk", zoned=True),
    ),
}


@pytest.mark.parametrize(("raw", "want"), VOLUMES.values(), ids=VOLUMES)
def test_a_volume_is_read(raw: Raw, want: Volume) -> None:
    assert parse_volume(raw) == want


@pytest.mark.parametrize(
    ("mode", "delayed"), [("WaitForFirstConsumer", True), ("Immediate", False), (None, False)]
)
def test_a_storage_class_is_read(mode: str | None, *, delayed: bool) -> None:
    raw = {"metadata": {"name": "fast"}, "volumeBindingMode": mode}
    assert parse_storage_class(raw) == StorageClass("fast", delayed=delayed)


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "volumeBindingMode"]), json_values))
def test_any_object_can_be_read(raw: dict[str, Any]) -> None:
    for parse in (parse_volume_claim, parse_volume, parse_storage_class):
        hash(parse(raw))
