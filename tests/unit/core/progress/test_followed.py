"""A job whose log is read again and again."""

import pytest

from kfext import names
from kfext.core.progress.followed import INTERVAL, Followed
from kfext.core.progress.reported import GrowthState
from kfext.model.log_line import LogLine
from kfext.model.verdict import Verdict

AWAY = Verdict(names.REASON_LOG_UNAVAILABLE, "the kubelet does not answer")
FORBIDDEN = Verdict(names.REASON_LOG_FORBIDDEN, "may not")


def reading(followed: Followed, loss: list[float], *, at: float, every: float = 1.0) -> None:
    """Have a read find one line for each loss, `every` seconds apart from `at` on."""
    times = [at + every * number for number in range(len(loss))]
    lines = [LogLine(when, f"loss={value}") for when, value in zip(times, loss, strict=True)]
    followed.take(lines, now=times[-1] if times else at)


def state(followed: Followed) -> GrowthState | None:
    reported = followed.reported()
    return reported.state


def reason(followed: Followed) -> str:
    verdict = followed.reported().known
    return verdict.reason if verdict else ""


def test_a_job_that_improves_is_new_and_one_that_no_longer_does_is_completing() -> None:
    followed, began = Followed(), 1000.0
    seen = []
    for window in range(8):
        falling = max(0.0, 1.0 - 0.3 * window)
        values = [falling + 0.001 * (tick % 2) for tick in range(int(INTERVAL))]
        reading(followed, values, at=began + window * INTERVAL)
        seen.append(state(followed))
    grows, watched, done = GrowthState.NEW, GrowthState.WATCHING, GrowthState.COMPLETING
    assert seen == [grows, grows, grows, grows, grows, watched, done, done]


def test_silence_demotes_nothing() -> None:
    followed = Followed()
    for window in range(3):
        reading(followed, [3.0 - window + 0.01 * tick for tick in range(20)], at=window * INTERVAL)
    for later in range(10):
        followed.take([], now=(4 + later) * INTERVAL)
    assert state(followed) is GrowthState.NEW


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("step {step} loss {worse}", id="a restart from a checkpoint"),
        pytest.param("step {later} loss nan", id="a value that is not a number"),
    ],
)
def test_a_disturbance_demotes_nothing(line: str) -> None:
    followed, states = Followed(), []
    for window in range(6):
        lines = []
        for tick in range(10):
            step, loss = 10 * window + tick, 3.0 - 0.3 * window + 0.01 * (tick % 2)
            text = f"step {step} loss {loss}"
            if window == 3:
                text = line.format(step=step - 25, later=step, worse=loss + 1)
            lines.append(LogLine(window * INTERVAL + 3 * tick, text))
        followed.take(lines, now=(window + 1) * INTERVAL - 0.1)
        states.append(state(followed))
    assert set(states) == {GrowthState.NEW}


def test_a_metric_of_unknown_direction_has_no_state() -> None:
    followed = Followed(r"speed (?P<value>\d+)")
    followed.take([LogLine(1.0, "speed 12")], now=2.0)
    reported = followed.reported()
    assert (reported.progress.metric, reported.progress.value) == ("speed", 12.0)
    assert (reported.state, reported.growth) == (None, None)


def test_a_better_metric_begins_its_growth_anew() -> None:
    followed = Followed()
    for window in range(6):
        at = window * INTERVAL
        lines = [LogLine(at + tick, "val_loss: 1.0") for tick in range(20)]
        followed.take(lines, now=at + 20)
    assert state(followed) is GrowthState.COMPLETING
    followed.take([LogLine(200.0, "loss: 5.0")], now=201.0)
    assert state(followed) is GrowthState.NEW


@pytest.mark.parametrize(
    ("reads", "want"),
    [
        pytest.param([], "", id="nothing was read"),
        pytest.param([["starting"]], "", id="too early to say"),
        pytest.param([["x"], ["y"], ["z"]], names.REASON_NOTHING_RECOGNISED, id="three in vain"),
        pytest.param([["loss: 1"]], names.REASON_RECOGNISED, id="a loss"),
        pytest.param([["loss: 1"], [], [], [], []], names.REASON_RECOGNISED, id="silent later"),
        pytest.param([["loss: nan"]], names.REASON_DIVERGED, id="not a number"),
        pytest.param([["loss: nan"], ["loss: 2"]], names.REASON_RECOGNISED, id="a number again"),
        pytest.param([AWAY, AWAY], "", id="two reads failed"),
        pytest.param([AWAY] * 3, names.REASON_LOG_UNAVAILABLE, id="three reads failed"),
        pytest.param([AWAY] * 3 + [["loss: 1"]], names.REASON_RECOGNISED, id="it is back"),
        pytest.param([FORBIDDEN], names.REASON_LOG_FORBIDDEN, id="forbidden"),
        pytest.param(
            [["loss: 1"], FORBIDDEN], names.REASON_LOG_FORBIDDEN, id="a right was taken away"
        ),
    ],
)
def test_why_the_progress_is_known_or_not(reads: list[list[str] | Verdict], want: str) -> None:
    followed = Followed()
    for number, read in enumerate(reads):
        if isinstance(read, Verdict):
            followed.fail(read)
        else:
            followed.take([LogLine(number, text) for text in read], now=number)
    assert reason(followed) == want


def test_what_was_known_stays_while_the_log_cannot_be_read() -> None:
    followed = Followed()
    followed.take([LogLine(1.0, "step 7 loss 0.5")], now=2.0)
    for _ in range(5):
        followed.fail(AWAY)
    reported = followed.reported()
    assert (reported.progress.step, reported.progress.value) == (7, 0.5)


def test_of_many_lines_only_the_newest_are_looked_at() -> None:
    followed = Followed()
    filled = "x" * 4000
    lines = [LogLine(number, f"loss: 1.0 {filled}") for number in range(10)]
    lines += [LogLine(10 + number, f"val_loss: 2.0 {filled}") for number in range(5)]
    followed.take(lines, now=100.0)
    reported = followed.reported()
    assert reported.progress.metric == "val_loss"  # a loss of training would be preferred
