"""`kubectl kfext queue` and `top`: which jobs they list, in which order, and what they print."""

import json
from contextlib import nullcontext
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from kfext.cli.jobs import ORDERS, queue_lines, queue_of, top, top_lines, top_of
from kfext.cli.output import format_output
from kfext.errors import Unavailable
from kfext.model.job import parse_job
from kfext.model.priority import PriorityClass
from kfext.model.timestamps import written_time
from tests.builders import job
from tests.trainjobs import train_job

LATER = 10_000.0
CLASSES = {"high": PriorityClass("high", 1000)}


def waiting() -> list[dict[str, object]]:
    return lines_with(classes=CLASSES)


def lines_with(*, classes: dict[str, PriorityClass] | None) -> list[dict[str, object]]:
    old = job(name="old", uid="1").worker(2, cpu="1", gpus=1).held().created(0).build()
    urgent = job("TFJob", name="urgent", uid="2").ps(1).worker(1, cpu="500m").held().created(9_940)
    urgent.prioritized("high")
    runs = job(name="runs", uid="3").worker(1).build()
    statuses: dict[str, dict[str, Any]] = {
        "1": {"phase": "Queued", "reason": "NoRoom", "message": "1 cpu short", "ahead": 1},
        "2": {
            "phase": "Queued",
            "reason": "NoRoom",
            "message": "",
            "ahead": 0,
            "expectedStart": {"summary": "14:10-14:40 UTC"},
        },
        "3": {"phase": "Placed"},
    }
    return queue_of([old, urgent.build(), runs], statuses=statuses, classes=classes, now=LATER)


def test_only_waiting_jobs_are_listed_in_the_order_of_the_controller() -> None:
    assert [line["name"] for line in waiting()] == ["urgent", "old"]


def test_a_job_that_has_no_position_yet_is_listed_last() -> None:
    early = job(name="early", uid="4").worker(1).held().created(0).build()
    known = job(name="known", uid="5").worker(1).held().created(9_000).build()
    lines = queue_of([early, known], statuses={"5": {"ahead": 0}}, classes=CLASSES, now=LATER)
    assert [line["name"] for line in lines] == ["known", "early"]


def test_a_job_of_higher_priority_is_listed_first_though_older_positions_do_not_count_it() -> None:
    older = job(name="older", uid="4").worker(1).held().created(0).build()
    urgent = job(name="urgent", uid="5").worker(1).held().created(9_000).prioritized("high").build()
    statuses = {"4": {"ahead": 0}, "5": {"ahead": 0}}
    lines = queue_of([older, urgent], statuses=statuses, classes=CLASSES, now=LATER)
    assert [line["name"] for line in lines] == ["urgent", "older"]


def test_the_queue_as_a_table() -> None:
    empty = " " * len("14:10-14:40 UTC")
    assert [*queue_lines(waiting(), namespace="")] == [
        "#  PRIORITY   AGE  PODS  ASKS                     JOB                  "
        f"{'STARTS':15}  REASON",
        "1  1000 high  60s  2     0.5 cpu                  TFJob team/urgent    "
        "14:10-14:40 UTC  NoRoom",
        f"2  0          2h   2     2 cpu, 2 nvidia.com/gpu  PyTorchJob team/old  {empty}  NoRoom",
        "    1 cpu short",
    ]


def test_the_queue_shows_the_minimum_and_the_requested_size_of_an_elastic_job() -> None:
    wide = job("TFJob", name="wide", uid="9").ps(2).worker(12).held().created(0).build()
    status = {"phase": "Queued", "workers": 12, "minimumWorkers": 3}
    (line,) = queue_of([wide], statuses={"9": status}, classes=CLASSES, now=LATER)
    assert (line["minimumPods"], line["pods"]) == (5, 14)
    head, row, *_ = queue_lines([line], namespace="team")
    assert row[head.index("PODS") :].startswith("5 of 14")


def test_an_empty_queue() -> None:
    assert [*queue_lines([], namespace="")] == ["no job waits"]
    assert [*queue_lines([], namespace="team")] == ["no job waits in namespace team"]


def test_a_priority_has_all_of_its_digits() -> None:
    (line,) = (line for line in waiting() if line["name"] == "urgent")
    _, row = queue_lines([{**line, "priority": 2_000_000_001}], namespace="team")
    assert row.startswith("2000000001 high  60s")


def test_no_position_is_shown_for_a_single_namespace() -> None:
    head, first, *_ = queue_lines(waiting(), namespace="team")
    assert head.startswith("PRIORITY")
    assert first.startswith("1000 high  60s")


