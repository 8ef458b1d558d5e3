"""What docs/settings.md and its neighbours state, against the code that decides it."""

import importlib
import re
from fractions import Fraction
from typing import Any

import pytest
import yaml

from kfext import names
from kfext.core.companion.registry import POLICIES
from kfext.core.ledger.columns import ASSUMED
from kfext.core.scale import parameters as scale
from kfext.core.settings.gpu_shares import share_of
from kfext.core.settings.gpu_values import AUTO, GATE, GPU_RULES, HIGH, LOW, NONE
from kfext.core.settings.resolve import Settings
from kfext.core.settings.values import known_settings, parse_setting
from kfext.model.policy import TrainingPolicy, parse_policy
from tests.contract.manifests import MANIFESTS, REPOSITORY, schema
from tests.contract.tables import Row, only, quoted, table
from tests.contract.test_logs import BY_EXPRESSION, RECOGNISED, TRAINING

PAGE = "docs/settings.md"
UNSET = "unset"
SETTINGS = {only(row["key"]).removesuffix("[.TYPE]"): row for row in table(PAGE, "key")}
TYPED = {only(row["key"]) for row in table(PAGE, "key") if "[.TYPE]" in row["key"]}
PARAMETERS = {only(row["parameter"]): row for row in table(PAGE, "parameter")}
POLICY = schema("trainingpolicies")["properties"]["spec"]["properties"]


def test_every_setting_has_one_row_and_every_row_is_a_setting() -> None:
    without_type = {".".join(key.split(".")[:2]) for key in known_settings()}
    assert len(SETTINGS) == len(table(PAGE, "key"))
    assert SETTINGS.keys() == without_type


def test_the_rows_with_a_replica_type_are_the_settings_that_take_one() -> None:
    takes_one = {key.rpartition(".")[0] for key in known_settings() if key.count(".") > 1}
    assert {key.removesuffix("[.TYPE]") for key in TYPED} == takes_one


@pytest.mark.parametrize("key", SETTINGS)
def test_every_value_in_the_table_is_one_that_the_code_takes(key: str) -> None:
    values = quoted(SETTINGS[key]["Values"])
    assert values
    for value in values:
        parse_setting(key, value, field=key)


WORDS = {
    **{
        f"{names.DOMAIN}/{key}": set(node["enum"])
        for key, node in POLICY["settings"]["properties"].items()
        if "enum" in node
    },
    names.GPU_PRIORITY: {LOW, HIGH},
    names.GPU_ISOLATION: {AUTO, GATE, NONE},
}
"""The settings that are one of some words."""


@pytest.mark.parametrize("key", WORDS)
def test_the_table_has_every_word_that_a_setting_may_be(key: str) -> None:
    assert set(quoted(SETTINGS[key]["Values"])) == WORDS[key]


@pytest.mark.parametrize("key", sorted(SETTINGS.keys() - GPU_RULES.keys()))
def test_the_default_in_the_table_is_that_of_the_code(key: str) -> None:
    default = getattr(Settings(), key.removeprefix(f"{names.DOMAIN}/"))
    assert default == _default(key)


@pytest.mark.parametrize("key", sorted(SETTINGS.keys() & GPU_RULES.keys() - {names.GPU_SHARE}))
def test_to_state_a_default_of_the_table_changes_nothing_of_a_share(key: str) -> None:
    half = {names.GPU_SHARE: Fraction(1, 2)}
    share, stated = share_of(half, "worker"), share_of({**half, key: _default(key)}, "worker")
    assert share is not None
    assert share == stated
    assert (_default(key) is None) == (key == names.GPU_MEMORY)


def test_a_job_without_a_share_has_whole_gpus() -> None:
    assert _default(names.GPU_SHARE) is None
    assert share_of({}, "worker") is None


def _default(key: str) -> Any:
    """Return what the table states, as the code has it; None for unset."""
    cell = SETTINGS[key]["Default"]
    return None if cell == UNSET else parse_setting(key, only(cell), field=key)


def _schema_of(parameter: str) -> Any:
    section, name = parameter.split(".")
    return POLICY[section]["properties"][name]


