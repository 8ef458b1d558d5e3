"""Jobs with a log that is read repeatedly, and with a program that posts."""

from typing import Any

import pytest

from kfext import names
from kfext.core.progress.checkpoints import Checkpoints
from kfext.core.progress.followed import INTERVAL, Followed
from kfext.core.progress.posted import Post
from kfext.core.progress.reported import GrowthState
from kfext.model.log_line import LogLine
from kfext.model.moment import Moment
from kfext.model.verdict import Verdict
from tests.no_saves import BEFORE_ALL_RANKS

AWAY = Verdict(names.REASON_LOG_UNAVAILABLE, "kubelet does not answer")
FORBIDDEN = Verdict(names.REASON_LOG_FORBIDDEN, "may not")
LISTS = [*[GrowthState.NEW] * 5, GrowthState.WATCHING, *[GrowthState.COMPLETING] * 2]
"""The lists of a job in eight intervals; it grows until the fifth."""


def moment(at: float) -> Moment:
    return Moment(wall=at, monotonic=at)


def feed(followed: Followed, loss: list[float], *, at: float, every: float = 1.0) -> None:
    """Read one line for each loss, `every` seconds apart, the first at `at`."""
    times = [at + every * number for number in range(len(loss))]
    lines = [LogLine(when, f"loss={value}") for when, value in zip(times, loss, strict=True)]
    followed.read_lines(lines, now=moment(times[-1] if times else at))


def state(followed: Followed) -> GrowthState | None:
    reported = followed.reported()
    return reported.state


def reason(followed: Followed) -> str:
    verdict = followed.reported().known
    return verdict.reason if verdict else ""


def test_a_job_that_improves_is_new_and_a_job_that_stopped_improving_is_completing() -> None:
    followed, began = Followed(), 1000.0
    states = []
    for window in range(8):
        falling = max(0.0, 1.0 - 0.3 * window)
        values = [falling + 0.001 * (tick % 2) for tick in range(int(INTERVAL))]
        feed(followed, values, at=began + window * INTERVAL)
        states.append(state(followed))
    assert states == LISTS


def test_silence_does_not_end_growth() -> None:
    followed = Followed()
    for window in range(3):
        feed(followed, [3.0 - window + 0.01 * tick for tick in range(20)], at=window * INTERVAL)
    for later in range(10):
        followed.read_lines([], now=moment((4 + later) * INTERVAL))
    assert state(followed) is GrowthState.NEW


CLOCKS: dict[str, tuple[float, float]] = {
    "neither": (0.0, 0.0),
    "the node's, by less than a window": (20.0, 0.0),
    "the node's, by more than a window": (100.0, 0.0),
    "the controller's": (0.0, 3600.0),
    "both": (3600.0, 3600.0),
}


@pytest.mark.parametrize(("printed", "read"), CLOCKS.values(), ids=CLOCKS)
def test_a_clock_that_is_set_back_does_not_disturb_the_judgement_of_growth(
    printed: float, read: float
) -> None:
    """A loss falls by the same amount in each window, and no more from second 300 on.

    `printed`, `read`: by how much the clocks of the node and the controller are set back.
    """
    followed, history = Followed(), []
    for tick in range(0, 600, 10):
        is_set_back = tick >= 150
        falling = [10.0 - min(time, 300) / 60 for time in range(tick, tick + 10)]
        times = [5000.0 + time - printed * is_set_back for time in range(tick, tick + 10)]
        lines = [LogLine(at, f"loss {loss}") for at, loss in zip(times, falling, strict=True)]
        wall = 5010.0 + tick - read * is_set_back
        followed.read_lines(lines, now=Moment(wall=wall, monotonic=tick))
        history.append((state(followed), followed.reported().growth))
    assert {state for state, _ in history[:30]} == {GrowthState.NEW}
    assert all(0.02 < growth < 0.08 for _, growth in history[10:30] if growth is not None)
    if printed <= read + INTERVAL:  # otherwise no value is in the controller's last two windows
        assert history[-1][0] is GrowthState.COMPLETING


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("step {step} loss {worse}", id="a restart from a checkpoint"),
        pytest.param("step {later} loss nan", id="a value that is not a number"),
    ],
)
def test_a_disturbance_does_not_end_growth(line: str) -> None:
    followed, states = Followed(), []
    for window in range(6):
        lines = []
        for tick in range(10):
            step, loss = 10 * window + tick, 3.0 - 0.3 * window + 0.01 * (tick % 2)
            text = f"step {step} loss {loss}"
            if window == 3:
                text = line.format(step=step - 25, later=step, worse=loss + 1)
            lines.append(LogLine(window * INTERVAL + 3 * tick, text))
        followed.read_lines(lines, now=moment((window + 1) * INTERVAL - 0.1))
        states.append(state(followed))
    assert set(states) == {GrowthState.NEW}


