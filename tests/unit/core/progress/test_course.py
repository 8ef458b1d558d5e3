"""The followed measure, the position of the training, its rate, and its growth."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.progress.course import Course, GrowthList, Windows, progress_of
from kfext.core.progress.lines import read_line
from kfext.core.progress.position import MOST
from kfext.core.progress.reported import GrowthState, Progress
from kfext.core.progress.vocabulary import Better


def course(*lines: tuple[float, str], now: float = 1e9) -> Course:
    result = Course(30.0)
    for at, raw in lines:
        line = read_line(raw)
        if line is not None:
            result.read_line(line, at=at, now=now)
    return result


def test_a_job_that_reports_steps_and_a_total_has_a_rate_and_a_remaining_time() -> None:
    followed = course(
        *((100.0 + step, f"step {step}/100 loss {5 - step / 50}") for step in range(0, 60, 10))
    )
    assert followed.progress() == Progress(
        metric="loss", value=4.0, step=50, total=100, rate=1.0, remaining=50.0, at=150.0
    )
    assert followed.better is Better.LOWER


def test_a_job_that_reports_nothing_has_no_progress() -> None:
    followed = course((1.0, "starting"), (2.0, "lr: 0.1"))
    assert followed.progress() == Progress()
    assert followed.better is None


def test_steps_without_a_measure_show_neither_a_step_nor_a_rate() -> None:
    bars = [(float(at), f" {at}%|##  | {at}/100 [00:05<01:40,  9.5it/s]") for at in range(10, 50)]
    assert course(*bars).progress() == Progress()
    assert course(*bars, (60.0, "loss: 1")).progress().step == 49


def test_the_best_measure_is_followed_once_it_is_printed() -> None:
    followed = course((1.0, "val_loss: 9"), (2.0, "loss: 5"), (3.0, "val_loss: 8"))
    assert (followed.progress().metric, followed.progress().value) == ("loss", 5.0)
    assert followed.windows.first == 5.0


ASIDE = {
    "an evaluation with a measure of its own": "epoch 1 step 0/10 eval_loss: 2",
    "a summary of the epoch": "====> Epoch: 1 Average loss: 2",
    "an evaluation that names itself ahead": "Test: [0/10]  Loss: 2",
    "a further line about the same step": "Loss: 0.9",
}


@pytest.mark.parametrize("raw", ASIDE.values(), ids=ASIDE)
def test_other_lines_between_the_lines_of_a_training_are_no_restart(raw: str) -> None:
    steps = ((10.0 + step, f"step {step}/100 Loss: 1") for step in (10, 20))
    followed = course(*steps, (30.5, "step 20, lr = 0.1"), (31.0, raw))
    assert (followed.restarts, followed.step) == (0, 20)
    assert followed.progress().value == (0.9 if raw == "Loss: 0.9" else 1)


def test_an_evaluation_before_the_training_is_no_step_of_it() -> None:
    checked = [(float(step), f"Test: [{step}/100] step {step} Loss: 2") for step in (10, 90)]
    followed = course(*checked, (100.0, "step 0/500 Loss: 2"), (101.0, "step 1/500 Loss: 1"))
    assert (followed.restarts, followed.step) == (0, 1)
    assert followed.progress().rate == 1.0


def test_steps_continue_where_a_different_measure_states_them() -> None:
    lines = [(float(step), f"step {step}/1000 accuracy=0.{step}") for step in (10, 20)]
    followed = course(*lines, (20.5, "loss=0.52"), (30.0, "step 30/1000 accuracy=0.3"))
    assert (followed.step, followed.progress().at) == (30, 20.5)
    followed.read_line(read_line("loss=0.5"), at=31.0, now=1e9)  # type: ignore[arg-type]
    assert (followed.step, followed.progress().at) == (30, 31.0)


@pytest.mark.parametrize("word", ["nan", "inf", "-inf"])
def test_a_value_that_is_no_number_is_reported_and_not_followed(word: str) -> None:
    followed = course((1.0, "loss: 5"), (2.0, f"loss: {word}"))
    assert followed.diverged_since == 2.0
    assert (followed.metric, followed.progress().value) == ("loss", None)
    after = course((1.0, f"loss: {word}"), (2.0, "loss: 5"))
    assert after.diverged_since is None


def test_a_metric_has_diverged_since_the_first_value_after_its_last_number() -> None:
    lines = [(1.0, "loss: nan"), (2.0, "loss: 5"), (3.0, "loss: nan"), (9.0, "loss: inf")]
    assert course(*lines).diverged_since == 3.0


def test_a_training_has_diverged_since_its_restart_at_most() -> None:
    before = [(1.0, "step 100 loss 5"), (2.0, "step 200 loss nan")]
    assert course(*before).diverged_since == 2.0
    assert course(*before, (3.0, "step 10 loss nan")).diverged_since == 3.0


def test_after_a_restart_the_rate_starts_again() -> None:
    before = [(float(at), f"step {10 * at} loss 1") for at in range(20)]
    after = [(20.0 + at, f"step {100 + at} loss 1") for at in range(5)]
    followed = course(*before, *after)
    assert followed.restarts == 1
    assert followed.progress().rate == pytest.approx(1.0)


def test_a_clock_that_jumps_adds_no_line_in_the_future_or_before_the_last() -> None:
    followed = course(
        (10.0, "step 1 loss 1"), (9e8, "step 2 loss 1"), (12.0, "step 3 loss 1"), now=20.0
    )
    assert followed.progress().at == 20.0
    assert followed.progress().step == 3
    assert followed.progress().rate is None


CLOCKS: dict[str, tuple[Callable[[int], float], Callable[[int], float], float | None]] = {
    "the node's is set back by less than a window, and that is not over yet": (
        lambda true: true if true < 110 else true - 25,
        lambda read: read,
        None,
    ),
    "the node's was set back by less than a window": (
        lambda true: true if true < 80 else true - 20,
        lambda read: read,
        1.0,
    ),
    "the node's is set back by an hour": (
        lambda true: true if true < 100 else true - 3600,
        lambda read: read,
        1.0,
    ),
    "the reader's is set back by an hour": (
        lambda true: true,
        lambda read: read if read < 100 else read - 3600,
        1.0,
    ),
    "the node's is an hour ahead": (lambda true: true + 3600, lambda read: read, 1.0),
    "two threads print, one a moment later": (
        lambda true: true - 1.05 * (true % 2),
        lambda read: read,
        1.0,
    ),
}


@pytest.mark.parametrize(("printed", "reads", "want"), CLOCKS.values(), ids=CLOCKS)
def test_a_clock_that_jumps_makes_no_job_faster(
    printed: Callable[[int], float], reads: Callable[[int], float], want: float | None
) -> None:
    """One step a second, read every 10 s; `printed`, `reads`: what each clock shows at a time."""
    followed = Course(30.0)
    for time in range(130):
        line = read_line(f"step {time}/1000 loss 1")
        assert line is not None
        followed.read_line(line, at=printed(time), now=reads(time - time % 10 + 10))
    result = followed.progress()
    assert result.rate == (None if want is None else pytest.approx(want, rel=0.05))
    assert result.remaining == (None if want is None else pytest.approx(871 / want, rel=0.05))


ODD = [
    *("step 5 loss 1", "step 999999999999999 loss 1e300", "loss nan", "loss: -inf", "Epoch 0"),
    *("epoch 1e308 loss 1", "step 0/0 loss 1", "Epoch 99999999/1 [1/1] loss 3", "acc: 1/0"),
    "Epoch [1000000000/1000000000], Step [5/1000000000000], loss: 1",
    *("Epoch 1, step 999999999999999, loss 1", "Epoch 2, step 999999999999998, loss 1"),
]


@given(st.lists(st.tuples(st.floats(-1e12, 1e12), st.sampled_from(ODD)), max_size=60))
def test_whatever_a_job_prints_its_numbers_are_numbers(lines: list[tuple[float, str]]) -> None:
    result = course(*lines, now=1000.0).progress()
    for number in (result.value, result.rate, result.remaining, result.at):
        assert number is None or math.isfinite(number)
    for count in (result.step, result.total, result.remaining):
        assert count is None or 0 <= count < 2**63


def test_steps_of_many_epochs_end_at_the_most_that_can_be_written() -> None:
    line = "Epoch [1000000000/1000000000], Step [{}/1000000000000], loss: 1"
    result = course((0, line.format(5)), (1, line.format(6))).progress()
    assert (result.step, result.total, result.remaining) == (MOST, MOST, None)
    slow = course((0, f"step 1/{MOST} loss 1"), (90_000, f"step 2/{MOST} loss 1")).progress()
    assert slow.remaining == MOST


OVER: dict[str, tuple[str, int, float, str]] = {
    "once the measure was missing in many lines": ("epoch {} accuracy 0.5", 12, 3.0, "accuracy"),
    "not after a few lines": ("epoch {} accuracy 0.5", 9, 60.0, "loss"),
    "not during an evaluation": ("[{}/99] val_accuracy 0.5", 40, 60.0, "loss"),
}


@pytest.mark.parametrize(("line", "count", "apart", "metric"), OVER.values(), ids=OVER)
def test_which_measure_is_followed(line: str, count: int, apart: float, metric: str) -> None:
    lines = [(apart * number, line.format(number)) for number in range(1, count + 1)]
    followed = course((0.0, "Initial loss: 2.3"), *lines)
    assert followed.metric.rpartition(" ")[2] == metric
    again = [(1e5 + number, "loss: 1") for number in range(4)]
    assert course((0.0, "Initial loss: 2.3"), *lines, *again).progress().value == 1.0


GUESSED = {
    "an unknown name, once its value varies": (["step {n} SILog: 0.{n}"], "SILog"),
    "no name with a constant number": (["step {n} alpha_x: 0.5"], ""),
    "no name that never shows a number": (["step {n} SILog: nan"], ""),
    "no number with a unit": (["step {n} lap 0.{n} GB/s"], ""),
    "the training, rather than the rare accuracy of an evaluation": (
        [*["step {n} SILog: 0.{n}"] * 5, "Start | rmse 0.3471"],
        "SILog",
    ),
    "a known loss before it": (["step {n} SILog: 0.{n}", "step {n} loss: 0.{n}"], "loss"),
}


@pytest.mark.parametrize(("lines", "metric"), GUESSED.values(), ids=GUESSED)
def test_a_measure_by_an_unknown_name(lines: list[str], metric: str) -> None:
    printed = [line.format(n=10 + n) for n in range(8) for line in lines]
    assert course(*((float(n), line) for n, line in enumerate(printed))).metric == metric


CONTINUED: dict[str, tuple[list[tuple[float, int]], float | None]] = {
    "at the first step after the stop, if that silence is the longest": ([(25, 8), (28, 9)], 25.0),
    "after the longest silence, though steps were made before it": (
        [(11, 7), (12, 8), (25, 9), (30, 10)],
        25.0,
    ),
    "where the steps went back": ([(12, 7), (25, 4), (40, 5)], 25.0),
    "not at a step from before the stop": ([(3, 7), (9, 8)], None),
    "never, without steps": ([], None),
}


@pytest.mark.parametrize(("steps", "want"), CONTINUED.values(), ids=CONTINUED)
def test_when_the_steps_continue_after_a_stop(
    steps: list[tuple[float, int]], want: float | None
) -> None:
    """The job was stopped at 0, and could continue from 10 on."""
    before = [(-100.0, 1), (-5.0, 5), (0.0, 6)]
    lines = [(float(at), f"step {step} loss 1") for at, step in (*before, *steps)]
    assert course(*lines).resumed_at(since=0.0, after=10.0) == want


SECONDS = 30.0


def windows(*contents: list[float], start: float = 3000.0) -> Windows:
    """Windows with these values, at equal distances within each window."""
    windows = Windows(SECONDS)
    for number, values in enumerate(contents):
        for index, value in enumerate(values):
            at = start + SECONDS * (number + (index + 0.5) / len(values))
            windows.add(at, value)
    return windows


def progress(*contents: list[float], better: Better = Better.LOWER) -> float | None:
    return progress_of(windows(*contents), better, now=3000.0 + SECONDS * len(contents) - 0.001)


HAND_COMPUTED = {
    "from 2.0 to 1.5, the first window's mean is 2.0": ([[2, 2], [1.5, 1.5]], 0.25),
    "the third window against the second, as a share of the first": (
        [[4, 4], [2, 2], [1, 1]],
        0.25,
    ),
    "a loss that rises is no progress": ([[1, 1], [2, 2]], 0.0),
    "a loss that stays is no progress": ([[1, 1], [1, 1]], 0.0),
    "never more than the whole": ([[1, 1], [-9, -9]], 1.0),
    "a gain within the noise does not count": ([[1.0, 3.0], [0.9, 2.9]], 0.0),
    "a gain beyond the noise counts": ([[1.9, 2.1] * 5, [0.9, 1.1] * 5], 0.5),
}


@pytest.mark.parametrize(("contents", "want"), HAND_COMPUTED.values(), ids=HAND_COMPUTED)
def test_F1_progress_as_computed_by_hand(contents: list[list[float]], want: float) -> None:
    assert progress(*contents) == pytest.approx(want)


def test_F1_a_measure_that_is_better_when_higher_grows_upwards() -> None:
    assert progress([0.5, 0.5], [0.6, 0.6], better=Better.HIGHER) == pytest.approx(0.2)
    assert progress([0.6, 0.6], [0.5, 0.5], better=Better.HIGHER) == 0


UNKNOWN = {
    "no values": [],
    "one window": [[1.0, 1.0]],
    "silence after the first window": [[1.0, 1.0], []],
    "one value is too few": [[1.0, 1.0], [0.5]],
    "a first window of zero": [[0.0, 0.0], [0.0, 0.0]],
}


@pytest.mark.parametrize("contents", UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_progress_is_no_end_of_progress(contents: list[list[float]]) -> None:
    assert progress(*contents) is None


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=4, max_size=40))
def test_progress_is_between_0_and_1_whatever_a_job_prints(values: list[float]) -> None:
    half = len(values) // 2
    result = progress(values[:half], values[half:])
    assert result is None or (0 <= result <= 1 and not math.isnan(result))


def lists(seconds: float, half_life: float, *, until: float = 3600.0) -> list[GrowthState]:
    """The list of a job with a loss that decays exponentially, after each interval."""
    windows, followed, result = Windows(seconds), GrowthList(), list[GrowthState]()
    for at in range(int(until)):
        windows.add(float(at), 2 ** (-at / half_life))
        if (at + 1) % seconds == 0:
            followed.add_interval(progress_of(windows, Better.LOWER, now=float(at)), 1.0)
            result.append(followed.state)
    return result


@pytest.mark.parametrize("half_life", [60.0, 100.0, 200.0, 400.0])
def test_S2_twice_the_interval_changes_the_list_by_one_interval_at_most(half_life: float) -> None:
    """Compares when the first interval below the threshold begins."""
    short, long = lists(30.0, half_life), lists(60.0, half_life)
    began = 30 * short.index(GrowthState.WATCHING), 60 * long.index(GrowthState.WATCHING)
    assert abs(began[0] - began[1]) <= 60
