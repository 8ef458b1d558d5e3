"""The tables of docs/policies.md and numbers on other pages agree with the code."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfext.model.policy import TrainingPolicy, parse_policy
from kfext.state.running.cpu.cadence import RESIZED
from kfext.state.running.move.migrate import MIGRATED
from kfext.state.running.policy import Condition, Policy
from kfext.state.running.registry import CONDITIONS, POLICIES
from kfext.state.running.size.scale import SCALED
from kfext.state.running.stop.preempt import STOPPED
from tests.contract.manifests import MANIFESTS, REPOSITORY, schema
from tests.contract.tables import Row, only, rows_of, table
from tests.contract.test_logs import BY_EXPRESSION, RECOGNISED, TRAINING

PAGE = "docs/policies.md"
UNSET = "unset"
PARAMETERS = {only(row["parameter"]): row for row in table(PAGE, "parameter")}
POLICY = schema("trainingpolicies")["properties"]["spec"]["properties"]


def _schema_of(parameter: str) -> Any:
    section, name = parameter.split(".")
    return POLICY[section]["properties"][name]


def _with(parameter: str, value: object) -> TrainingPolicy:
    section, name = parameter.split(".")
    return parse_policy({"spec": {section: {name: value}}})


def test_every_parameter_of_a_policy_has_one_row_and_every_row_one_parameter() -> None:
    in_schema = {
        f"{section}.{name}"
        for section in ("queue", "placement", "network")
        for name in POLICY[section]["properties"]
    }
    assert len(PARAMETERS) == len(table(PAGE, "parameter"))
    assert PARAMETERS.keys() == in_schema


def _documented(row: Row) -> Any:
    return None if row["Default"] == UNSET else yaml.safe_load(only(row["Default"]))


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_a_policy_with_a_default_of_the_table_is_the_built_in_policy(parameter: str) -> None:
    value = _documented(PARAMETERS[parameter])
    if isinstance(value, str):  # the code uses the default in place of a malformed value
        assert re.search(_schema_of(parameter).get("pattern", ""), value)
    assert _with(parameter, value) == TrainingPolicy()


def test_every_parameter_of_the_companion_has_one_row_with_its_default() -> None:
    rows = {only(row["companion"]): float(only(row["Default"])) for row in table(PAGE, "companion")}
    in_code = {
        f"{policy.name}.{name}": parameter.default
        for policy in POLICIES
        for name, parameter in policy.parameters.items()
    }
    assert len(rows) == len(table(PAGE, "companion"))
    assert rows == in_code


def test_the_api_server_waits_for_the_webhooks_as_long_as_the_page_says() -> None:
    seconds = re.findall(r"waits `(\d+)` seconds", (REPOSITORY / "docs/bounds.md").read_text())
    objects = yaml.safe_load_all((MANIFESTS / "base/webhook/configuration.yaml").read_text())
    waits = {
        (hook["failurePolicy"], hook["timeoutSeconds"])
        for item in objects
        for hook in item["webhooks"]
    }
    assert waits == {("Ignore", int(seconds[0])), ("Fail", int(seconds[1]))}


def test_the_page_on_progress_has_the_expression_of_every_log_that_needs_one() -> None:
    rows = {row["log"]: only(row["expression"]) for row in table("docs/progress.md", "log")}
    assert rows == BY_EXPRESSION
    assert {*rows, *RECOGNISED} == {*TRAINING}


PAGES = {
    RESIZED.type: "docs/resize.md",
    SCALED.type: "docs/elastic.md",
    MIGRATED.type: "docs/migrate.md",
    STOPPED.type: "docs/priorities.md",
}


@pytest.mark.parametrize("condition", CONDITIONS.values(), ids=lambda condition: condition.type)
def test_a_page_has_every_reason_of_a_condition(condition: Condition) -> None:
    rows = [only(row["reason"]) for row in table(PAGES[condition.type], "reason")]
    assert len(rows) == len(set(rows))
    assert set(rows) == condition.reasons


REPORTS = [
    path for path in sorted((REPOSITORY / "docs/reports").glob("*.md")) if path.stem != "index"
]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.name)
def test_a_report_states_when_its_figures_were_recorded(report: Path) -> None:
    assert re.search(r"^Recorded: 20\d\d-\d\d-\d\d\b", report.read_text(), re.MULTILINE)


def test_the_page_on_performance_states_the_number_of_missed_targets() -> None:
    rows = [row for report in REPORTS for row in rows_of(f"docs/reports/{report.name}", "figure")]
    missed = sum("**MISS**" in row["measured"] for row in rows)
    text = re.sub(r"\s+", " ", (REPOSITORY / "docs/performance.md").read_text())
    assert f"{len(rows)} targets, {missed} of them missed" in text


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_each_policy_names_a_figure_or_a_case_that_needs_it(policy: Policy) -> None:
    figures = "".join(report.read_text() for report in REPORTS)
    assert policy.evidence in figures or (REPOSITORY / policy.evidence).is_file()