def test_no_priority_is_shown_without_the_classes() -> None:
    urgent, old = lines_with(classes=None)
    assert (old["priority"], old["priorityClass"]) == (None, "")
    assert (urgent["priority"], urgent["priorityClass"]) == (None, "high")
    _, row, *_ = queue_lines([old], namespace="team")
    assert row.startswith("?         2h")


def test_no_values_are_shown_for_a_job_with_an_unreadable_jobset() -> None:
    hidden = parse_job(train_job(held=True))
    assert hidden is not None
    low = job(name="low", uid="4").worker(1).held().created(0).prioritized("high").build()
    statuses = {"4": {"ahead": 1}, hidden.uid: {"ahead": 0}}
    lines = queue_of([low, hidden], statuses=statuses, classes=CLASSES, now=LATER)
    assert [line["name"] for line in lines] == ["train", "low"]
    shown = [*queue_lines(lines, namespace="")][1].split()
    assert (shown[1], shown[3], shown[4]) == ("?", "?", "?")


def test_a_job_that_is_held_without_a_plan_is_listed() -> None:
    only = job(name="only", uid="9").worker(1).held().created(0).build()
    (line,) = queue_of([only], statuses={}, classes=CLASSES, now=LATER)
    assert (line["name"], line["reason"]) == ("only", "")
    assert "is the controller running" in line["message"]


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_the_queue_for_programs(output: str) -> None:
    shown = format_output(waiting(), output=output, text=str)
    read = json.loads(shown) if output == "json" else yaml.safe_load(shown)
    assert [line["priority"] for line in read] == [1000, 0]


NOW = 1_800_000_000.0


def plan(name: str, *, workers: int = 2, **progress: Any) -> dict[str, Any]:
    status = {"phase": "Placed", "workers": workers}
    return {
        "metadata": {"namespace": "team", "name": f"pytorchjob-{name}"},
        "spec": {"job": {"kind": "PyTorchJob", "name": name}},
        "status": {**status, **({"progress": progress} if progress else {})},
    }


FAST = plan(
    "fast",
    metric="loss",
    value=0.123456,
    step=40,
    totalSteps=100,
    growth=0.25,
    state="New",
    cpu="1500m",
    secondsLeft=7200,
    time=written_time(NOW - 12),
)
SLOW = plan("slow", workers=8, metric="acc", growth=0.0, state="Completing", cpu="4", secondsLeft=5)
PRINTS = plan("prints", workers=1, metric="badness", value=3, step=7)
SILENT = plan("silent", workers=16)
ALL = [SILENT, PRINTS, SLOW, FAST]


def names(*plans: dict[str, Any], sort: str = "growth") -> list[str]:
    return [line["name"] for line in top_of(plans, sort=sort, now=NOW)]


ORDER = {
    "growth": ["fast", "slow", "prints", "silent"],
    "cpu": ["slow", "fast", "prints", "silent"],
    "workers": ["slow", "fast", "prints", "silent"],
    "left": ["slow", "fast", "prints", "silent"],
}


@pytest.mark.parametrize(("sort", "want"), ORDER.items())
def test_unknown_values_are_last_in_any_order(sort: str, want: list[str]) -> None:
    assert names(*ALL, sort=sort) == names(*reversed(ALL), sort=sort) == want


def test_every_order_is_tried() -> None:
    assert set(ORDERS) == ORDER.keys()


def test_equal_jobs_are_in_the_order_of_their_names() -> None:
    plans = [plan(name, growth=0.5) for name in ("c", "a", "b")]
    assert names(*plans) == ["a", "b", "c"]


def test_jobs_without_progress_are_in_the_same_order() -> None:
    assert names(plan("a"), plan("b", workers=9), sort="workers") == ["b", "a"]


def text(*plans: dict[str, Any], namespace: str = "") -> str:
    lines = top_of(plans, sort="growth", now=NOW)
    return format_output(lines, output="text", text=lambda: top_lines(lines, namespace))


def test_the_jobs_as_a_table() -> None:
    assert text(*ALL).splitlines() == [
        "JOB                     PHASE   STEP    METRIC   VALUE   GROWTH  STATE       CPU  WORKERS"
        "  LEFT  REPORTED",
        "PyTorchJob team/fast    Placed  40/100  loss     0.1235  0.25    New         1.5  2      "
        "  2h    12s",
        "PyTorchJob team/slow    Placed          acc              0       Completing  4    8      "
        "  5s",
        "PyTorchJob team/prints  Placed  7       badness  3                                1",
        "PyTorchJob team/silent  Placed                                                    16",
    ]