def test_a_metric_of_unknown_direction_has_no_state() -> None:
    followed = Followed(r"speed (?P<value>\d+)")
    followed.read_lines([LogLine(1.0, "speed 12")], now=moment(2.0))
    reported = followed.reported()
    assert (reported.progress.metric, reported.progress.value) == ("speed", 12.0)
    assert (reported.state, reported.growth) == (None, None)


def test_a_better_metric_restarts_its_growth() -> None:
    followed = Followed()
    for window in range(6):
        at = window * INTERVAL
        lines = [LogLine(at + tick, "val_loss: 1.0") for tick in range(20)]
        followed.read_lines(lines, now=moment(at + 20))
    assert state(followed) is GrowthState.COMPLETING
    followed.read_lines([LogLine(200.0, "loss: 5.0")], now=moment(201.0))
    assert state(followed) is GrowthState.NEW


@pytest.mark.parametrize(
    ("reads", "want"),
    [
        pytest.param([], "", id="nothing was read"),
        pytest.param([["starting"]], "", id="too early to say"),
        pytest.param([["x"]] * 60, "", id="a program needs time to start"),
        pytest.param([["x"]] * 61, names.REASON_NOTHING_RECOGNISED, id="a minute in vain"),
        pytest.param([["loss: 1"]], names.REASON_RECOGNISED, id="a loss"),
        pytest.param([["loss: 1"], [], [], [], []], names.REASON_RECOGNISED, id="later silence"),
        pytest.param([["loss: nan"]], names.REASON_DIVERGED, id="not a number"),
        pytest.param([["loss: nan"], ["loss: 2"]], names.REASON_RECOGNISED, id="a number again"),
        pytest.param([AWAY, AWAY], "", id="two reads failed"),
        pytest.param([AWAY] * 3, names.REASON_LOG_UNAVAILABLE, id="three reads failed"),
        pytest.param(
            [AWAY] * 3 + [["loss: 1"]], names.REASON_RECOGNISED, id="the log is readable again"
        ),
        pytest.param([FORBIDDEN], names.REASON_LOG_FORBIDDEN, id="forbidden"),
        pytest.param(
            [["loss: 1"], FORBIDDEN], names.REASON_LOG_FORBIDDEN, id="a permission was removed"
        ),
    ],
)
def test_why_progress_is_known_or_unknown(reads: list[list[str] | Verdict], want: str) -> None:
    followed = Followed()
    for number, read in enumerate(reads):
        if isinstance(read, Verdict):
            followed.record_failed_read(read)
        else:
            followed.read_lines([LogLine(number, text) for text in read], now=moment(number))
    assert reason(followed) == want


def test_known_progress_stays_while_the_log_cannot_be_read() -> None:
    followed = Followed()
    followed.read_lines([LogLine(1.0, "step 7 loss 0.5")], now=moment(2.0))
    for _ in range(5):
        followed.record_failed_read(AWAY)
    reported = followed.reported()
    assert (reported.progress.step, reported.progress.value) == (7, 0.5)


