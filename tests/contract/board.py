"""The board for Grafana: `make generate` writes it into the component `monitoring`.

The JSON is simple enough to be written without a package for boards.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.contract.manifests import MANIFESTS

BOARD = MANIFESTS / "components" / "monitoring" / "board.json"
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT = 8, 8
_IN_ROW = 24 // _WIDTH


@dataclass(frozen=True)
class Panel:
    """A panel of the board.

    `queries`: legend of the series -> PromQL expression. `repeat`: a variable; the panel is shown
    once for each of its values, and so must be the last of its row.
    """

    title: str
    text: str
    queries: dict[str, str]
    unit: str = "short"
    type: str = "timeseries"
    stacked: bool = False
    repeat: str = ""


ROWS = {
    "Queue": (
        Panel(
            "Jobs by phase",
            "Queued jobs wait; Placed jobs run.",
            {"{{phase}}": "max by (phase) (kfext_jobs) > 0"},
            stacked=True,
        ),
        Panel(
            "Waiting jobs by reason",
            "The page on the queue says what ends each wait.",
            {"{{reason}}": "max by (reason) (kfext_queue_jobs_by_reason)"},
            stacked=True,
        ),
        Panel(
            "Age of the oldest waiting job",
            "By priority class.",
            {"{{priority_class}}": "max by (priority_class) (kfext_queue_oldest_seconds)"},
            unit="s",
        ),
        Panel(
            "Time in a phase",
            "90 % of the phases that ended were shorter.",
            {
                "{{phase}}": "histogram_quantile(0.9, sum by (phase, le) "
                "(rate(kfext_phase_seconds_bucket[$__rate_interval])))"
            },
            unit="s",
        ),
        Panel(
            "Forecasts of starts",
            "Whether jobs started earlier than the expected range, within it, or later.",
            {"{{was}}": "sum by (was) (increase(kfext_expected_starts_total[$__rate_interval]))"},
            stacked=True,
        ),
        Panel(
            "Workers",
            "Of the jobs with known progress.",
            {"{{namespace}}/{{job_name}}": "max by (namespace, job_name) (kfext_job_workers) > 0"},
            stacked=True,
        ),
    ),
    "Use": (
        Panel(
            "Changes of running jobs",
            "By policy and outcome.",
            {
                "{{policy}} {{outcome}}": "sum by (policy, outcome) "
                "(increase(kfext_changes_total[$__rate_interval])) > 0"
            },
            stacked=True,
        ),
        Panel(
            "Work that is done again",
            "After stops for jobs of higher priority.",
            {"seconds": "sum(increase(kfext_preempted_work_seconds_total[$__rate_interval]))"},
            unit="s",
        ),
        Panel(
            "Suspect nodes and stalled jobs",
            "`kubectl kfext nodes` and `kubectl kfext top -A` name them.",
            {"nodes": "max(kfext_suspect_nodes)", "jobs": "max(kfext_stalled_jobs)"},
        ),
        Panel(
            "$resource",
            "Cores, bytes or devices. Reserved is kept for the first job of the queue; free counts "
            "nodes that are neither cordoned nor drained.",
            {"{{state}}": 'max by (state) (kfext_capacity{resource="$resource"})'},
            stacked=True,
            repeat="resource",
        ),
    ),
    "Health": (
        Panel(
            "Controllers",
            "The leader has 1, a standby 0.",
            {"{{pod}}": "max by (pod) (kfext_leading)"},
            type="state-timeline",
        ),
        Panel(
            "Time of a tick",
            "99 % of the turns of the loop were shorter.",
            {
                "p99": "histogram_quantile(0.99, sum by (le) "
                "(rate(kfext_tick_seconds_bucket[$__rate_interval])))"
            },
            unit="s",
        ),
        Panel(
            "Failed steps and errors",
            "A failed step is tried again. An error of kfext leaves one object aside.",
            {
                "{{step}}": "sum by (step) "
                '(increase(kfext_steps_total{outcome="failed"}[$__rate_interval])) > 0',
                "errors": "sum(increase(kfext_errors_total[$__rate_interval]))",
            },
            stacked=True,
        ),
        Panel(
            "Writes",
            "Requests that change something, by resource and status.",
            {
                "{{resource}} {{status}}": "sum by (resource, status) (rate("
                'kfext_api_requests_total{verb!~"get|list|watch"}[$__rate_interval]))'
            },
            unit="reqps",
            stacked=True,
        ),
        Panel(
            "Silence of watches",
            "Above 150 s a controller is not ready.",
            {"{{resource}}": "max by (resource) (kfext_watch_silence_seconds)"},
            unit="s",
        ),
        Panel(
            "Reviews",
            "99 % of the reviews of the webhook were shorter.",
            {
                "{{outcome}}": "histogram_quantile(0.99, sum by (outcome, le) "
                "(rate(kfext_webhook_review_duration_seconds_bucket[$__rate_interval])))"
            },
            unit="s",
        ),
    ),
}


def expressions() -> list[str]:
    """Return all expressions of the board."""
    panels = (panel for row in ROWS.values() for panel in row)
    return [expression for panel in panels for expression in panel.queries.values()]


def board() -> str:
    """Return the board as JSON."""
    content = {
        "title": "kfext",
        "uid": "kfext",
        "tags": ["kfext"],
        "schemaVersion": 39,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }
    return json.dumps(content, indent=2) + "\n"


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "query": "prometheus"}
    yield {
        "name": "resource",
        "type": "query",
        "datasource": _SOURCE,
        "query": "label_values(kfext_capacity, resource)",
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panels() -> Iterator[dict[str, Any]]:
    top, number = 0, 0
    for title, row in ROWS.items():
        number += 1
        at = {"x": 0, "y": top, "w": 24, "h": 1}
        yield {"id": number, "type": "row", "title": title, "gridPos": at, "panels": []}
        top += 1
        for place, panel in enumerate(row):
            number += 1
            down, right = divmod(place, _IN_ROW)
            at = {"x": right * _WIDTH, "y": top + down * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
            yield {"id": number, "gridPos": at, **_panel_json(panel)}
        top += -(-len(row) // _IN_ROW) * _HEIGHT


def _panel_json(panel: Panel) -> dict[str, Any]:
    custom: dict[str, Any] = {"fillOpacity": 10}
    if panel.stacked:
        custom = {"fillOpacity": 40, "stacking": {"mode": "normal"}}
    repeated = {"repeat": panel.repeat, "repeatDirection": "h", "maxPerRow": _IN_ROW}
    return {
        "type": panel.type,
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "custom": custom},
            "overrides": [],
        },
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": expr, "legendFormat": name}
            for at, (name, expr) in enumerate(panel.queries.items())
        ],
        **(repeated if panel.repeat else {}),
    }
