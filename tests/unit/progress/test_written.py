"""The progress of a job that is written into its TrainingPlan is read back unchanged."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.progress.reported import (
    GrowthState,
    Progress,
    Reported,
    as_written,
    decode_progress,
    encode_progress,
)
from kfext.core.progress.stall import MOVES
from kfext.model.verdict import Verdict
from kfext.names import CPU_USE_KNOWN, PROGRESS_KNOWN, PROGRESSING
from tests.unit.objects import json_values

_verdicts = st.none() | st.builds(Verdict, st.text(max_size=9), st.text(max_size=9))
_amounts = st.none() | st.floats(0, 1e15, allow_nan=False)
_counts = st.none() | st.integers(0, 10**15)
_progress = st.builds(
    Progress,
    metric=st.text(max_size=300),
    value=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    step=_counts,
    total=_counts,
    rate=_amounts,
    remaining=_amounts,
    at=st.none() | st.floats(0, 2e9),
)
_reported = st.builds(
    Reported,
    progress=_progress,
    growth=_amounts,
    state=st.none() | st.sampled_from(GrowthState),
    cpu=st.none() | st.floats(0, 1e4),
    known=_verdicts,
    unmeasured=_verdicts,
    moves=_verdicts | st.just(MOVES),
).filter(lambda record: record.progress.metric or record.cpu is not None)


@given(_reported | st.just(Reported()))
def test_written_progress_is_read_back(reported: Reported) -> None:
    written = as_written(reported)
    stored = orjson.loads(orjson.dumps(encode_progress(written)))
    conditions = {
        type_: {"reason": verdict.reason, "message": verdict.message}
        for type_, verdict in (
            (PROGRESS_KNOWN, reported.known),
            (CPU_USE_KNOWN, reported.unmeasured),
            (PROGRESSING, written.moves if written else None),
        )
        if verdict is not None
    }
    kept = {key: value for key, value in (stored or {}).items() if value is not None}
    assert decode_progress(kept, conditions) == written


@given(
    json_values | st.dictionaries(st.sampled_from(["value", "cpu", "time", "state"]), json_values)
)
def test_malformed_data_is_read_without_an_error(raw: Any) -> None:
    decode_progress(raw, {})


@pytest.mark.parametrize("name", ["value", "step", "secondsLeft", "growth"])
@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(10**400, id="beyond a float"),
        pytest.param(-(10**400), id="below a float"),
        pytest.param(float("nan"), id="not a number"),
        pytest.param(float("inf"), id="infinite"),
        pytest.param(True, id="a boolean"),
        pytest.param("1", id="a number as a string"),
    ],
)
def test_an_impossible_number_counts_as_absent(name: str, odd: object) -> None:
    usual = {"metric": "loss", "value": 1, "step": 1, "secondsLeft": 1, "growth": 1}
    without = {key: value for key, value in usual.items() if key != name}
    assert decode_progress({**usual, name: odd}, {}) == decode_progress(without, {})


@pytest.mark.parametrize("raw", [None, {}, [], "x"])
def test_without_the_field_there_is_no_progress(raw: object) -> None:
    assert decode_progress(raw, {}) is None
