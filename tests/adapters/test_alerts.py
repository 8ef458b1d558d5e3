"""The alerts and the dashboard are valid for Prometheus, according to its promtool."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from e2e.testbed import debian
from e2e.testbed.preflight import Unavailable
from tests.contract.board import expressions
from tests.contract.manifests import Object, read
from tests.contract.test_monitoring import RULES

CASES = Path(__file__).with_name("alerts.yaml")
GROUPS = read(RULES)["spec"]["groups"]
ALERTS = [rule for group in GROUPS for rule in group["rules"]]
VARIABLES = {"$__rate_interval": "5m", "$resource": "cpu"}
"""The variables of the dashboard, each with a value."""

Promtool = Callable[..., str]


@pytest.fixture(scope="module")
def promtool() -> Promtool:
    """Return a function that runs promtool, which must succeed, and returns what it prints."""
    try:
        program = debian.resolve("promtool")
    except Unavailable as error:
        pytest.skip(str(error))

    def run(*arguments: str | Path) -> str:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def write_rules(groups: list[Object], folder: Path) -> Path:
    path = folder / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": groups}))
    return path


def test_promtool_accepts_the_alerts(promtool: Promtool, tmp_path: Path) -> None:
    output = promtool("check", "rules", write_rules(GROUPS, tmp_path))
    assert f"{len(ALERTS)} rules found" in output


def test_promtool_accepts_every_expression_of_the_dashboard(
    promtool: Promtool, tmp_path: Path
) -> None:
    rules = []
    for number, template in enumerate(expressions()):
        expression = template
        for variable, value in VARIABLES.items():
            expression = expression.replace(variable, value)
        assert "$" not in expression
        rules.append({"record": f"panel:number:{number}", "expr": expression})
    promtool("check", "rules", write_rules([{"name": "board", "rules": rules}], tmp_path))


def test_each_alert_fires_when_it_should_and_only_then(promtool: Promtool, tmp_path: Path) -> None:
    # Without the annotations, which promtool would compare too.
    rules = [{key: rule[key] for key in ("alert", "expr", "for", "labels")} for rule in ALERTS]
    write_rules([{"name": "kfext", "rules": rules}], tmp_path)
    (tmp_path / CASES.name).write_text(CASES.read_text())
    promtool("test", "rules", tmp_path / CASES.name)


def test_each_alert_has_a_case_in_which_it_fires_and_a_case_in_which_it_does_not() -> None:
    checks = [
        (check["alertname"], "exp_alerts" in check)
        for case in read(CASES)["tests"]
        for check in case["alert_rule_test"]
    ]
    assert set(checks) == {(rule["alert"], fires) for rule in ALERTS for fires in (True, False)}
