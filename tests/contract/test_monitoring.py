"""The alerts and the board: the code exports every metric and label value that they name."""

import json
import re
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from kfext.controller.metrics import LABELS
from kfext.controller.metrics import Metrics as ControllerMetrics
from kfext.names import PHASES
from kfext.state.planner.planner import Planner
from kfext.webhook import app as webhook
from tests.contract.board import BOARD, expressions
from tests.contract.manifests import MANIFESTS, Object, added, pods, read
from tests.contract.tables import only, quoted, table

RULES = MANIFESTS / "components" / "monitoring" / "prometheusrule.yaml"
MONITOR = MANIFESTS / "components" / "monitoring" / "podmonitor.yaml"
_METRIC = re.compile(r"\bkfext_[a-z0-9_]+\b")
_MATCHER = re.compile(r'(\w+)(=~?)"([^"]*)"')
_VALUES = {
    "phase": set(PHASES),
    "outcome": {
        *(webhook.PATCHED, webhook.UNCHANGED, webhook.REFUSED, webhook.FAILED, webhook.REJECTED),
        "done",
    },
    "resource": {"trainingplans/status"},
    "verb": {"patch"},
}


def _rules() -> list[Object]:
    groups = read(RULES)["spec"]["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _exported() -> set[str]:
    """Return the names of all samples of both processes, without their values."""
    synced = webhook.Metrics(synced=lambda: True, controller_alive=lambda: True)
    return {name for registry in (_controller(), synced.registry) for name in _samples(registry)}


def _controller() -> CollectorRegistry:
    """Return the registry of a controller that leads."""
    metrics, planner = ControllerMetrics(), Planner()
    metrics.follow(planner)
    metrics.follow_watches({})
    metrics.follow_events(lambda: 0)
    metrics.follow_jobs(list)
    metrics.lead(planner)
    return metrics.registry


def _samples(registry: CollectorRegistry) -> Iterator[str]:
    endings = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}
    for family in registry.collect():
        yield from (family.name + ending for ending in endings.get(family.type, [""]))


@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_names_only_metrics_that_exist(rule: Object) -> None:
    named = set(_METRIC.findall(rule["expr"]))
    assert named
    assert named <= _exported()


@pytest.mark.parametrize("expression", expressions())
def test_the_board_names_only_metrics_that_exist(expression: str) -> None:
    named = set(_METRIC.findall(expression))
    assert named
    assert named <= _exported()


def test_the_board_is_a_config_map_that_grafana_s_sidecar_finds_and_no_panels_overlap() -> None:
    (map_,) = (thing for thing in added("monitoring") if thing["kind"] == "ConfigMap")
    assert map_["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert list(map_["data"].values()) == [BOARD.read_text()]
    panels = json.loads(BOARD.read_text())["panels"]
    taken = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(taken) == len(set(taken))


@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_asks_for_label_values_that_exist(rule: Object) -> None:
    for label, _, value in _MATCHER.findall(rule["expr"]):
        assert set(value.split("|")) <= _VALUES[label], (label, value)


@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_is_balanced_and_states_what_to_do(rule: Object) -> None:
    assert rule["expr"].count("(") == rule["expr"].count(")")
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert rule["annotations"].keys() == {"summary", "description"}
    assert re.fullmatch(r"\d+m", rule["for"])


def test_held_jobs_without_a_leader_raise_an_alarm() -> None:
    (rule,) = (rule for rule in _rules() if rule["alert"] == "KfextJobsHeldWithoutLeader")
    assert {"kfext_waiting_jobs", "kfext_leading"} <= set(_METRIC.findall(rule["expr"]))
    assert rule["labels"]["severity"] == "critical"


def test_the_page_on_monitoring_has_every_alert_and_names_metrics_that_exist() -> None:
    rows = table("docs/monitoring.md", "alert")
    in_table = {only(row["alert"]): row["severity"] for row in rows}
    assert in_table == {rule["alert"]: rule["labels"]["severity"] for rule in _rules()}
    series = (quoted(row["series"]) for row in table("docs/monitoring.md", "series"))
    named = {_METRIC.findall(name)[0] for names in series for name in names}
    assert {name for name in named if not {name, f"{name}_count"} & _exported()} == set()


def test_the_monitor_keeps_the_namespace_of_a_job_and_no_label_is_one_of_prometheus() -> None:
    (endpoint,) = read(MONITOR)["spec"]["podMetricsEndpoints"]
    assert endpoint["honorLabels"] is True
    assert not {"job", "instance", "pod", "container", "endpoint"} & set(LABELS)


def test_the_monitor_reads_the_port_that_every_pod_has() -> None:
    (endpoint,) = read(MONITOR)["spec"]["podMetricsEndpoints"]
    for name, template in pods():
        ports = [port["name"] for c in template["spec"]["containers"] for port in c["ports"]]
        assert endpoint["port"] in ports, name
