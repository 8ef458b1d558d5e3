"""Files of any origin: their documents, or one message with the value and what is allowed."""

import io
import json
from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kfext import names
from kfext.cli.documents import is_job, load
from kfext.cli.plan import Forecast
from kfext.cli.render import Review, render, render_reviews
from kfext.errors import UserError
from kfext.model.namespace import Namespace
from kfext.model.snapshot import Snapshot
from tests.builders import node
from tests.unit.objects import job, json_values


def read(written: str | bytes) -> list[Any]:
    return load(io.BytesIO(written.encode() if isinstance(written, str) else written))


def bomb(line: str, *, levels: int = 9) -> str:
    """Return nested aliases: each level is nine times as large as the level before."""
    parts = [f"a0: &a0 {line}"]
    for level in range(1, levels + 1):
        parts.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]")
    return "\n".join(parts)


def merge_bomb(levels: int = 9) -> str:
    parts = ["a0: &a0 {k: v}"]
    for level in range(1, levels + 1):
        parts.append(f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 9)}]}}")
    return "\n".join(parts)


MALFORMED: dict[str, tuple[str | bytes, str]] = {
    "a number of more digits than Python converts": (
        f"kind: PyTorchJob\nx: {'9' * 5000}",
        "is no int",
    ),
    "a number beyond 64 bits": (
        f"kind: PyTorchJob\nx: {'9' * 50}",
        f"{'9' * 40}... in line 2 is too large: an integer must be within 64 bits",
    ),
    "a negative number": ("x: -9223372036854775809", "within 64 bits"),
    "a text tagged as a number": ("x: !!int nine", "nine in line 1 is no int"),
    "an empty value tagged as a number": ("x: !!int ''", "in line 1 is no int"),
    "a text tagged as a boolean": ("x: !!bool maybe", "maybe in line 1 is no bool"),
    "a time without such a month": ("x: !!timestamp 2020-99-99", "2020-99-99 in line 1"),
    "a word tagged as a time": ("x: !!timestamp today", "today in line 1 is no timestamp"),
    "a number with base 60 beyond any float": (
        f"x: !!float {'59:' * 300}59.5",
        "in line 1 is no float",
    ),
    "bytes": ("x: !!binary aGk=", "is not YAML"),
    "a type of Python": ("x: !!python/object:os.system {}", "could not determine a constructor"),
    "aliases of aliases": (bomb("lol"), "too large with its aliases written out"),
    "aliases of a long text": (bomb("l" * 100_000, levels=3), "too large with its aliases"),
    "merges of merges": (merge_bomb(), "too large with its aliases written out"),
    "an alias within its anchor": ("a: &a [*a]", "an alias in line 1 is within its own anchor"),
    "a key that is within its anchor": ("&a {*a : 1}", "within its own anchor"),
    "an alias of nothing": ("a: *b", "undefined alias"),
    "a key that is a list": ("? [a]\n: b", "unhashable key"),
    "20,000 nested lists": ("[" * 20_000 + "]" * 20_000, "is not YAML"),
    "2,000 nested lists": ("[" * 2_000 + "]" * 2_000, "is not YAML"),
    "half of a surrogate pair": ('{"x": "\\ud800"}', "is not YAML"),
    "bytes that are no text": (b"\x80\x81", "is not YAML"),
    "nothing": ("", "contains no document"),
    "a List of no list": ("kind: List\nitems: {}", "items of a List is {}: it must be a list"),
}


@pytest.mark.parametrize(("written", "message"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_file_is_one_message(written: str | bytes, message: str) -> None:
    with pytest.raises(UserError) as refused:
        read(written)
    assert message in str(refused.value)
    assert len(str(refused.value)) < 400


def test_aliases_and_large_files_are_read() -> None:
    few = "a: &a [1, 2]\nb: *a\nc: {<<: &d {x: 1}, y: 2}\ne: {<<: *d}"
    assert read(few) == [{"a": [1, 2], "b": [1, 2], "c": {"x": 1, "y": 2}, "e": {"x": 1}}]
    long = "x" * 5_000_000
    assert read(f"a: {long}") == [{"a": long}]


def test_values_are_read_as_by_kubectl() -> None:
    assert read("[12:30:00, 8080:22, 1:30.5, 1:2, 12, 1.5, 0x1f, 2020-01-01]") == [
        ["12:30:00", "8080:22", "1:30.5", "1:2", 12, 1.5, 31, "2020-01-01"]
    ]
    assert read(json.dumps({"name": "\U0001f600"})) == [{"name": "\U0001f600"}]


FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "kind": ({"kind": ["x"]}, 'kind is ["x"]: it must be a string'),
    "metadata": ({"kind": "TFJob", "metadata": "x"}, 'metadata is "x": it must be an object'),
    "name": ({"kind": "TFJob", "metadata": {"name": 5}}, "metadata.name is 5: it must be a string"),
    "namespace": (
        {"kind": "TFJob", "metadata": {"name": "a", "namespace": ["b"]}},
        'TFJob/a: metadata.namespace is ["b"]',
    ),
}


@pytest.mark.parametrize(("document", "message"), FIELDS.values(), ids=FIELDS)
def test_a_field_that_identifies_a_job_must_be_of_its_type(
    document: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as refused:
        is_job(document)
    assert message in str(refused.value)


@given(written=st.text(alphabet=st.sampled_from("ab01:-[]{},&*!<>? \n'\"|#%.x"), max_size=60))
def test_any_file_is_read_or_refused(written: str) -> None:
    with suppress(UserError):
        read(written)


def write_all(reviews: list[Review], notes: list[str]) -> None:
    """Write the whole output of reviews."""
    assert all(isinstance(note, str) for note in notes)
    assert render_reviews(reviews, output="json")


@given(json_values, st.sampled_from(["kind", "metadata", "spec", "apiVersion", "status"]))
def test_a_job_with_any_field_is_rendered_or_refused(value: Any, field: str) -> None:
    with suppress(UserError):
        documents = read(yaml.safe_dump({**job(), field: value}))
        write_all(*render(documents=documents, policies=[], namespace=None))


@given(json_values)
def test_a_job_with_any_policy_or_namespace_is_rendered_or_refused(value: Any) -> None:
    policy = {"kind": "TrainingPolicy", "metadata": value, "spec": value}
    namespace = {"kind": "Namespace", "metadata": {"labels": value, "annotations": value}}
    write_all(*render(documents=[job()], policies=[policy], namespace=namespace))


HOME = Snapshot(
    nodes=(node("a", cpu="8"),), namespaces={"team": Namespace("team", {names.MANAGED: "true"})}
)


@given(json_values, st.sampled_from(["kind", "metadata", "spec", "status"]))
def test_a_job_with_any_field_is_forecast_or_refused(value: Any, field: str) -> None:
    with suppress(UserError):
        (document,) = read(yaml.safe_dump({**job(), field: value}))
        if is_job(document):
            Forecast(HOME, now=1000.0).submit(document, home="team")