def test_only_the_newest_of_many_lines_are_read() -> None:
    followed = Followed()
    filled = "x" * 4000
    lines = [LogLine(number, f"loss: 1.0 {filled}") for number in range(10)]
    lines += [LogLine(10 + number, f"val_loss: 2.0 {filled}") for number in range(5)]
    followed.read_lines(lines, now=moment(100.0))
    reported = followed.reported()
    assert reported.progress.metric == "val_loss"  # the loss was not read


SAVED = "saved checkpoint /c/1.pt"


@pytest.mark.parametrize("expression", ["", r"loss (?P<value>\S+)"], ids=["auto", "an expression"])
def test_checkpoints_are_seen_beside_the_progress(expression: str) -> None:
    followed = Followed(expression)
    texts = ["step 7 loss 0.5", SAVED, "kfext.checkpoint 0"]
    followed.read_lines(
        [LogLine(number, text) for number, text in enumerate(texts)], now=moment(9.0)
    )
    step = None if expression else 7
    assert followed.checkpoints == Checkpoints(saved=1, step=step, answered=0)
    assert followed.fruitless == 0


def test_checkpoints_alone_are_no_progress() -> None:
    followed = Followed()
    followed.read_lines([LogLine(1.0, SAVED)], now=moment(9.0))
    assert (followed.checkpoints.saved, followed.fruitless, followed.recognised) == (1.0, 1, False)


NEXT_LINES: dict[str, tuple[str, str, float | None]] = {
    "the training continues": ("step 8 loss 0.5", "a", 1.0),
    "a line without a measure": ("loading data", "a", 1.0),
    "the steps went back": ("step 3 loss 0.5", "a", None),
    "a different pod continues": ("step 8 loss 0.5", "b", None),
}


@pytest.mark.parametrize(("line", "source", "want"), NEXT_LINES.values(), ids=NEXT_LINES)
def test_a_checkpoint_that_was_begun_counts_once_it_is_reported_complete(
    line: str, source: str, want: float | None
) -> None:
    followed = Followed()
    before = [LogLine(0.0, "step 7 loss 0.5"), LogLine(1.0, "Saving the checkpoint.")]
    followed.read_lines(before, now=moment(5.0), source="a")
    followed.read_lines([LogLine(6.0, line)], now=moment(9.0), source=source)
    assert followed.checkpoints.saved is None
    after = [LogLine(7.0, "Finished saving the checkpoint in 6.00 seconds.")]
    followed.read_lines(after, now=moment(9.0), source=source)
    assert followed.checkpoints.saved == want


ALL_RANKS: dict[str, tuple[Any, float | None]] = {
    "the log shows the next step": (LogLine(4.0, "step 8 loss 0.5"), 2.0),
    "the log shows something else": (LogLine(4.0, "loading data"), None),
    "a post, which may have been made before": (Post(4.0, 8), None),
}


@pytest.mark.parametrize(("later", "want"), ALL_RANKS.values(), ids=ALL_RANKS)
def test_a_save_of_one_rank_counts_once_the_log_shows_the_next_step(
    later: Any, want: float | None
) -> None:
    followed = Followed()
    texts = ["step 7 loss 0.5", *BEFORE_ALL_RANKS["DeepSpeed"]]
    lines = [LogLine(1.0 + number, text) for number, text in enumerate(texts)]
    followed.read_lines(lines, now=moment(4.0))
    if isinstance(later, Post):
        post(followed, later, at=4)
        later = LogLine(5.0, "loading data")
    followed.read_lines([later], now=moment(5.0))
    assert followed.checkpoints.saved == want


