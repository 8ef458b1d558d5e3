"""The progress of a job for people, in its TrainingPlan and in its log."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.harness.katib import with_collector
from kfext import names
from kfext.cli.progress import (
    log_lines,
    progress_in,
    progress_lines,
    read_log,
    recognise,
    shows,
    steps,
)
from kfext.core.progress.followed import Followed
from kfext.core.progress.reported import GrowthState
from kfext.kube.pod_log import lines_of
from kfext.model.log_line import LogLine
from kfext.model.moment import Moment
from kfext.model.timestamps import written_time
from tests.builders import job, pod
from tests.contract.manifests import schema

STATUSES: dict[str, tuple[dict[str, Any], bool]] = {
    "resized": ({"conditions": [{"type": "Resized", "status": "True"}]}, True),
    "not resized": ({"conditions": [{"type": "Resized", "status": "False"}]}, False),
    "another condition": ({"conditions": [{"type": "Placed", "status": "True"}]}, False),
    "no conditions": ({}, False),
    "malformed conditions": ({"conditions": [7, {"type": ["Resized"], "status": {}}]}, False),
}


@pytest.mark.parametrize(("status", "want"), STATUSES.values(), ids=STATUSES)
def test_whether_a_condition_has_a_status(status: dict[str, Any], *, want: bool) -> None:
    assert shows(status, names.RESIZED, "True") is want


NOW = 1_800_000_000.0
FULL = {
    "metric": "loss",
    "value": 0.8,
    "step": 40,
    "totalSteps": 100,
    "stepsPerSecond": 10,
    "secondsLeft": 6,
    "growth": 0.25,
    "state": "New",
    "cpu": "1500m",
    "time": written_time(NOW - 90),
}


def progress_of(**raw: Any) -> dict[str, Any]:
    progress = progress_in({"progress": raw}, now=NOW)
    assert progress is not None
    return progress


def test_all_fields_of_progress() -> None:
    assert progress_of(**FULL) == {
        "metric": "loss",
        "value": 0.8,
        "step": 40,
        "totalSteps": 100,
        "stepsPerSecond": 10,
        "secondsLeft": 6,
        "growth": 0.25,
        "state": "New",
        "cpuCores": 1.5,
        "ageSeconds": 90,
    }


@pytest.mark.parametrize("status", [{}, {"progress": {}}, {"progress": [1]}, {"progress": None}])
def test_a_status_without_progress_shows_none(status: dict[str, Any]) -> None:
    assert progress_in(status, now=NOW) is None


def test_a_time_alone_is_no_progress() -> None:
    assert progress_in({"progress": {"time": FULL["time"]}}, now=NOW) is None


def test_the_states_agree_with_the_schema() -> None:
    status = schema("trainingplans")["properties"]["status"]["properties"]
    assert status["progress"]["properties"]["state"]["enum"] == list(GrowthState)


WRONG = {
    "a number in words": ("value", "0.5"),
    "not a number": ("value", float("nan")),
    "an infinite growth": ("growth", float("inf")),
    "a boolean": ("step", True),
    "a step before the first": ("step", -1),
    "a fraction of a step": ("totalSteps", 1.5),
    "an unknown state": ("state", "Growing"),
    "a list": ("state", ["New"]),
    "a malformed quantity": ("cpu", "all"),
    "a metric without a name": ("metric", "\x1b[2J\r\n"),
    "a malformed time": ("time", "yesterday"),
}
SHOWN_AS = {"cpu": "cpuCores", "time": "ageSeconds"}


@pytest.mark.parametrize(("name", "value"), WRONG.values(), ids=WRONG)
def test_a_malformed_field_is_omitted_and_the_others_are_shown(name: str, value: object) -> None:
    progress = progress_of(**{**FULL, name: value})
    whole = progress_of(**FULL)
    field = SHOWN_AS.get(name, name)
    assert progress.pop(field) in {None, ""}
    del whole[field]
    assert progress == whole


def test_a_report_of_the_future_has_the_age_zero() -> None:
    assert progress_of(**{**FULL, "time": written_time(NOW + 60)})["ageSeconds"] == 0


NAMES = {
    "colours": ("\x1b[31mloss\x1b[0m", "loss"),
    "an escape in one character": ("\x9b31mloss", "31mloss"),
    "a line end": ("loss\nPyTorchJob other/job", "loss PyTorchJob other/j…"),
    "a name that is too long": ("x" * 253, "x" * 23 + "…"),
    "a name of the right length": ("x" * 24, "x" * 24),
}


@pytest.mark.parametrize(("raw", "want"), NAMES.values(), ids=NAMES)
def test_the_name_of_a_metric_is_short_and_harmless(raw: str, want: str) -> None:
    assert progress_of(metric=raw, step=1)["metric"] == want


@given(st.text())
def test_no_name_of_a_metric_writes_to_the_terminal(raw: str) -> None:
    name = progress_of(metric=raw, step=1)["metric"]
    assert len(name) <= 24
    assert name.isprintable()


PROGRESS_WORDS = {
    "all of it": (
        FULL,
        [
            "loss 0.8, step 40 of 100, 10 a second, 6s left (90s ago)",
            "growth 0.25, New, uses 1.5 CPUs",
        ],
    ),
    "a metric without steps": ({"metric": "acc", "value": 0.123456}, ["acc 0.1235"]),
    "steps without a total": ({"step": 7}, ["step 7"]),
    "a metric without a value that is a number": ({"metric": "loss"}, ["loss"]),
    "growth alone": ({"growth": 0.0, "state": "Completing"}, ["growth 0, Completing"]),
    "use alone": ({"cpu": "1"}, ["uses 1 CPU"]),
}


@pytest.mark.parametrize(("raw", "want"), PROGRESS_WORDS.values(), ids=PROGRESS_WORDS)
def test_the_progress_in_words(raw: dict[str, Any], want: list[str]) -> None:
    assert list(progress_lines(progress_of(**raw))) == want


def test_the_step_in_short() -> None:
    short = [steps(progress_of(**raw)) for raw in (FULL, {"step": 7}, {"value": 1})]
    assert short == ["40/100", "7", ""]


JOB = job().worker(2, cpu="1").resumed().build()
POD = pod(JOB, "worker", 0, bound="a")


def shown(*texts: str, expression: str = "", now: float = 1e12) -> dict[str, Any]:
    body = "\n".join(f"2026-11-22T10:00:{at:02}.5Z {text}" for at, text in enumerate(texts))
    lines = lines_of(body.encode())
    return recognise(JOB, POD, lines, expression=expression, now=now)


def in_words(results: dict[str, Any]) -> str:
    return "\n".join(log_lines(results))


TRAINING = ["starting", *(f"step {10 * n}/100 loss {1 - n / 20}" for n in range(5)), "saved"]


def test_the_matched_lines_and_the_series() -> None:
    result = shown(*TRAINING)
    assert (result["lines"], result["recognised"]) == (7, 5)
    progress = result["progress"]
    assert (progress["metric"], progress["value"], result["better"]) == ("loss", 0.8, "lower")
    assert (progress["step"], progress["totalSteps"]) == (40, 100)
    assert (progress["stepsPerSecond"], progress["secondsLeft"]) == (10.0, 6)
    assert [point["step"] for point in result["series"]] == [0, 10, 20, 30, 40]
    assert result["series"][0]["metrics"] == {"loss": 1.0}


def test_the_output_for_a_person() -> None:
    words = in_words(shown(*TRAINING))
    assert words.splitlines()[:3] == [
        "  log      5 of 7 lines of train-worker-0 (pytorch) recognised without a setting",
        "  log      loss 0.8, step 40 of 100, 10 a second, 6s left",
        "  log      lower is better",
    ]
    last = words.splitlines()[-1]
    assert last.split() == ["10:00:05", "40", "loss=0.8", *["step", "40/100", "loss", "0.8"]]


def test_the_progress_of_the_last_30_s_is_shown_as_a_fraction_of_the_first() -> None:
    result = shown(*(f"loss {2.0 if second < 30 else 1.5}" for second in range(60)))
    assert result["gained"] == pytest.approx(0.25)
    assert "last 30 s: 0.25 of the progress of the first" in in_words(result)


TABLES = {
    "spaces": ["epoch  step  train_loss", "1  10  0.5", "1  20  0.4"],
    "CSV": ["epoch,step,train_loss", "1,10,0.5", "1,20,0.4"],
    "a notebook's": ["Step\tTraining Loss", "10\t0.5", "20\t0.4"],
}


@pytest.mark.parametrize("lines", TABLES.values(), ids=TABLES)
def test_rows_of_a_table_are_shown_as_the_controller_reads_them(lines: list[str]) -> None:
    result, followed = shown(*lines), Followed()
    now = Moment(wall=NOW, monotonic=NOW)
    followed.read_lines([LogLine(at, line) for at, line in enumerate(lines)], now=now)
    progress = followed.reported().progress
    assert (result["recognised"], result["progress"]["step"]) == (2, 20)
    assert (result["progress"]["metric"], result["progress"]["value"]) == (progress.metric, 0.4)
    assert (progress.step, progress.value) == (20, 0.4)


def test_a_log_without_progress_is_reported() -> None:
    words = in_words(shown("lr: 0.1", "done"))
    assert "0 of 2 lines" in words
    assert "try --regex" in words


def test_an_expression_replaces_the_recognised_forms() -> None:
    result = shown("badness is 3", "loss is 5", expression=r"badness is (?P<value>\d)")
    assert (result["recognised"], result["progress"]["value"]) == (1, 3.0)
    assert "by the expression" in in_words(result)


@pytest.mark.parametrize("word", ["nan", "inf"])
def test_a_value_that_is_no_number_is_shown_as_such(word: str) -> None:
    result = shown("loss: 1.0", f"loss: {word}")
    assert result["diverged"]
    assert result["series"][-1]["metrics"] == {"loss": None}
    assert "the last value is not a number" in in_words(result)
    assert "loss=not a number" in in_words(result)
    numbers = [result["progress"]["value"], result["progress"]["stepsPerSecond"]]
    assert all(number is None or math.isfinite(number) for number in numbers)


async def test_the_log_of_the_collector_is_read_for_a_trial_of_katib() -> None:
    class FakeClient:
        async def read(self, _: str, **query: str) -> bytes:
            assert query["container"] == "metrics-logger-and-collector"
            header = "2026-11-27T10:00:00Z I1127 10:00:00.123456      14 main.go:143]"
            return f"{header} step 3/40 loss=0.25\n".encode()

    trial = job().worker(1, cpu="1").resumed().build()
    spec = with_collector({"containers": [{"name": "pytorch", "image": "i", "command": ["train"]}]})
    pods = [pod(trial, "worker", 0, bound="node-1", spec=spec)]
    log = await read_log(FakeClient(), trial, pods, regex="")  # type: ignore[arg-type]
    assert log["container"] == "metrics-logger-and-collector"
    assert (log["progress"]["step"], log["progress"]["value"]) == (3, 0.25)
