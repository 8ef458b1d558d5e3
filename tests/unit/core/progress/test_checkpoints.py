"""What a line says about a checkpoint, and the checkpoints that a log has shown."""

from itertools import pairwise
from string import ascii_letters

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from kfext.core.progress.checkpoints import (
    FORMS,
    LARGEST_ANSWER,
    CheckpointLog,
    Checkpoints,
    Complete,
    Form,
    Proof,
    SaveBegun,
    answer_of,
    may_report_failure,
    saving,
)
from kfext.core.progress.fields import visible
from kfext.core.progress.lines import read_line
from kfext.model.log_line import LogLine
from tests.contract.tables import only, quoted, table
from tests.no_saves import ASYNCHRONOUS, BEFORE_ALL_RANKS, FAILING, NO_SAVES

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
    "more text after it": ("kfext.checkpoint 3 done", None),
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


PAGE = "docs/checkpoints.md"
EXAMPLES = [
    (FORMS[row["framework"]], message)
    for row in table(PAGE, "framework")
    for message in quoted(row["message at the end"])
]
LEVELS_AND_LOGGERS = {"INFO", "DEBUG", "root", "absl", "tensorflow"}
each_example = pytest.mark.parametrize(
    ("form", "example"), EXAMPLES, ids=[example for _, example in EXAMPLES]
)


@each_example
def test_the_example_of_each_form_is_a_complete_checkpoint(form: Form, example: str) -> None:
    result = saving(example)
    assert isinstance(result, Complete)
    assert result.form is form


WORDS = st.text(alphabet=ascii_letters + "()!%", min_size=1, max_size=12)


@each_example
@given(word=WORDS, end=st.sampled_from([" ", ": ", " - ", " | ", ", "]))
@example(word="not", end=" ")
@example(word="last", end=": ")
@example(word="uploader", end=" - ")
@settings(max_examples=20)
def test_a_form_matches_only_a_whole_message(form: Form, example: str, word: str, end: str) -> None:
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
    result = saving(prefix + example)
    assert isinstance(result, Complete)
    assert result.form is form


def test_no_two_forms_are_equal_or_have_the_same_message() -> None:
    assert len(set(FORMS.values())) == len(FORMS)
    assert len({example for _, example in EXAMPLES}) == len(EXAMPLES)


@pytest.mark.parametrize(("begun", "between", "complete"), ASYNCHRONOUS.values(), ids=ASYNCHRONOUS)
def test_a_save_in_the_background_begins_and_ends(begun: str, between: str, complete: str) -> None:
    first, last = saving(begun), saving(complete)
    assert isinstance(first, SaveBegun)
    assert saving(between) is None
    assert isinstance(last, Complete)
    assert first.form is last.form
    assert last.save in {first.save, ""}


def test_every_form_with_a_beginning_has_a_test_sequence() -> None:
    pairs = [saving(begun) for begun, *_ in (*ASYNCHRONOUS.values(), *BEFORE_ALL_RANKS.values())]
    pairs.append(saving("Saving the checkpoint."))  # torchtitan is paused meanwhile
    assert {save.form for save in pairs if save} == {form for form in FORMS.values() if form.begun}


UNCLEAR = "Finished saving the checkpoint in 2.50 seconds."
"""A message that counts only after the beginning of its save."""
LINES = [line for lines in NO_SAVES.values() for line in lines if line != UNCLEAR]


def test_many_lines_that_are_no_saves_are_tested() -> None:
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
    "a different measure": ("val_errors=3", False),
    "steps that were skipped": ("number of skipped iterations:   0 |", False),
    "progress": ("step 9 loss 0.5", False),
}


@pytest.mark.parametrize(("line", "want"), FAILURES.values(), ids=FAILURES)
def test_whether_a_line_reports_a_failure(line: str, want: bool) -> None:
    assert may_report_failure(line) is want


def test_the_page_has_messages_of_each_form() -> None:
    assert {form for form, _ in EXAMPLES} == set(FORMS.values())


