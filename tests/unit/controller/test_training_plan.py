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
    same_but_texts,
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
        Verdict,
        st.sampled_from(sorted(RESIZED.reasons | SCALED.reasons)),
        st.text(max_size=1200),
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
def test_progress_is_false_for_a_stalled_job_and_unknown_for_an_unread_log(
    moves: Verdict | None, status: str
) -> None:
    shown = TrainingPlanStatus(progress=Reported(moves=moves, cpu=0.5))
    stored = encode_status(shown, {}, now=0.0)
    result = {each["type"]: each["status"] for each in stored["conditions"]}
    assert result.get(PROGRESSING, "") == status
    read = decode_training_plan(orjson.dumps({"status": stored}))
    assert read.status.progress is not None
    assert read.status.progress.moves == moves


def test_a_condition_that_is_set_again_has_the_time_of_that_change() -> None:
    transitions: dict[str, Transition] = {}
    times = []
    for now, moves in ((0.0, STALLED), (60.0, None), (120.0, STALLED), (180.0, STALLED)):
        status = TrainingPlanStatus(progress=Reported(moves=moves))
        stored = encode_status(status, transitions, now=now)
        result = {each["type"]: each["lastTransitionTime"] for each in stored["conditions"]}
        times.append(result.get(PROGRESSING, ""))
    assert times == [written_time(0.0), "", *[written_time(120.0)] * 2]


@given(st.dictionaries(st.sampled_from(["type", "status", "reason", "message"]), json_values))
def test_malformed_data_is_read_without_an_error(raw: dict[str, Any]) -> None:
    conditions = [raw, {**raw, "type": RESIZED}, {**raw, "type": SCALED}]
    decode_training_plan(msgspec.json.encode({"status": {"conditions": conditions, "posted": raw}}))


def test_without_the_condition_the_job_has_not_opted_in() -> None:
    placed = {"status": {"conditions": [{"type": "Placed", "status": "True"}]}}
    assert decode_training_plan(orjson.dumps(placed)).status.conditions == {}


def shown(
    reason: str = REASON_WOULD_MOVE, words: str = "", *, holds: bool = False
) -> dict[str, ConditionStatus]:
    return {RESIZED.type: ConditionStatus(holds, Verdict(reason, words))}


@pytest.mark.parametrize(
    ("now", "before", "same"),
    [
        pytest.param({}, {}, True, id="never opted in"),
        pytest.param(shown(words="a"), shown(words="b"), True, id="other words"),
        pytest.param(shown(), {}, False, id="opted in"),
        pytest.param({}, shown(), False, id="opted out"),
        pytest.param(shown(), {SCALED.type: shown()[RESIZED.type]}, False, id="another condition"),
        pytest.param(shown(), shown(REASON_CPU_RESTORED), False, id="another reason"),
        pytest.param(
            shown(REASON_CPU_MOVED, holds=True), shown(REASON_CPU_MOVED), False, id="resized"
        ),
    ],
)
def test_when_only_the_texts_differ(
    now: dict[str, ConditionStatus], before: dict[str, ConditionStatus], *, same: bool
) -> None:
    assert (
        same_but_texts(TrainingPlanStatus(conditions=now), TrainingPlanStatus(conditions=before))
        is same
    )


def test_the_field_of_the_webhook_is_read_and_is_no_part_of_the_controllers_status() -> None:
    posted = Posted("uid", (Post(1.7e9, 40, 100, (("loss", 0.5),)),))
    read = decode_training_plan(orjson.dumps({"status": {"posted": encode_posted(posted)}}))
    assert read.posted == posted
    assert read.status == decode_training_plan(b"{}").status
    assert "posted" not in encode_status(read.status, {}, now=0.0)


REQUESTS: dict[str, tuple[JobBuilder, dict[str, str]]] = {
    "the pod with devices, whatever CPU the others have": (
        job("TFJob").ps(1, cpu="32").worker(2, cpu="1500m", gpus=1),
        {"cpu": "1500m", "nvidia.com/gpu": "1"},
    ),
    "the pod with most CPU": (
        job("TFJob").ps(1, cpu="500m").worker(2, cpu="2"),
        {"cpu": "2000m"},
    ),
    "no pod that does not exist": (
        job("TFJob").ps(0, cpu="64").worker(2, cpu="1"),
        {"cpu": "1000m"},
    ),
    "a pod without requests": (job().worker(1), {}),
}


@pytest.mark.parametrize(("made", "want"), REQUESTS.values(), ids=REQUESTS)
def test_the_requests_of_a_job_are_those_of_its_largest_pod(
    made: JobBuilder, want: dict[str, str]
) -> None:
    assert largest_requests(made.build()) == want


def test_a_template_with_too_many_resources_is_cut() -> None:
    (group,) = job().worker(1).build().groups
    many = {f"team.example/{number}": 1 for number in range(100)} | {"x" * 1000: 1}
    requests = largest_requests(replace(job().build(), groups=(replace(group, requests=many),)))
    assert (len(requests), max(map(len, requests))) == (16, len("team.example/15"))
