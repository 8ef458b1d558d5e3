"""What the metrics API states of pods, whoever serves it."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.errors import Unavailable
from kfext.kube.metrics_api import decoded
from kfext.model.cpu_use import CpuUse
from kfext.model.timestamps import timestamp

from .usage_servers import encoded, figures

AT = timestamp("2026-11-22T10:00:30Z")


def containers(*cpus: object) -> dict[str, Any]:
    return figures("a", "0") | {"containers": [{"name": "x", "usage": {"cpu": x}} for x in cpus]}


STATED: dict[str, tuple[dict[str, Any], float | None]] = {
    "nanocores, as metrics-server writes them": (containers("201234567n"), 0.201234567),
    "millicores": (containers("250m"), 0.25),
    "nothing used": (containers("0"), 0.0),
    "all containers together": (containers("200m", "50m", "1"), 1.25),
    "a container without figures": (containers("200m", None), None),
    "a container with odd figures": (containers("200m", "much"), None),
    "a container that gives CPU back": (containers("-200m"), None),
    "no containers": (containers(), None),
    "containers null": (figures("a", "0") | {"containers": None}, None),
    "no time": (figures("a", "100m") | {"timestamp": None}, None),
    "a time that is none": (figures("a", "100m", at="now"), None),
    "no window": (figures("a", "100m") | {"window": ""}, None),
    "a window without length": (figures("a", "100m") | {"window": "0s"}, None),
}


@pytest.mark.parametrize(("item", "cores"), STATED.values(), ids=STATED)
def test_what_a_list_states_of_a_pod(item: dict[str, Any], cores: float | None) -> None:
    found = decoded(encoded(item, figures("other", "1")))
    assert found.get("a") == (None if cores is None else CpuUse(cores, at=AT, window=15.5))
    assert found["other"] == CpuUse(1.0, at=AT, window=15.5)


@pytest.mark.parametrize("body", [b'{"items": null}', b"{}", b'{"items": []}'])
def test_a_list_may_be_empty(body: bytes) -> None:
    assert decoded(body) == {}


@pytest.mark.parametrize("body", [b"", b"[1", b'{"items": 1}', b'{"items": [{}]}', b"<html>"])
def test_what_is_no_list_is_no_answer(body: bytes) -> None:
    with pytest.raises(Unavailable, match="not one of the metrics API"):
        decoded(body)


@given(st.binary(max_size=300))
def test_no_answer_is_too_odd(body: bytes) -> None:
    with suppress(Unavailable):
        decoded(b'{"items": [' + body + b"]}")