def test_the_page_names_the_messages_that_begin_background_saves() -> None:
    rows = table(PAGE, "framework")
    begins = {row["framework"]: start for row in rows if (start := row["message at the start"])}
    assert begins.keys() == {name for name, form in FORMS.items() if form.begun}
    for framework, cell in begins.items():
        result = saving(only(cell))
        assert isinstance(result, SaveBegun)
        assert result.form is FORMS[framework]


def test_the_page_names_lines_that_are_no_saves() -> None:
    lines = [line for row in table(PAGE, "because it is") for line in quoted(row["line"])]
    assert lines
    assert [saving(line) for line in lines] == [None] * len(lines)


@given(st.text(alphabet="savingedcheckpoint .:/0\r\x1b[", max_size=300))
def test_any_line_is_read_without_an_error(line: str) -> None:
    assert saving(line) is None or "saved checkpoint" in visible(line)
    answer = answer_of(line)
    assert answer is None or 0 <= answer <= LARGEST_ANSWER


@pytest.mark.parametrize(
    "piece",
    ["checkpoint 0", "checkpoint " + "1." * 50, "saved the ", "epoch 1, ", "[INFO] ", "0/", "a.b:"],
)
def test_only_the_end_of_a_long_line_is_read(piece: str) -> None:
    assert saving("saved checkpoint /c/5.pt" + piece * 100_000) is None
    assert isinstance(saving(piece * 100_000 + "\rsaved checkpoint /c/5.pt"), Complete)


NOW = 1000.0
PROGRESS, RESTART = "step 9 loss 0.5", "restart"
COMPLETE = "saved checkpoint /c/1.pt"
AT_STEP = "saved checkpoint at step 9"
BEGUN = "saving checkpoint at iteration 15 to /c"
FINISHED = "successfully saved checkpoint from iteration 15 to /c"
OTHER_BEGUN, OTHER_FINISHED = BEGUN.replace("15", "25"), FINISHED.replace("15", "25")
FAILED = "could not write /c/9: quota exceeded, going on"
ORBAX = "[process=0][thread=async_save] Background save thread done. Time taken: 8.1s."
TITAN = "Finished saving the checkpoint in 2.50 seconds."
LISTENS, ANSWER = "kfext.checkpoint 0", "kfext.checkpoint 4"


def shown(*events: str, now: float = NOW) -> Checkpoints:
    """The checkpoints that these lines show; line n is printed in second n, at step 10 n."""
    log = CheckpointLog()
    for number, event in enumerate(events, 1):
        if event == RESTART:
            log.record_restart()
        else:
            log.read_line(LogLine(number, event), step=10 * number, now=now)
    return log.seen


def shown_at(*steps_and_lines: int | str) -> Checkpoints:
    """The checkpoints that lines a second apart show; a number is the step of the next lines."""
    log, step = CheckpointLog(), None
    for at, event in enumerate(steps_and_lines, 1):
        if isinstance(event, int):
            step = event
            log.advance(step)
        elif event == RESTART:
            log.record_restart()
        else:
            log.read_line(LogLine(at, event), step=step, now=NOW)
    return log.seen


