"""What one line says of a checkpoint."""

from string import ascii_letters

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from kfext.core.progress.lines import read_line
from kfext.core.progress.saving import (
    FORMS,
    LARGEST_ANSWER,
    Begun,
    Complete,
    Form,
    answer_of,
    saving,
    tells_failure,
)
from kfext.core.progress.visible import visible
from tests.contract.tables import only, quoted, table
from tests.no_saves import ASYNCHRONOUS, FAILING, NO_SAVES

ANSWERS: dict[str, tuple[str, int | None]] = {
    "it listens": ("kfext.checkpoint 0", 0),
    "a number": ("kfext.checkpoint 12", 12),
    "the largest": (f"kfext.checkpoint {LARGEST_ANSWER}", LARGEST_ANSWER),
    "after the prefix of a logger": ("2026-11-22 13:32:39,328 - INFO - kfext.checkpoint 3", 3),
    "after the prefix of torchrun": ("[default0]:kfext.checkpoint 3", 3),
    "in colour": ("\x1b[32mkfext.checkpoint 3\x1b[0m", 3),
    "after a bar that it overwrites": ("50%|### | 5/10\rkfext.checkpoint 3", 3),
    "leading zeros": ("kfext.checkpoint 007", 7),
    "too large": (f"kfext.checkpoint {LARGEST_ANSWER + 1}", None),
    "too many digits": ("kfext.checkpoint " + "0" * 11, None),
    "negative": ("kfext.checkpoint -1", None),
    "a fraction": ("kfext.checkpoint 1.5", None),
    "digits of another script": ("kfext.checkpoint \u0663", None),
    "no number": ("kfext.checkpoint", None),
    "more behind it": ("kfext.checkpoint 3 done", None),
    "a longer name": ("my.kfext.checkpoint 3", None),
    "other letters": ("kfextxcheckpoint 3", None),
    "overwritten": ("kfext.checkpoint 3\rloss 0.5", None),
    "nothing": ("", None),
}