def test_a_job_with_changed_limits_is_marked() -> None:
    changed = {"conditions": [{"type": "Resized", "status": "True"}]}
    lines = text(
        {**FAST, "status": {**FAST["status"], **changed}},
        {**SILENT, "status": {**SILENT["status"], **changed}},
    ).splitlines()
    head, fast, silent = lines
    assert fast[head.index("CPU") :].split()[:2] == ["1.5*", "2"]
    assert silent[head.index("CPU") :].split()[:2] == ["*", "16"]
    (line,) = top_of([SLOW], sort="cpu", now=NOW)
    assert line["resized"] is False


@pytest.mark.parametrize(
    ("requested", "want"), [(12, "8 of 12"), (4, "8"), (None, "8"), ("many", "8")]
)
def test_a_job_with_fewer_workers_than_requested_shows_both(requested: Any, want: str) -> None:
    head, row = text(
        {**SLOW, "status": {**SLOW["status"], "requestedWorkers": requested}}
    ).splitlines()
    assert row[head.index("WORKERS") : head.index("LEFT")].strip() == want


def test_a_job_that_is_stalled_is_marked() -> None:
    stalled = {"conditions": [{"type": "Progressing", "status": "False"}]}
    lines = text({**FAST, "status": {**FAST["status"], **stalled}}, SLOW).splitlines()
    head, fast, slow = lines
    assert fast[head.index("STATE") :].split()[0] == "Stalled"
    assert slow[head.index("STATE") :].split()[0] == "Completing"


def test_a_job_that_may_be_stalled_is_not_marked() -> None:
    unknown = {"conditions": [{"type": "Progressing", "status": "Unknown"}]}
    (line,) = top_of([{**FAST, "status": {**FAST["status"], **unknown}}], sort="cpu", now=NOW)
    assert line["stalled"] is False


def test_without_a_running_job_the_table_is_a_sentence() -> None:
    assert text() == "kfext handles no running job\n"
    here = "kfext handles no running job in namespace team\n"
    assert text(namespace="team") == here


def test_no_text_of_a_plan_controls_the_terminal_or_adds_a_line() -> None:
    harmful = plan("x", metric="\x1b]0;title\x07\x1b[2Jloss\nPyTorchJob other/job", growth=1.0)
    harmful["spec"]["job"]["name"] = "\x9b2Jx\u202e"
    head, line = text(harmful).splitlines()
    assert head.startswith("JOB")
    assert line.isprintable()
    assert "loss PyTorchJob other/j…" in line


ODD: dict[str, dict[str, Any]] = {
    "nothing at all": {},
    "texts in place of objects": {"metadata": "x", "spec": "x", "status": "x"},
    "a number in place of a name": {"spec": {"job": {"name": 7, "kind": []}}},
    "workers in words": {"status": {"workers": "two", "phase": 3}},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_foreign_plan_is_listed_without_its_malformed_parts(odd: dict[str, Any]) -> None:
    assert [line["name"] for line in top_of([odd, FAST], sort="workers", now=NOW)] == ["fast", ""]
    assert len(text(odd, FAST).splitlines()) == 3


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_the_jobs_for_programs(output: str, read: Any) -> None:
    lines = read(format_output(top_of(ALL, sort="growth", now=NOW), output=output, text=str))
    assert [line["name"] for line in lines] == ORDER["growth"]
    assert lines[0]["progress"]["secondsLeft"] == 7200
    assert lines[-1]["progress"] is None


ANSWERED: dict[str, tuple[list[bool], int, int]] = {
    "each request is answered": ([True, True, True], 3, 0),
    "some requests are not, so the last table is shown again": ([True, False, True], 3, 0),
    "the first request is not": ([False, True], 0, 1),
}


@pytest.mark.parametrize(("answered", "tables", "code"), ANSWERED.values(), ids=ANSWERED)
def test_a_watch_ends_only_if_its_first_request_is_not_answered(
    answered: list[bool], tables: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(answered)

    async def all_plans(*_: object, **__: object) -> list[dict[str, Any]]:
        answer = next(answers, None)
        if answer is None:
            raise KeyboardInterrupt
        if not answer:
            raise Unavailable(status=0, reason="NoAnswer", message="TimeoutError")
        return [plan("train")]

    monkeypatch.setattr("kfext.cli.cluster.ClusterOptions.connect", lambda _: nullcontext())
    monkeypatch.setattr("kfext.cli.jobs.all_plans", all_plans)
    monkeypatch.setattr("kfext.cli.jobs.WATCH_SECONDS", 0.0)
    done = CliRunner().invoke(top, ["--watch", "-n", "team"])
    assert (done.output.count("train"), done.exit_code) == (tables, code)