SEEN: dict[str, tuple[tuple[str, ...], Checkpoints]] = {
    "nothing": ((), Checkpoints()),
    "other lines": (("starting", PROGRESS), Checkpoints()),
    "a save that is complete": ((COMPLETE,), Checkpoints(1, 10)),
    "the same file again": ((COMPLETE, PROGRESS, COMPLETE), Checkpoints(3, 30)),
    "the same number again": ((AT_STEP, PROGRESS, AT_STEP), Checkpoints(1, 10)),
    "the same number again after a restart": ((AT_STEP, RESTART, AT_STEP), Checkpoints(3, 30)),
    "a different number": ((AT_STEP, AT_STEP.replace("9", "19")), Checkpoints(2, 20)),
    "begun": ((BEGUN,), Checkpoints()),
    "begun, and the training continues": ((BEGUN, PROGRESS, PROGRESS), Checkpoints()),
    "begun and finished: as of its beginning": ((BEGUN, PROGRESS, FINISHED), Checkpoints(1, 10)),
    "finished in the end": ((PROGRESS, BEGUN, FINISHED, PROGRESS), Checkpoints(2, 20)),
    "begun, and a restart": ((BEGUN, RESTART, FINISHED.replace("15", "5")), Checkpoints()),
    "complete, begun, and a restart": ((COMPLETE, BEGUN, RESTART), Checkpoints(1, 10)),
    "begun twice, and the first one finished": ((BEGUN, OTHER_BEGUN, FINISHED), Checkpoints()),
    "begun twice, and the second one finished": (
        (BEGUN, OTHER_BEGUN, FINISHED, OTHER_FINISHED),
        Checkpoints(2, 20),
    ),
    "begun, and failed": ((BEGUN, FAILED, PROGRESS), Checkpoints()),
    "begun, failed, and reported as finished after later steps": (
        (BEGUN, PROGRESS, FAILED, FINISHED.replace("15", "9")),
        Checkpoints(),
    ),
    "failed before": ((FAILED, BEGUN, FINISHED), Checkpoints(2, 20)),
    "complete, and a failure of something else": ((COMPLETE, FAILED), Checkpoints(1, 10)),
    "finished, and no later step was shown": ((PROGRESS, OTHER_FINISHED), Checkpoints(2, 20)),
    "finished, and its beginning was not seen": ((PROGRESS, FINISHED), Checkpoints()),
    "finished, and the beginning was of a different framework": (
        ("Saving checkpoint at step: 15", PROGRESS, FINISHED),
        Checkpoints(),
    ),
    "finished by a line that names no save": (
        ("[process=0] Saving checkpoint at step 9", PROGRESS, ORBAX),
        Checkpoints(1, 10),
    ),
    "a line that names no save, alone": ((ORBAX,), Checkpoints()),
    "finished after a save that was complete later": (
        (BEGUN, COMPLETE, FINISHED),
        Checkpoints(2, 20),
    ),
    "one rank has written, its beginning was not seen, and no later step was shown": (
        ("[Torch] Checkpoint 15 is ready now!",),
        Checkpoints(),
    ),
    "torchtitan": (("Saving the checkpoint.", TITAN), Checkpoints(1, 10)),
    "torchtitan, which may be asynchronous": (
        ("Saving the checkpoint (or staging if async is enabled).", TITAN),
        Checkpoints(),
    ),
    "two checkpoints": ((COMPLETE, PROGRESS, COMPLETE), Checkpoints(3, 30)),
    "it listens": ((LISTENS,), Checkpoints(answered=0)),
    "an answer is a complete checkpoint": ((ANSWER,), Checkpoints(1, 10, 4)),
    "it listens again after its answer": ((ANSWER, LISTENS), Checkpoints(1, 10, 4)),
    "an answer with a smaller number": ((ANSWER, "kfext.checkpoint 2"), Checkpoints(2, 20, 4)),
    "it listens while a checkpoint is written": ((BEGUN, LISTENS, FINISHED), Checkpoints(1, 10, 0)),
}


@pytest.mark.parametrize(("events", "want"), SEEN.values(), ids=SEEN)
def test_the_checkpoints_that_lines_show(events: tuple[str, ...], want: Checkpoints) -> None:
    assert shown(*events) == want