@pytest.mark.parametrize(("line", "want"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_stands_alone_on_its_line(line: str, want: int | None) -> None:
    assert answer_of(line) == want


def test_an_answer_is_no_progress() -> None:
    assert read_line("kfext.checkpoint 3") is None


EXAMPLES = [(form, example) for form in FORMS for example in form.examples]
LEVELS_AND_LOGGERS = {"INFO", "DEBUG", "root", "absl", "tensorflow"}
each_example = pytest.mark.parametrize(
    ("form", "example"), EXAMPLES, ids=[example for _, example in EXAMPLES]
)


@each_example
def test_a_form_is_complete(form: Form, example: str) -> None:
    said = saving(example)
    assert isinstance(said, Complete)
    assert said.form is form


WORDS = st.text(alphabet=ascii_letters + "()!%", min_size=1, max_size=12)


@each_example
@given(word=WORDS, end=st.sampled_from([" ", ": ", " - ", " | ", ", "]))
@example(word="not", end=" ")
@example(word="last", end=": ")
@example(word="uploader", end=" - ")
@settings(max_examples=20)
def test_a_form_counts_as_a_whole_message_only(
    form: Form, example: str, word: str, end: str
) -> None:
    assume(word not in LEVELS_AND_LOGGERS)
    lines = (f"{word}{end}{example}", f"INFO - {word}{end}{example}", f"{example}{end}{word}")
    assert [saving(line) for line in lines] == [None] * len(lines)


PREFIXES = {
    "Python's logging": "2026-11-22 13:32:39,328 - INFO - ",
    "Python's logging with a name": "03/12/2026 10:00:00 - INFO - __main__ - ",
    "Python's logging without a format": "INFO:torchtune.utils._logging:",
    "TensorFlow": "INFO:tensorflow:",
    "TensorFlow with the time": "2021-06-30 14:32:20,674:INFO:tensorflow: ",
    "absl": "I0101 12:00:00.123456 139 checkpoint_manager.py:1527] ",
    "fairseq": "2026-01-01 12:00:00 | INFO | fairseq.checkpoint_utils | ",
    "DeepSpeed": "[2026-01-01 12:00:00,123] [INFO] [torch_checkpoint_engine.py:33:commit] ",
    "Hugging Face": "[INFO|trainer.py:3478] 2026-01-01 00:00:00,000 >> ",
    "loguru": "2026-01-01 00:00:00.000 | INFO     | train.loop:fit:12 - ",
    "Megatron-LM": "  [2026-01-01 12:00:00.123456] ",
    "NeMo": "[NeMo I 2026-01-01 12:00:00 nemo_logging:393] ",
    "OLMo": "2026-01-01 12:00:00.123\tnode-7:0\tolmo.train:1273\tINFO\t",
    "SpeechBrain": "speechbrain.utils.checkpoints - ",
    "torchrun": "[default0]:",
    "torchrun and torchtitan": "[rank0]:[titan] 2026-01-01 12:00:00,123 - root - INFO - ",
    "a colour": "\x1b[32m",
    "a bar that it overwrites": "50%|### | 5/10\r",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@each_example
def test_a_form_may_follow_the_prefix_of_a_logger(prefix: str, form: Form, example: str) -> None:
    said = saving(prefix + example)
    assert isinstance(said, Complete)
    assert said.form is form


def test_no_two_forms_are_of_one_framework_or_one_message() -> None:
    assert len({form.framework for form in FORMS}) == len(FORMS)
    assert len({example for _, example in EXAMPLES}) == len(EXAMPLES)


@pytest.mark.parametrize(("begun", "between", "complete"), ASYNCHRONOUS.values(), ids=ASYNCHRONOUS)
def test_a_save_in_the_background_begins_and_ends(begun: str, between: str, complete: str) -> None:
    first, last = saving(begun), saving(complete)
    assert isinstance(first, Begun)
    assert saving(between) is None
    assert isinstance(last, Complete)
    assert first.form is last.form
    assert last.save in {first.save, ""}


def test_every_form_with_a_begin_has_a_sequence() -> None:
    pairs = [saving(begun) for begun, _, _ in ASYNCHRONOUS.values()]
    pairs.append(saving("Saving the checkpoint."))  # torchtitan stands still meanwhile
    assert {said.form for said in pairs if said} == {form for form in FORMS if form.begun}


UNCLEAR = "Finished saving the checkpoint in 2.50 seconds."
"""Counts after its begin only, which is for tests/unit/core/progress/test_checkpoints.py."""
LINES = [line for lines in NO_SAVES.values() for line in lines if line != UNCLEAR]


def test_many_lines_that_are_no_saves_are_looked_at() -> None:
    assert len(set(LINES)) > 150


@pytest.mark.parametrize("line", [*LINES, *FAILING, "step 10 loss 0.5", ""])
def test_a_line_that_is_no_save(line: str) -> None:
    assert saving(line) is None


FAILURES: dict[str, tuple[str, bool]] = {
    "in words": ("could not write /c/9: quota exceeded, going on", True),
    "an exception": ("OSError: [Errno 28] No space left on device", True),
    "a traceback": ("Traceback (most recent call last):", True),
    "by a logger": ("2026-01-01 12:00:00,000 - ERROR - checkpoint thread died", True),
    "it ended early": ("checkpoint writer was interrupted", True),
    "an error that is a measure": ("step 9 error: 0.12 loss 0.5", False),
    "another measure": ("val_errors=3", False),
    "steps that were skipped": ("number of skipped iterations:   0 |", False),
    "progress": ("step 9 loss 0.5", False),
}


@pytest.mark.parametrize(("line", "want"), FAILURES.values(), ids=FAILURES)
def test_whether_a_line_tells_of_a_failure(line: str, want: bool) -> None:
    assert tells_failure(line) is want


PAGE = "docs/elastic.md"


def test_the_page_has_each_form_with_its_messages() -> None:
    rows = table(PAGE, "framework")
    assert {row["framework"]: quoted(row["message"]) for row in rows} == {
        form.framework: list(form.examples) for form in FORMS
    }


def test_the_page_names_the_messages_with_which_background_saves_begin() -> None:
    begins = {row["framework"]: row["after"] for row in table(PAGE, "framework") if row["after"]}
    assert begins.keys() == {form.framework for form in FORMS if form.begun}
    for framework, cell in begins.items():
        said = saving(only(cell))
        assert isinstance(said, Begun)
        assert said.form.framework == framework


def test_the_page_names_lines_that_are_no_saves() -> None:
    lines = [line for row in table(PAGE, "no checkpoint") for line in quoted(row["line"])]
    assert lines
    assert [saving(line) for line in lines] == [None] * len(lines)


@given(st.text(alphabet="savingedcheckpoint .:/0\r\x1b[", max_size=300))
def test_any_line_has_an_answer(line: str) -> None:
    assert saving(line) is None or "saved checkpoint" in visible(line)
    answer = answer_of(line)
    assert answer is None or 0 <= answer <= LARGEST_ANSWER


@pytest.mark.parametrize(
    "piece",
    ["checkpoint 0", "checkpoint " + "1." * 50, "saved the ", "epoch 1, ", "[INFO] ", "0/", "a.b:"],
)
def test_of_a_long_line_only_the_end_is_looked_at(piece: str) -> None:
    assert saving("saved checkpoint /c/5.pt" + piece * 100_000) is None
    assert isinstance(saving(piece * 100_000 + "\rsaved checkpoint /c/5.pt"), Complete)
