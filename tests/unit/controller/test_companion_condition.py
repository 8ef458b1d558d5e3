"""What is written of what the companion does to a job is read again as it was."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.controller.companion_condition import (
    as_written,
    decode_companion,
    encode_companion,
    same_but_words,
)
from kfext.controller.conditions import Conditions
from kfext.core.companion.policy import Shown
from kfext.model.verdict import Verdict
from kfext.names import (
    REASON_CPU_MOVED,
    REASON_CPU_RESTORED,
    REASON_WOULD_MOVE,
    REASONS_RESIZED,
    REASONS_SCALED,
    RESIZED,
    SCALED,
)
from tests.unit.objects import json_values

_shown = st.builds(
    Shown,
    holds=st.booleans(),
    verdict=st.builds(
        Verdict,
        st.sampled_from(sorted(REASONS_RESIZED | REASONS_SCALED)),
        st.text(max_size=1200),
    ),
)


@given(st.dictionaries(st.sampled_from([RESIZED, SCALED]), _shown))
def test_what_is_written_is_read_again(shown: dict[str, Shown]) -> None:
    written = {type_: as_written(one) for type_, one in shown.items()}
    conditions = encode_companion("uid", written, Conditions(lambda: 0.0))
    stored = {one["type"]: one for one in orjson.loads(orjson.dumps(conditions))}
    assert all(len(one["message"]) <= 1024 for one in stored.values())
    assert decode_companion(stored) == written


@given(st.dictionaries(st.sampled_from(["status", "reason", "message"]), json_values))
def test_anything_else_is_read_without_an_error(raw: dict[str, Any]) -> None:
    decode_companion({RESIZED: raw, SCALED: raw})


def test_without_the_condition_the_job_has_not_opted_in() -> None:
    assert decode_companion({"Placed": {"status": "True"}}) == {}


def shown(
    reason: str = REASON_WOULD_MOVE, words: str = "", *, holds: bool = False
) -> dict[str, Shown]:
    return {RESIZED: Shown(holds, Verdict(reason, words))}


@pytest.mark.parametrize(
    ("now", "before", "same"),
    [
        pytest.param({}, {}, True, id="never opted in"),
        pytest.param(shown(words="a"), shown(words="b"), True, id="other words"),
        pytest.param(shown(), {}, False, id="opted in"),
        pytest.param({}, shown(), False, id="opted out"),
        pytest.param(shown(), {SCALED: shown()[RESIZED]}, False, id="another condition"),
        pytest.param(shown(), shown(REASON_CPU_RESTORED), False, id="another reason"),
        pytest.param(
            shown(REASON_CPU_MOVED, holds=True), shown(REASON_CPU_MOVED), False, id="resized"
        ),
    ],
)
def test_when_only_the_words_differ(
    now: dict[str, Shown], before: dict[str, Shown], *, same: bool
) -> None:
    assert same_but_words(now, before) is same
