"""`kubectl kfext usage`, from a record."""

import json

import yaml

from kfext.cli.nodes import render_usage
from kfext.core.queue.usage import NamespaceUsage, UsageRecord, full_usage

DAY = 86_400.0
RECORD = UsageRecord(
    1_000_000.0,
    DAY,
    {
        "team-a": NamespaceUsage(0.12 * full_usage(DAY), 2.0, 0.0, 1),
        "team-b": NamespaceUsage(0.413 * full_usage(DAY), 1.0, 0.75, 12),
        "team-c": NamespaceUsage(weight=0.5),
    },
)


def test_namespaces_are_listed_the_largest_usage_first() -> None:
    lines = render_usage(RECORD, output="text", now=1_000_130.0).splitlines()
    assert [line.split() for line in lines[:-1]] == [
        ["NAMESPACE", "WEIGHT", "USED", "HELD", "WAITING"],
        ["team-b", "1", "41.3", "%", "75.0", "%", "12"],
        ["team-a", "2", "12.0", "%", "0.0", "%", "1"],
        ["team-c", "0.5", "0.0", "%", "0.0", "%", "0"],
    ]
    assert lines[-1] == "2m ago; usage halves in 24h"


def test_a_clock_that_is_behind_shows_no_negative_age() -> None:
    assert render_usage(RECORD, output="text", now=0.0).splitlines()[-1].startswith("0s ago")


def test_json_has_fractions_and_seconds() -> None:
    content = json.loads(render_usage(RECORD, output="json", now=1_000_130.0))
    assert (content["ageSeconds"], content["halfLifeSeconds"]) == (130, DAY)
    first = content["namespaces"][0]
    assert first == {"namespace": "team-b", **first, "weight": 1.0, "held": 0.75, "waiting": 12}
    assert abs(first["used"] - 0.413) < 1e-9
    assert yaml.safe_load(render_usage(RECORD, output="yaml", now=1_000_130.0)) == content
