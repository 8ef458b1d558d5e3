"""The helper in examples/checkpoints.py, run as a job runs it: how it answers requests."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kfext import names
from kfext.core.admission.control_file import DIRECTORY, FILE
from kfext.core.progress.checkpoints import LARGEST_ANSWER, answer_of
from tests.contract.manifests import REPOSITORY

PAGE = (REPOSITORY / "docs/checkpoints.md").read_text()
EXAMPLES = sorted((REPOSITORY / "examples").glob("checkpoint*.py"))
HELPER = (REPOSITORY / "examples/checkpoints.py").read_text()


class Job:
    """A program with the helper; `time` is its clock, `answers` are the lines that kfext reads."""

    def __init__(self, control: Path, printed: Callable[[], str]) -> None:
        self.control, self._printed = control, printed
        self.time = 5.0
        module: dict[str, Any] = {}
        exec(HELPER, module)
        module["time"] = SimpleNamespace(monotonic=lambda: self.time)
        self.checkpoints = module["Checkpoints"](str(control))

    def answers(self) -> list[int | None]:
        lines = [line for line in self._printed().split("\n") if line]
        return [answer_of(line) for line in lines]

    def request(self, number: int) -> None:
        self.control.write_text(str(number))


@pytest.fixture
def job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Job:
    control = tmp_path / "control"
    control.write_text("")
    return Job(control, lambda: capsys.readouterr().out)


def test_the_helper_states_at_its_start_that_it_listens(job: Job) -> None:
    assert job.answers() == [0]
    assert job.checkpoints.requested() == 0


def test_the_helper_repeats_it_after_a_minute_and_not_before(job: Job) -> None:
    job.answers()
    answers = []
    for job.time in (6.0, 64.0, 65.0, 66.0, 125.0):  # it began at 5.0
        job.checkpoints.requested()
        answers.append(job.answers())
    assert answers == [[], [], [0], [], [0]]


def test_a_request_stays_until_it_is_answered(job: Job) -> None:
    job.request(1)
    assert [job.checkpoints.requested() for _ in range(2)] == [1, 1]
    job.answers()
    job.checkpoints.saved(1)
    assert job.answers() == [1]
    assert job.checkpoints.requested() == 0


def test_each_request_has_its_answer(job: Job) -> None:
    job.answers()
    for number in (1, 2, LARGEST_ANSWER):
        job.request(number)
        job.checkpoints.saved(job.checkpoints.requested())
    assert job.answers() == [1, 2, LARGEST_ANSWER]


def test_an_answer_is_read_after_a_bar_without_a_line_end(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    job.answers()
    print("50/100 [====>.....] - loss: 0.3", end="")  # noqa: T201 - as Keras does
    job.checkpoints.saved(3)
    assert job.answers() == [None, 3]


@pytest.mark.parametrize("written", ["x", "-1", "1.5", "\n", "1 2"])
def test_a_malformed_number_is_no_request(job: Job, written: str) -> None:
    job.control.write_text(written)
    assert job.checkpoints.requested() == 0


def test_without_the_file_the_helper_prints_nothing_and_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job(tmp_path / "absent", lambda: capsys.readouterr().out)
    assert job.checkpoints.requested() == 0
    assert job.answers() == []


def test_the_helper_reads_the_file_that_the_webhook_mounts() -> None:
    assert f'control="{DIRECTORY}/{FILE}"' in HELPER
    assert f"`{DIRECTORY}/{FILE}`" in PAGE
    assert f"`{names.CHECKPOINT_REQUEST}: " in PAGE
    assert f"{LARGEST_ANSWER:,}" in PAGE


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_of_a_program_is_python_and_the_page_names_it(path: Path) -> None:
    compile(path.read_text(), path.name, "exec")
    assert f"`examples/{path.name}`" in PAGE


def test_the_helper_needs_the_standard_library_only() -> None:
    assert set(re.findall(r"^\s*(?:import|from) (\w+)", HELPER, re.MULTILINE)) == {
        "pathlib",
        "time",
    }
