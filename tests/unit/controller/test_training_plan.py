"""A TrainingPlan's status is read back as it was written."""

from dataclasses import replace
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.controller.training_plan import (
    TrainingPlanStatus,
    Transition,
    as_written,
    decode_training_plan,
    encode_status,
    largest_requests,
    same_but_details,
)
from kfext.core.progress.posted import Post, Posted, encode_posted
from kfext.core.progress.reported import Reported
from kfext.model.timestamps import written_time
from kfext.model.verdict import Verdict
from kfext.names import (
    PLANNED,
    PROGRESSING,
    REASON_CPU_MOVED,
    REASON_CPU_RESTORED,
    REASON_HOST_NETWORK,
    REASON_LOG_FORBIDDEN,
    REASON_SETTINGS_INVALID,
    REASON_SHARE_EDITED,
    REASON_STALLED,
    REASON_WOULD_MOVE,
)
from kfext.state.running.cpu.cadence import RESIZED
from kfext.state.running.policy import ConditionStatus
from kfext.state.running.size.scale import SCALED
from tests.builders import JobBuilder, job
from tests.unit.objects import json_values

STALLED = Verdict(REASON_STALLED, "no counter of its log has moved since 10:00:00 UTC")
TYPES = [
    *(PLANNED, REASON_HOST_NETWORK, REASON_SETTINGS_INVALID, REASON_SHARE_EDITED),
    *(RESIZED.type, SCALED.type),
]
_shown = st.builds(
    ConditionStatus,
    holds=st.booleans(),
    verdict=st.builds(
        Verdict, st.sampled_from(sorted(RESIZED.reasons | SCALED.reasons)), st.text(max_size=1200)
    ),
)


@given(st.dictionaries(st.sampled_from(TYPES), _shown))
def test_a_written_status_is_read_back(shown: dict[str, ConditionStatus]) -> None:
    written = {type_: as_written(condition) for type_, condition in shown.items()}
    status = TrainingPlanStatus(conditions=written)
    stored = orjson.loads(orjson.dumps(encode_status(status, {}, now=0.0)))
    assert all(len(condition["message"]) <= 1024 for condition in stored["conditions"])
    assert decode_training_plan(orjson.dumps({"status": stored})).status == status


@pytest.mark.parametrize(
    ("moves", "status"),
    [(STALLED, "False"), (Verdict(REASON_LOG_FORBIDDEN, "why"), "Unknown"), (None, "")],
)
def test_progressing_is_false_only_for_a_stalled_job(moves: Verdict | None, status: str) -> None:
    shown = TrainingPlanStatus(progress=Reported(moves=moves, cpu=0.5))
    stored = encode_status(shown, {}, now=0.0)
    result = {condition["type"]: condition["status"] for condition in stored["conditions"]}
    assert result.get(PROGRESSING, "") == status
    read = decode_training_plan(orjson.dumps({"status": stored}))
    assert read.status.progress is not None
    assert read.status.progress.moves == moves


def test_a_condition_that_is_removed_and_set_again_has_the_time_of_the_last_change() -> None:
    transitions: dict[str, Transition] = {}
    times = []
    for now, moves in ((0.0, STALLED), (60.0, None), (120.0, STALLED), (180.0, STALLED)):
        status = TrainingPlanStatus(progress=Reported(moves=moves))
        stored = encode_status(status, transitions, now=now)
        conditions = {condition["type"]: condition for condition in stored["conditions"]}
        times.append(conditions.get(PROGRESSING, {}).get("lastTransitionTime", ""))
    assert times == [written_time(0.0), "", *[written_time(120.0)] * 2]


@given(st.dictionaries(st.sampled_from(["type", "status", "reason", "message"]), json_values))
def test_malformed_data_is_read_without_an_error(raw: dict[str, Any]) -> None:
    conditions = [raw, {**raw, "type": RESIZED}, {**raw, "type": SCALED}]
    decode_training_plan(msgspec.json.encode({"status": {"conditions": conditions, "posted": raw}}))


def test_a_training_plan_with_only_the_condition_placed_has_no_further_conditions() -> None:
    placed = {"status": {"conditions": [{"type": "Placed", "status": "True"}]}}
    assert decode_training_plan(orjson.dumps(placed)).status.conditions == {}


def resized(
    reason: str = REASON_WOULD_MOVE, message: str = "", *, holds: bool = False
) -> dict[str, ConditionStatus]:
    return {RESIZED.type: ConditionStatus(holds, Verdict(reason, message))}


@pytest.mark.parametrize(
    ("now", "before", "same"),
    [
        pytest.param({}, {}, True, id="no condition"),
        pytest.param(resized(message="a"), resized(message="b"), True, id="a new message"),
        pytest.param(resized(), {}, False, id="a new condition"),
        pytest.param({}, resized(), False, id="a removed condition"),
        pytest.param(resized(), {SCALED.type: resized()[RESIZED.type]}, False, id="a new type"),
        pytest.param(resized(), resized(REASON_CPU_RESTORED), False, id="a new reason"),
        pytest.param(
            resized(REASON_CPU_MOVED, holds=True),
            resized(REASON_CPU_MOVED),
            False,
            id="a new status",
        ),
    ],
)
def test_whether_only_the_details_of_two_statuses_differ(
    now: dict[str, ConditionStatus], before: dict[str, ConditionStatus], *, same: bool
) -> None:
    current, written = TrainingPlanStatus(conditions=now), TrainingPlanStatus(conditions=before)
    assert same_but_details(current, written) is same


def test_the_posts_that_the_webhook_writes_are_read_and_not_written_by_the_controller() -> None:
    posted = Posted("uid", (Post(1.7e9, 40, 100, (("loss", 0.5),)),))
    read = decode_training_plan(orjson.dumps({"status": {"posted": encode_posted(posted)}}))
    assert read.posted == posted
    assert read.status == decode_training_plan(b"{}").status
    assert "posted" not in encode_status(read.status, {}, now=0.0)


REQUESTS: dict[str, tuple[JobBuilder, dict[str, str]]] = {
    "the pod with devices is the largest": (
        job("TFJob").ps(1, cpu="32").worker(2, cpu="1500m", gpus=1),
        {"cpu": "1500m", "nvidia.com/gpu": "1"},
    ),
    "without devices the pod with most CPU is the largest": (
        job("TFJob").ps(1, cpu="500m").worker(2, cpu="2"),
        {"cpu": "2000m"},
    ),
    "a group without pods does not count": (
        job("TFJob").ps(0, cpu="64").worker(2, cpu="1"),
        {"cpu": "1000m"},
    ),
    "no pod has requests": (job().worker(1), {}),
}


@pytest.mark.parametrize(("builder", "want"), REQUESTS.values(), ids=REQUESTS)
def test_the_requests_shown_for_a_job_are_the_requests_of_its_largest_pod(
    builder: JobBuilder, want: dict[str, str]
) -> None:
    assert largest_requests(builder.build()) == want


def test_too_many_resources_and_too_long_names_are_left_out() -> None:
    (group,) = job().worker(1).build().groups
    many = {f"team.example/{number}": 1 for number in range(100)} | {"x" * 1000: 1}
    requests = largest_requests(replace(job().build(), groups=(replace(group, requests=many),)))
    assert (len(requests), max(map(len, requests))) == (16, len("team.example/15"))
