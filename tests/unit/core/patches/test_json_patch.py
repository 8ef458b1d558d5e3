import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.patches.json_patch import Unpatchable, operations, pointer
from tests.unit.objects import json_values

members = st.sampled_from(["a", "b", "x/y", "m~n", ""])
documents = st.dictionaries(members, json_values | st.dictionaries(members, json_values))
changes = st.recursive(
    st.none() | st.booleans() | st.integers(0, 1) | st.sampled_from(["s", "t"]),
    lambda inner: st.dictionaries(members, inner, max_size=3),
    max_leaves=6,
)


def merged(document: Any, wanted: Any) -> Any:
    """RFC 7386, as written there, but that an empty object makes nothing."""
    if not isinstance(wanted, dict):
        return wanted
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in wanted.items():
        if value is None:
            result.pop(key, None)
        elif (made := merged(result.get(key), value)) != {} or isinstance(result.get(key), dict):
            result[key] = made
    return result


@given(document=documents, wanted=st.dictionaries(members, changes))
def test_a_patch_brings_about_what_is_wanted_and_no_more(
    document: dict[str, Any], wanted: dict[str, Any]
) -> None:
    before = copy.deepcopy(document)
    try:
        ops = operations(document, wanted)
    except Unpatchable:
        return
    assert document == before
    after = jsonpatch.apply_patch(document, ops)
    assert after == merged(document, wanted)
    assert operations(after, wanted) == []
    assert len({op["path"] for op in ops}) == len(ops)


POINTERS = {
    "plain": (("metadata", "name"), "/metadata/name"),
    "a slash": (("a", "kfext.dev/held"), "/a/kfext.dev~1held"),
    "a tilde": (("a~b",), "/a~0b"),
    "both, in this order": (("~1",), "/~01"),
    "an empty member": (("",), "/"),
}


@pytest.mark.parametrize(("parts", "want"), POINTERS.values(), ids=POINTERS)
def test_pointers_are_escaped(parts: tuple[str, ...], want: str) -> None:
    assert pointer(*parts) == want


def test_absent_parents_are_made_in_one_operation() -> None:
    assert operations({"a": None}, {"a": {"b": {"c": "d", "e": None}}}) == [
        {"op": "replace", "path": "/a", "value": {"b": {"c": "d"}}}
    ]


def test_true_is_not_one() -> None:
    assert operations({"suspend": 1}, {"suspend": True}) == [
        {"op": "replace", "path": "/suspend", "value": True}
    ]


@pytest.mark.parametrize("parent", [[], "text", 3, False])
def test_a_parent_of_another_type_is_not_overwritten(parent: object) -> None:
    with pytest.raises(Unpatchable, match="/a is no object"):
        operations({"a": parent}, {"a": {"b": "c"}})
