"""The documents of YAML and JSON files, read as kubectl does.

A file may come from any author: reading it returns its documents, or raises a `UserError` with the
file, the line, the value and the allowed values.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Any

import orjson
import yaml

from kfext.errors import UserError
from kfext.model.kinds.registered import KINDS
from kfext.model.tolerant import mapping, sequence, text

MAX_EXPANDED = 4 * 2**20
"""The most values and characters of a document, aliases expanded; the API server allows 3 MiB."""
_MAX_ALIASED = 10
"""A larger document is accepted if its aliases expand it by at most this factor."""
_LONGEST_SHOWN = 40
"""The most characters of a value in a message."""
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
_TEXT = "tag:yaml.org,2002:str"
_NUMBERS = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}


class _Loader(yaml.CSafeLoader):
    """Reads YAML as kubectl does, so that a time stays a string; `name` is for messages."""

    name = "-"

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return the value of a node. Raises UserError for a value that JSON cannot have."""
        try:
            value = super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, ArithmeticError) as error:
            type_ = node.tag.removeprefix("tag:yaml.org,2002:")
            raise UserError(f"{self.name}: {_place(node)} is no {type_}: {error}") from error
        if type(value) is int and not _SMALLEST <= value <= _LARGEST:
            raise UserError(
                f"{self.name}: {_place(node)} is too large: an integer must be within 64 bits"
            )
        return value

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        """Return the tag of a value; 12:30:00 is text, not a number in base 60."""
        tag: str = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        return _TEXT if tag in _NUMBERS and ":" in value else tag


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def load(file: IO[Any]) -> list[Any]:
    """Return the documents of a YAML or JSON file, and the items of Lists. Raises UserError."""
    name = getattr(file, "name", "-")
    name = "standard input" if name in {"-", "<stdin>"} else name
    try:
        documents = [item for item in _documents(file, name) if item is not None]
        # Keys in YAML need not be strings; keys from the API always are.
        documents = orjson.loads(orjson.dumps(documents, option=orjson.OPT_NON_STR_KEYS))
    except yaml.MarkedYAMLError as error:
        where = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{name} is not YAML: {error.problem}{where}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, TypeError) as error:
        raise UserError(f"{name} is not YAML: {error}") from error
    if not documents:
        raise UserError(f"{name} contains no document")
    return [item for document in documents for item in _items(document, name)]


def title_of(document: Any) -> str:
    """Return the kind and the name of a document, for a message."""
    fields = mapping(document)
    kind = text(fields.get("kind")) or "a document without kind"
    name = text(mapping(fields.get("metadata")).get("name"))
    return f"{kind}/{name}" if name else kind


def is_job(document: Any) -> bool:
    """Return whether a document is a training job. Raises UserError for a malformed job.

    It checks the fields that identify a job; the API server checks all others.
    """
    fields = mapping(document)
    kind = fields.get("kind")
    if not isinstance(kind, str | None):
        raise UserError(f"kind is {_json(kind)}: it must be a string, e.g. kind: {min(KINDS)}")
    if kind not in KINDS:
        return False
    metadata = fields.get("metadata")
    if not isinstance(metadata, dict | None):
        raise UserError(
            f"{kind}: metadata is {_json(metadata)}: it must be an object, e.g. metadata: "
            "{name: train}"
        )
    for field in ("name", "generateName", "namespace"):
        value = mapping(metadata).get(field)
        if not isinstance(value, str | None):
            raise UserError(
                f"{title_of(document)}: metadata.{field} is {_json(value)}: it must be a string, "
                f'e.g. {field}: "train"'
            )
    return True


def _json(value: Any) -> str:
    """Return a value as JSON for a message, cut to fit a line."""
    written = orjson.dumps(value).decode()
    return written if len(written) <= _LONGEST_SHOWN else f"{written[:_LONGEST_SHOWN]}..."


def _items(document: Any, name: str) -> list[Any]:
    if mapping(document).get("kind") != "List":
        return [document]
    items = document.get("items")
    if not isinstance(items, list | None):
        raise UserError(f"{name}: items of a List is {_json(items)}: it must be a list of objects")
    return list(sequence(items))


def _documents(file: IO[Any], name: str) -> Iterator[Any]:
    content = file.read()
    with suppress(orjson.JSONDecodeError):  # JSON and YAML escape characters differently
        yield orjson.loads(content)
        return
    loader = _Loader(content)
    loader.name = name
    try:
        while loader.check_node():
            if (node := loader.get_node()) is not None:
                _check_size(node, name)
                yield loader.construct_document(node)
    finally:
        loader.dispose()


def _check_size(root: yaml.Node, name: str) -> None:
    """Raise UserError for a document that is too large with its aliases expanded."""
    sizes: dict[int, int] = {}
    distinct = 0  # the size if each alias counted nothing

    def size(node: yaml.Node) -> int:
        nonlocal distinct
        total = sizes.get(id(node))
        if total == 0:
            raise UserError(f"{name}: an alias in line {_line(node)} is within its own anchor")
        if total is None:
            sizes[id(node)] = 0  # until its children are counted
            alone = 1 + (len(node.value) if isinstance(node, yaml.ScalarNode) else 0)
            distinct += alone
            total = sizes[id(node)] = alone + sum(map(size, _children(node)))
        return total

    if size(root) > max(MAX_EXPANDED, _MAX_ALIASED * distinct):
        raise UserError(
            f"{name}: the document in line {_line(root)} is too large with its aliases written "
            f"out: {MAX_EXPANDED:,} values and characters are allowed"
        )


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _place(node: yaml.Node) -> str:
    value = str(node.value)
    cut = "..." if len(value) > _LONGEST_SHOWN else ""
    return f"{value[:_LONGEST_SHOWN]}{cut} in line {_line(node)}"


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