PAUSES: dict[str, tuple[list[tuple[float, str, str]], float]] = {
    "nothing": ([], 0.0),
    "one line": ([(5, "step 1 loss 1", "a")], 0.0),
    "the longest": (
        [(0, "step 1 loss 1", "a"), (7, "step 2 loss 1", "a"), (9, "step 3 loss 1", "a")],
        7.0,
    ),
    "lines without progress do not end it": (
        [(0, "step 1 loss 1", "a"), (5, SAVED, "a"), (9, "step 2 loss 1", "a")],
        9.0,
    ),
    "a restart": (
        [(0, "step 5 loss 1", "a"), (90, "step 3 loss 1", "a"), (92, "step 4 loss 1", "a")],
        2.0,
    ),
    "a new pod": (
        [(0, "step 5 loss 1", "a"), (90, "step 6 loss 1", "b"), (92, "step 7 loss 1", "b")],
        2.0,
    ),
}


@pytest.mark.parametrize(("lines", "want"), PAUSES.values(), ids=PAUSES)
def test_the_longest_pause_between_two_lines_with_progress(
    lines: list[tuple[float, str, str]], want: float
) -> None:
    followed = Followed()
    for at, text, source in lines:
        followed.read_lines([LogLine(at, text)], now=moment(100.0), source=source)
    assert followed.pause == want


def test_restarts_are_counted() -> None:
    followed = Followed()
    steps = [1, 2, 3, 2, 3, 1]
    followed.read_lines(
        [LogLine(at, f"step {step} loss 1") for at, step in enumerate(steps)], now=moment(9.0)
    )
    assert followed.course.restarts == 2


def test_only_the_newest_of_many_lines_show_checkpoints() -> None:
    followed = Followed()
    lines = [LogLine(1.0, SAVED), *(LogLine(2.0, "x" * 4000) for _ in range(10))]
    followed.read_lines(lines, now=moment(9.0))
    assert followed.checkpoints == Checkpoints()


def test_a_repeated_line_is_no_restart_where_all_ranks_print() -> None:
    followed = Followed()
    followed.read_lines(steps(0, 1, 2), now=moment(2.5), source="a")
    followed.read_lines(steps(0, 1, 2, 3), now=moment(3.5), source="b", neighbours={"a"})
    assert (followed.course.restarts, followed.reported().progress.step) == (0, 3)
    followed.read_lines([LogLine(4.0, "step 1 loss 1")], now=moment(5.0), source="b")
    assert followed.course.restarts == 1


def steps(*times: int) -> list[LogLine]:
    """Return a line for each of these steps; step n is printed in second n."""
    return [LogLine(float(at), f"step {at} loss 1") for at in times]


TABLE = ["epoch   train_loss   time", "1       0.71         5.1", "2       0.61         5.2"]


@pytest.mark.parametrize(
    ("expression", "metric"),
    [
        pytest.param("", "train_loss", id="by the names above them"),
        pytest.param(r"^\d+ +(?P<value>[0-9.]+) ", "value", id="by an expression, as printed"),
    ],
)
def test_rows_of_a_table_are_read(expression: str, metric: str) -> None:
    followed = Followed(expression)
    followed.read_lines([LogLine(float(at), row) for at, row in enumerate(TABLE)], now=moment(9.0))
    progress = followed.reported().progress
    assert (progress.metric, progress.value) == (metric, 0.61)


def test_steps_without_a_measure_are_shown_once_they_continue() -> None:
    followed, shown_steps = Followed(), []
    for at in range(3):
        line = LogLine(float(at), f"[INFO] step={10 * at}, lr=0.1")
        followed.read_lines([line], now=moment(float(at)))
        shown_steps.append(followed.reported().progress.step)
    assert (shown_steps, reason(followed)) == ([None, 10, 20], names.REASON_RECOGNISED)


def post(followed: Followed, *posts: Post, at: float, source: str = "a", **fields: Any) -> None:
    followed.add_posts(posts, now=moment(at), source=source, **fields)


def loss(at: float, value: float, step: int | None = None, total: int = 100) -> Post:
    return Post(at, step, total, (("loss", value),))