BARRIER: dict[str, tuple[tuple[int | str, ...], Checkpoints]] = {
    "no later step": ((9, "begun", "written"), Checkpoints()),
    "the same step again, as in a summary": ((9, "begun", "written", 9), Checkpoints()),
    "the next step": ((9, "begun", "written", 10), Checkpoints(2, 9)),
    "the first step that was ever shown": (("begun", "written", 1), Checkpoints(1, None)),
    "each rank of a pod prints": ((9, "begun", "written", "written", 10), Checkpoints(2, 9)),
    "a step between the two, so the program saves in the background": (
        (9, "begun", 10, "written", 11),
        Checkpoints(),
    ),
    "its beginning was not seen": ((9, "written", 10, 11), Checkpoints()),
    "a failure of another rank": ((9, "begun", "written", FAILED, 10), Checkpoints()),
    "a restart": ((9, "begun", "written", RESTART, 10), Checkpoints()),
    "another save is complete before": (
        (9, "begun", "written", COMPLETE, 10),
        Checkpoints(4, 9),
    ),
}


@pytest.mark.parametrize(("begun", "written"), BEFORE_ALL_RANKS.values(), ids=BEFORE_ALL_RANKS)
@pytest.mark.parametrize(("events", "want"), BARRIER.values(), ids=BARRIER)
def test_a_save_of_one_rank_is_a_checkpoint_once_all_ranks_continue(
    begun: str, written: str, events: tuple[int | str, ...], want: Checkpoints
) -> None:
    lines = {"begun": begun, "written": written}
    assert shown_at(*(lines.get(str(result), result) for result in events)) == want


def test_each_form_that_is_printed_too_early_has_a_test_sequence() -> None:
    pairs = [saving(begun) for begun, _ in BEFORE_ALL_RANKS.values()]
    assert {save.form for save in pairs if save} == {
        form for form in FORMS.values() if form.proof is Proof.EARLY
    }


@pytest.mark.parametrize("kind", NO_SAVES)
def test_no_line_that_is_no_save_shows_a_checkpoint(kind: str) -> None:
    for line in NO_SAVES[kind]:
        assert shown(PROGRESS, line, PROGRESS, PROGRESS) == Checkpoints(), line


def test_a_save_that_says_that_it_failed_shows_no_checkpoint() -> None:
    assert shown(*FAILING, PROGRESS, PROGRESS) == Checkpoints()


@pytest.mark.parametrize(("begun", "between", "complete"), ASYNCHRONOUS.values(), ids=ASYNCHRONOUS)
def test_a_save_in_the_background_is_complete_when_a_line_reports_it(
    begun: str, between: str, complete: str
) -> None:
    unfinished = (begun, between, PROGRESS, PROGRESS)
    assert shown(*unfinished) == Checkpoints()
    assert shown(*unfinished, complete) == Checkpoints(1, 10)
    assert shown(*unfinished, FAILED, complete) == Checkpoints()


@pytest.mark.parametrize(
    ("seen", "want"),
    [
        pytest.param(Checkpoints(), False, id="nothing"),
        pytest.param(Checkpoints(saved=1.0), True, id="a checkpoint"),
        pytest.param(Checkpoints(answered=0), True, id="it listens"),
    ],
)
def test_whether_a_log_has_shown_anything(seen: Checkpoints, want: bool) -> None:
    assert seen.shown is want


def test_a_checkpoint_is_never_newer_than_the_reader() -> None:
    assert shown("x", "x", COMPLETE, now=2.0).saved == 2.0


def test_a_clock_that_was_set_back_makes_no_checkpoint_older() -> None:
    log = CheckpointLog()
    for at in (50.0, 20.0):
        log.read_line(LogLine(at, COMPLETE), step=None, now=NOW)
    assert log.seen.saved == 50.0


EVENTS = st.sampled_from(
    [PROGRESS, RESTART, BEGUN, FINISHED, FAILED, COMPLETE, LISTENS, ANSWER, "other"]
)


@given(st.lists(EVENTS, max_size=12))
def test_a_shown_checkpoint_is_never_withdrawn(events: list[str]) -> None:
    history = [shown(*events[:number]) for number in range(len(events) + 1)]
    for before, after in pairwise(history):
        assert (after.saved or 0) >= (before.saved or 0)
        assert (-1 if after.answered is None else after.answered) >= (
            -1 if before.answered is None else before.answered
        )
        assert after.shown or not before.shown
