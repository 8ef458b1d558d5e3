"""Texts generated from the settings, the policies, the CRDs, the commands and the metrics.

`make generate` runs it, and a test compares.

The schema of TrainingPolicy, the full sample, docs/settings.md, docs/policies.md and docs/reference
have parts between marks. The board for Grafana is written as a whole.
"""

import re
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from kfext.core.settings.table import PREFIX, TABLE, Row, Settings, field_of
from kfext.core.settings.values import MetricsSource
from kfext.model.parameters import SECTIONS, ParameterRow, rows
from kfext.model.policy import Mode, default_choice
from kfext.state.running.policy import Policy
from kfext.state.running.registry import POLICIES
from tests.contract import references
from tests.contract.board import BOARD, board
from tests.contract.manifests import CRDS, REPOSITORY

SETTINGS, COMPANION = "the table of settings", "the policies of the companion"
PARAMETERS = "the parameters of a policy"
_END = "end of what is generated"
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
    """Every setting that a policy may have, with its default, or else with its example."""
    values = {
        key.removeprefix(PREFIX): _default(key) or row.example
        for key, row in TABLE.items()
        if row.schema
    }
    return textwrap.indent(_yaml(values), " " * 4)


def docs() -> str:
    """The table of the settings."""
    return "".join(f"{line}\n" for line in _lines())


def parameters_schema() -> str:
    """The sections of the spec with parameters, for the CRD."""
    result = {
        section: {
            "description": (type_.__doc__ or "").splitlines()[0],
            "type": "object",
            "properties": {
                name: {
                    "description": f"{_sentence(row.effect)} Default {row.default or 'unset'}.",
                    **row.schema,
                }
                for name, row in rows(type_).items()
            },
        }
        for section, type_ in SECTIONS.items()
    }
    return textwrap.indent(_yaml(result), " " * 16)


def parameters_sample() -> str:
    """Every parameter with its default, or else with its example."""
    result = {
        section: {name: _written(row) for name, row in rows(type_).items()}
        for section, type_ in SECTIONS.items()
    }
    return textwrap.indent(_yaml(result), " " * 2)


def _written(row: ParameterRow) -> Any:
    """Return the default of a parameter as JSON, or else its example."""
    if row.schema.get("type") == "boolean":
        return row.parse(row.default)
    return row.default or row.example


def parameters_docs() -> str:
    """The table of the parameters."""
    result = (
        f"| `{section}.{name}` | {_marked(row.default)} | {row.effect} |\n"
        for section, type_ in SECTIONS.items()
        for name, row in rows(type_).items()
    )
    return "".join(["| parameter | Default | meaning |\n", "|---|---|---|\n", *result])


def _marked(default: str) -> str:
    return f"`{default}`" if default else "unset"


def policies_schema() -> str:
    """The policies of `spec.companion`, for the CRD."""
    return textwrap.indent(_yaml({policy.name: _policy(policy) for policy in POLICIES}), " " * 20)


def policies_sample() -> str:
    """Every parameter of every policy with its default."""
    policies = {
        policy.name: {"mode": str(default_choice(policy.name).mode), **_sample_parameters(policy)}
        for policy in POLICIES
    }
    return textwrap.indent(_yaml(policies), " " * 4)


def _sample_parameters(policy: Policy) -> dict[str, object]:
    values = {name: _number(parameter.default) for name, parameter in policy.parameters.items()}
    return {"parameters": values} if values else {}


def policies_docs() -> str:
    """The table of the parameters of the policies."""
    rows = (
        f"| `{policy.name}.{name}` | `{parameter.default:g}` | {parameter.effect} |\n"
        for policy in POLICIES
        for name, parameter in policy.parameters.items()
    )
    return "".join(["| companion | Default | meaning |\n", "|---|---|---|\n", *rows])


_CRD = CRDS / "kfext.dev_trainingpolicies.yaml"
_SAMPLE = CRDS / "samples" / "trainingpolicy-full.yaml"
_DOCS = REPOSITORY / "docs"
_REFERENCE = _DOCS / "reference"
GENERATED: dict[Path, tuple[str, dict[str, Callable[[], str]]]] = {
    _CRD: ("#", {SETTINGS: schema, PARAMETERS: parameters_schema, COMPANION: policies_schema}),
    _SAMPLE: ("#", {SETTINGS: sample, PARAMETERS: parameters_sample, COMPANION: policies_sample}),
    _DOCS / "settings.md": ("<!--", {SETTINGS: docs}),
    _DOCS / "policies.md": ("<!--", {PARAMETERS: parameters_docs, COMPANION: policies_docs}),
    _REFERENCE / "crds.md": (
        "<!--",
        {
            "the schema of TrainingPolicy": partial(references.fields, "trainingpolicies"),
            "the schema of TrainingPlan": partial(references.fields, "trainingplans"),
            "the schema of SharedGPU": partial(references.fields, "sharedgpus"),
        },
    ),
    _REFERENCE / "commands.md": (
        "<!--",
        {
            "the options of most commands": references.common_options,
            "the commands": references.commands,
        },
    ),
    _REFERENCE / "figures.md": ("<!--", {"constants of the code": references.figures}),
    _REFERENCE / "metrics.md": (
        "<!--",
        {
            "the series of the controller": references.series_of_the_controller,
            "the series of jobs": references.series_of_jobs,
            "the series of the webhook": references.series_of_the_webhook,
            "the series of the agent": references.series_of_the_agent,
        },
    ),
}
"""File -> the beginning of its comments, and source of a text -> the text between its marks."""
FILES = (*GENERATED, BOARD)


def generated(path: Path) -> str:
    """Return the generated text of a file. Raises ValueError if it has no marks."""
    if path == BOARD:
        return board()
    written = path.read_text()
    comment, parts = GENERATED[path]
    for source, content in parts.items():
        begin = f"{comment} generated from {source}: make generate"
        marks = re.compile(
            rf"(^ *{re.escape(begin)}[^\n]*\n).*?(^ *{comment} {_END})", re.MULTILINE | re.DOTALL
        )
        match = marks.search(written)
        if match is None:
            raise ValueError(f"{path} has no marks `{begin}` and `{comment} {_END}`")
        written = written[: match.end(1)] + content() + written[match.start(2) :]
    return written


def _policy(policy: Policy) -> dict[str, Any]:
    mode = f"Default {default_choice(policy.name).mode}. {policy.without_act}".strip()
    parameters = {
        name: {
            "description": f"{_sentence(parameter.effect)} Default {parameter.default:g}.",
            "type": parameter.type,
            "minimum": _number(parameter.minimum),
            "maximum": _number(parameter.maximum),
        }
        for name, parameter in policy.parameters.items()
    }
    properties: dict[str, Any] = {
        "mode": {"description": mode, "type": "string", "enum": [str(mode) for mode in Mode]}
    }
    if parameters:
        properties["parameters"] = {
            "description": "Constants of the policy; each has a default.",
            "type": "object",
            "properties": parameters,
        }
    return {
        "description": _sentence(policy.effect),
        "type": "object",
        "properties": properties,
    }


def _sentence(effect: str) -> str:
    plain = _plain(effect)
    return f"{plain[0].upper()}{plain[1:]}."


def _plain(effect: str) -> str:
    """Return Markdown without links and marks."""
    return _LINK.sub(r"\1", effect).replace("`", "")


def _number(value: float) -> float | int:
    return int(value) if value == int(value) else value


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
    plain = _plain(row.effect)
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
    for file in FILES:
        file.write_text(generated(file))
