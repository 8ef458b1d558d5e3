"""The patch of a pod that asks its job for a checkpoint."""

from copy import deepcopy
from typing import Any

import jsonpatch
import pytest

from kfext import names
from kfext.core.patches.checkpoint import request_patch
from kfext.model.pod import parse_pod
from tests.builders import Raw, job, raw_pod

OF = job().worker(cpu="1").build()
ASKED = names.CHECKPOINT_REQUEST
BEFORE: dict[str, tuple[Any, dict[str, str]]] = {
    "no annotations": (None, {ASKED: "3"}),
    "empty ones, which the API server drops": ({}, {ASKED: "3"}),
    "others": ({"a": "b"}, {"a": "b", ASKED: "3"}),
    "an earlier request": ({ASKED: "2"}, {ASKED: "3"}),
}


def running(annotations: Any) -> Raw:
    raw = raw_pod(OF, "worker", 0, bound="a", phase="Running")
    if annotations is not None:
        raw["metadata"]["annotations"] = annotations
    return raw


@pytest.mark.parametrize(("annotations", "want"), BEFORE.values(), ids=BEFORE)
def test_the_number_is_written_and_nothing_else(annotations: Any, want: dict[str, str]) -> None:
    raw = running(annotations)
    patched = jsonpatch.apply_patch(deepcopy(raw), request_patch(parse_pod(raw), 3))
    assert patched == running(want)
    assert parse_pod(patched).checkpoint_request == 3


@pytest.mark.parametrize("annotations", [None, {"a": "b"}], ids=["without", "with annotations"])
def test_another_pod_of_the_same_name_is_not_asked(annotations: Any) -> None:
    operations = request_patch(parse_pod(running(annotations)), 3)
    other = running(annotations)
    other["metadata"]["uid"] = "another"
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(other, operations)


def test_annotations_that_came_meanwhile_are_not_lost() -> None:
    operations = request_patch(parse_pod(running(None)), 3)
    now = running({"a": "b"})
    now["metadata"]["resourceVersion"] = "2"
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(now, operations)
