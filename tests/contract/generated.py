"""What is written from the table of settings: `make generate` runs this, a test compares it.

The schema of TrainingPolicy, the full sample and the table of docs/settings.md each have a part
between two marks.
"""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from kfext.core.settings.table import PREFIX, TABLE, Row, Settings, field_of
from kfext.core.settings.values import MetricsSource
from tests.contract.manifests import CRDS, REPOSITORY

BEGIN, END = "generated from the table of settings: make generate", "end of what is generated"
_LINK = re.compile(r"\[([^]]+)\]\([^)]*\)")


def schema() -> str:
    """The fields of `spec.settings`, for the CRD."""
    fields = {
        key.removeprefix(PREFIX): {"description": _description(key, row), **row.schema}
        for key, row in TABLE.items()
        if row.schema
    }
    return textwrap.indent(_yaml(fields), " " * 20)


def sample() -> str:
    """Every setting that a policy may have with its default, or with the example without one."""
    values = {
        key.removeprefix(PREFIX): _default(key) or row.example
        for key, row in TABLE.items()
        if row.schema
    }
    return textwrap.indent(_yaml(values), " " * 4)


def docs() -> str:
    """The table of the settings."""
    return "".join(f"{line}\n" for line in _lines())


GENERATED = {
    CRDS / "kfext.dev_trainingpolicies.yaml": ("#", schema),
    CRDS / "samples" / "trainingpolicy-full.yaml": ("#", sample),
    REPOSITORY / "docs" / "settings.md": ("<!--", docs),
}
"""File -> how its comments begin, and what is between its marks."""


def generated(path: Path) -> str:
    """Return what a file should be. Raises ValueError if it has no marks."""
    comment, content = GENERATED[path]
    marks = re.compile(
        rf"(^ *{comment} {re.escape(BEGIN)}[^\n]*\n).*?(^ *{comment} {re.escape(END)})",
        re.MULTILINE | re.DOTALL,
    )
    written, found = marks.subn(lambda match: match[1] + content() + match[2], path.read_text())
    if found != 1:
        raise ValueError(f"{path} has no marks `{comment} {BEGIN}` and `{comment} {END}`")
    return written


def _lines() -> Iterator[str]:
    yield "| key | Values | Default | Effect | Takes effect |"
    yield "|---|---|---|---|---|"
    for key, row in TABLE.items():
        default = f"`{_default(key)}`" if _default(key) else "unset"
        yield f"| `{key}` | {_values(row)} | {default} | {row.effect} | {row.since} |"


def _values(row: Row) -> str:
    words = row.schema.get("enum") or (row.allowed.split(", ") if " " not in row.example else [])
    if words and all(word.isalpha() for word in words):
        return ", ".join(f"`{word}`" for word in words)
    return f"{row.allowed}, such as `{row.example}`"


def _description(key: str, row: Row) -> str:
    plain = _LINK.sub(r"\1", row.effect).replace("`", "")
    words = "" if "enum" in row.schema else f"{row.allowed}: "
    return f"{words}{plain}. Default {_default(key) or 'unset'}.".replace("`", "")


def _default(key: str) -> str:
    """Return the default as it is written, empty if there is none."""
    default: Any = getattr(Settings(), field_of(key))
    if isinstance(default, MetricsSource):
        return default.source
    return "" if default is None else str(default)


def _yaml(value: object) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=78, allow_unicode=True)


if __name__ == "__main__":
    for file in GENERATED:
        file.write_text(generated(file))
