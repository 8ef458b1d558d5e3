"""Logs in the formats of many frameworks: readings are right or unknown, but never wrong."""

from collections import Counter
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from kfext.core.progress.course import Course
from kfext.core.progress.fields import Table
from kfext.core.progress.lines import read_line


class Case(NamedTuple):
    """A log of `corpus.yaml`.

    `lines`: the printed lines, without line ends.
    `position`, `total`: the step after the last line and the total of steps, or epochs if the log
        shows no steps; None means that the log shows neither.
    `measures`: the last value of each training measure that may be read, by name; None means that
        the log has none.
    `restarts`: how often the run restarted from an earlier step.
    `epoch`: the epoch and the total of epochs, if the steps in the log are ambiguous.
    """

    kind: str
    name: str
    source: str
    lines: Sequence[str]
    position: int | None
    total: int | None
    measures: dict[str, float] | None
    restarts: int
    epoch: Sequence[int] = ()


CORPUS = Path(__file__).with_name("corpus.yaml")
CASES = [Case(**case) for case in yaml.load(CORPUS.read_text(), Loader=yaml.CSafeLoader)]


class Judgement(Enum):
    """Whether a value of a log, or a whole log, is read right."""

    RIGHT = "right"
    NOT_KNOWN = "not known"
    WRONG = "wrong"


RIGHT, NOT_KNOWN, WRONG = Judgement


def read(lines: Sequence[str]) -> Course:
    course, table = Course(30.0), Table()
    for number, raw in enumerate(lines):
        line = read_line(table.label(raw))
        if line is not None:
            course.read_line(line, at=float(number), now=1e9)
    return course


def judge(case: Case, course: Course) -> dict[str, Judgement]:
    """Return whether position, total, measure and restarts are read right."""
    progress = course.progress()
    value = (case.measures or {}).get(progress.metric)
    measure = NOT_KNOWN if not progress.metric else RIGHT if value == progress.value else WRONG
    if case.measures is None and not progress.metric:
        measure = RIGHT
    position = (progress.step, progress.total)
    step, total = case.epoch if position == tuple(case.epoch) else (case.position, case.total)
    return {
        "position": _judge_number(progress.step, step),
        "total": _judge_number(progress.total, total),
        "measure": measure,
        "restarts": RIGHT if course.restarts == case.restarts else WRONG,
    }


def _judge_number(result: int | None, want: int | None) -> Judgement:
    if result == want:
        return RIGHT
    return NOT_KNOWN if result is None else WRONG


def judge_log(case: Case) -> Judgement:
    judgements = judge(case, read(case.lines)).values()
    return next(worst for worst in (WRONG, NOT_KNOWN, RIGHT) if worst in judgements)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_no_value_of_a_log_is_read_wrong(case: Case) -> None:
    course = read(case.lines)
    assert WRONG not in judge(case, course).values(), (judge(case, course), course.progress())


def test_at_least_95_percent_of_the_logs_are_read_right() -> None:
    counts = Counter(judge_log(case) for case in CASES)
    assert counts[RIGHT] >= len(CASES) * 0.95, counts


OTHER = [
    "Loading checkpoint shards:  50%|#####     | 2/4 [00:01<00:01,  1.2it/s]",
    "Map:  45%|####      | 450/1000 [00:01<00:01, 400.12 examples/s]",
    "model.safetensors: 100%|##########| 1.00G/1.00G [00:04<00:00, 100MB/s]",
    "batch_size: 32, warmup_steps: 100, grad_acc: 4, max_grad_norm: 1.0",
    "Evaluating: 100%|##########| 5/5 [00:00<00:00, 50.1it/s]",
    "trainer-master-0:1:1 [0] NCCL INFO Channel 00/02 :    0   1",
    '10.42.0.1 - - [22/Nov/2026:13:05:04 +0000] "GET /healthz HTTP/1.1" 200 2 "-" "-"',
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_other_output_between_the_lines_changes_nothing(case: Case) -> None:
    lines = [text for line in case.lines for text in (*OTHER, line)] + OTHER
    mixed, alone = read(lines), read(case.lines)
    assert judge(case, mixed) == judge(case, alone), (mixed.progress(), alone.progress())