def test_while_a_job_posts_its_log_shows_only_checkpoints() -> None:
    followed = Followed()
    post(followed, loss(10, 0.5, step=5), at=10)
    lines = [LogLine(11, "step 90/100 loss 0.1"), LogLine(12, "saved checkpoint /ckpt/90.pt")]
    followed.read_lines(lines, now=moment(12))
    reported = followed.reported()
    assert (reported.progress.value, reported.progress.step) == (0.5, 5)
    assert reported.known == Verdict(names.REASON_RECOGNISED, "the job posts loss")
    assert followed.checkpoints.shown
    assert followed.fruitless == 0


def test_the_log_counts_again_when_a_job_no_longer_posts() -> None:
    followed = Followed()
    post(followed, loss(10, 0.5, step=5), at=10)
    followed.read_lines([LogLine(200, "step 90/100 loss 0.1")], now=moment(200))
    assert followed.reported().progress.value == 0.1
    assert followed.reported().known == Verdict(names.REASON_RECOGNISED, "the log shows loss")


def test_posts_that_arrive_after_later_lines_are_no_restart() -> None:
    followed = Followed()
    followed.read_lines([LogLine(29, "step 29/100 loss 0.3")], now=moment(29))
    post(followed, loss(5, 0.5, step=5), loss(30, 0.2, step=30), at=30)
    assert followed.course.restarts == 0
    assert followed.reported().progress.step == 30


def test_steps_continue_between_two_measures() -> None:
    followed = Followed()
    for at in (10, 15, 20):
        post(followed, Post(at, at, 100), at=at)
    progress = followed.reported().progress
    assert (progress.step, progress.total, progress.rate, progress.remaining) == (
        20,
        100,
        1.0,
        80.0,
    )
    assert followed.reported().known == Verdict(
        names.REASON_RECOGNISED, "the job posts steps and no measure"
    )


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(Post(0, 10, 100), id="a percentage below the step"),
        pytest.param(Post(0, 60, 100), id="a percentage above the step, which is no restart"),
    ],
)
def test_steps_after_percentages_alone_start_a_new_count(first: Post) -> None:
    followed = Followed()
    post(followed, first, at=0)
    for at in range(60, 240, 60):
        post(followed, loss(at, 0.5, step=14 + at // 60, total=20), at=at)
    progress = followed.reported().progress
    assert (progress.step, progress.total, progress.remaining) == (17, 20, 180.0)
    assert followed.course.restarts == 0


def test_a_program_that_begins_again_at_a_checkpoint_has_restarted() -> None:
    followed = Followed()
    post(followed, loss(10, 0.5, step=50), at=10)
    post(followed, loss(20, 0.6, step=40), at=20)
    assert followed.course.restarts == 1


@pytest.mark.parametrize(
    ("neighbours", "step"),
    [
        pytest.param({"a"}, 50, id="the first pod continues"),
        pytest.param((), 30, id="the first pod has ended"),
    ],
)
def test_the_first_of_several_pods_that_post_counts(neighbours: Any, step: int) -> None:
    followed = Followed()
    post(followed, loss(10, 0.5, step=50), at=10)
    post(followed, loss(11, 0.6, step=30), at=11, source="b", neighbours=neighbours)
    assert followed.reported().progress.step == step


def test_an_unreadable_log_changes_nothing_for_a_job_that_posts() -> None:
    followed = Followed()
    post(followed, loss(10, 0.5), at=10)
    followed.record_failed_read(FORBIDDEN)
    assert reason(followed) == names.REASON_RECOGNISED


def test_growth_is_judged_by_posts_as_well_as_by_lines() -> None:
    followed, began = Followed(), 1000.0
    states = []
    for window in range(8):
        falling = max(0.0, 1.0 - 0.3 * window)
        at = began + window * INTERVAL
        values = [falling + 0.001 * (tick % 2) for tick in range(6)]
        batch = [loss(at + 5 * tick, value) for tick, value in enumerate(values)]
        post(followed, *batch, at=at + 29)
        states.append(state(followed))
    assert states == LISTS