def _with(parameter: str, value: object) -> TrainingPolicy:
    section, name = parameter.split(".")
    return parse_policy({"spec": {section: {name: value}}})


def test_every_parameter_of_a_policy_has_one_row_and_every_row_is_one() -> None:
    in_schema = {
        f"{one}.{name}" for one in ("placement", "network") for name in POLICY[one]["properties"]
    }
    assert len(PARAMETERS) == len(table(PAGE, "parameter"))
    assert PARAMETERS.keys() == in_schema


def _documented(row: Row) -> Any:
    return None if row["Default"] == UNSET else yaml.safe_load(only(row["Default"]))


@pytest.mark.parametrize("parameter", sorted(PARAMETERS.keys() - {"placement.assumedRequests"}))
def test_a_policy_with_a_default_of_the_table_is_the_built_in_policy(parameter: str) -> None:
    value = _documented(PARAMETERS[parameter])
    if isinstance(value, str):  # the code takes the default in place of what is malformed
        assert re.search(_schema_of(parameter).get("pattern", ""), value)
    assert _with(parameter, value) == TrainingPolicy()


def test_a_pod_without_requests_counts_as_the_table_says() -> None:
    row = PARAMETERS["placement.assumedRequests"]
    placement = _with("placement.assumedRequests", _documented(row)).placement
    assert {**ASSUMED, **TrainingPolicy().placement.assumed_requests} == placement.assumed_requests


def test_every_parameter_of_the_companion_has_one_row_with_its_default() -> None:
    rows = {only(row["companion"]): float(only(row["Default"])) for row in table(PAGE, "companion")}
    of_policies = {policy.name: policy.parameters for policy in POLICIES}
    in_code = {
        f"{policy}.{name}": default
        for policy, parameters in {**of_policies, scale.NAME: scale.DEFAULTS}.items()
        for name, default in parameters.items()
    }
    assert len(rows) == len(table(PAGE, "companion"))
    assert rows == in_code


FIGURES = {only(row["constant"]): only(row["Value"]) for row in table(PAGE, "figure")}


@pytest.mark.parametrize("constant", FIGURES)
def test_a_figure_in_the_table_is_that_of_the_code(constant: str) -> None:
    assert float(FIGURES[constant]) == _constant(constant)


def _constant(dotted: str) -> float:
    """Return a constant of a module, or the default of a field of a class in it."""
    holder, _, name = dotted.rpartition(".")
    module, _, of_class = holder.rpartition(".")
    if of_class[0].isupper():
        return float(getattr(getattr(importlib.import_module(module), of_class)(), name))
    return float(getattr(importlib.import_module(holder), name))


def test_the_api_server_waits_for_the_webhooks_as_long_as_the_page_says() -> None:
    said = re.findall(r"waits `(\d+)` seconds", (REPOSITORY / PAGE).read_text())
    objects = yaml.safe_load_all((MANIFESTS / "base/webhook/configuration.yaml").read_text())
    waits = {
        (hook["failurePolicy"], hook["timeoutSeconds"])
        for one in objects
        for hook in one["webhooks"]
    }
    assert waits == {("Ignore", int(said[0])), ("Fail", int(said[1]))}


def test_the_page_on_progress_has_the_expression_of_every_log_that_needs_one() -> None:
    rows = {row["log"]: only(row["expression"]) for row in table("docs/progress.md", "log")}
    assert rows == BY_EXPRESSION
    assert {*rows, *RECOGNISED} == {*TRAINING}


CONDITIONS = {
    "docs/resize.md": names.REASONS_RESIZED,
    "docs/elastic.md": names.REASONS_SCALED,
}


@pytest.mark.parametrize(("page", "reasons"), CONDITIONS.items(), ids=CONDITIONS)
def test_a_page_has_every_reason_of_its_condition(page: str, reasons: frozenset[str]) -> None:
    rows = [only(row["reason"]) for row in table(page, "reason")]
    assert len(rows) == len(set(rows))
    assert set(rows) == reasons
