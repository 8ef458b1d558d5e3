"""The jobs that count as stalled, in hours of reads of their logs."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from kfext import names
from kfext.core.progress.posted import Post, Posted
from kfext.core.progress.reported import Reported
from kfext.core.progress.stall import MOVES
from kfext.model.cpu_use import CpuUse
from kfext.model.pod import Pod
from kfext.model.scale_state import ScaleState
from kfext.model.verdict import Verdict
from kfext.state.mirror.tracked_job import TrackedJob
from tests.unit.state.reports.test_progress import AWAY, FORBIDDEN, Bed, training

MINUTE, HOUR = 60.0, 3600.0
STARTED = 1e6
"""When the job starts, in epoch seconds."""
TICK = 5.0
UNREAD = {"down": AWAY, "no log": None}


class Hours(Bed):
    """A running job; `run` reads its log as often as the controller does. `at`: epoch seconds."""

    def __init__(self, *, pods: int = 1, name: str = "train", **settings: str) -> None:
        super().__init__()
        self.at = STARTED
        self.step = self.counter = 0
        self.alarms = 0
        self.tracked = self.start(name, pods=pods, **settings)

    def start(self, name: str, *, pods: int = 1, **settings: str) -> TrackedJob:
        self.builder = training(name, **settings).queued_by_kueue()
        self.tracked = self.runs(self.builder, pods=pods)
        return self.tracked

    @property
    def verdict(self) -> Verdict | None:
        moves = self.progress.followed(self.tracked.job.uid).moves
        return None if moves == MOVES else moves

    @property
    def hangs(self) -> bool:
        job = self.tracked.job
        return self.progress.silences.hangs(job, self.progress.followed(job.uid))

    @property
    def reason(self) -> str:
        return self.verdict.reason if self.verdict else ""

    def prints(self, activity: str) -> list[str]:
        """Return the lines since the last read during an activity."""
        self.step += activity == "steps"
        self.counter += 1
        return {
            "steps": [f"step {self.step}/90000 loss 0.5"],
            "bar": [f"Evaluating: 10%|#   | {self.counter}/90000 [00:01<00:09, 9.1it/s]"],
            "loads": [f"Loading shards: 10%|#   | {self.counter}/90000 [00:01<00:09, 9.1it/s]"],
            "saved": [f"Saved checkpoint to out/checkpoint-{500 * self.counter}"],
            "saves": ["Saving model checkpoint to out/checkpoint-500"],
            "heartbeat": [f"{self.counter} s: alive at step {self.step}/90000"],
            "two ranks": [f"[rank{rank}] at step {self.step - rank}/90000" for rank in (0, 1)],
            "silent": [],
        }[activity]

    def run(self, minutes: float, activity: str) -> "Hours":
        """Let some minutes pass in an activity."""
        until = self.at + minutes * MINUTE
        while self.at < until:
            self.at += TICK
            for read in self.due(self.at):
                before = self.reason
                if activity in UNREAD:
                    self.fail(read, UNREAD[activity])
                else:
                    self.finish(read, *self.prints(activity))
                self.alarms += self.reason == names.REASON_STALLED != before
        return self


Script = Sequence[tuple[float, str]]
EPOCHS: Script = [(20, "steps"), (10, "silent")] * 20
HANGS: dict[str, tuple[Script, int]] = {
    # minutes and activity of a job -> the number of reports
    "a first step that compiles for an hour and 50 minutes": ([(110, "silent"), (60, "steps")], 0),
    "a first step that never comes after a download": ([(5, "loads"), (130, "silent")], 1),
    "a log in which kfext recognises nothing": ([(300, "silent")], 0),
    "a download before a first step of 100 minutes": (
        [(5, "loads"), (100, "silent"), (9, "steps")], 0,
    ),
    "an evaluation of 25 minutes in the first hour": (
        [(30, "steps"), (25, "silent"), (9, "steps")], 0,
    ),
    "the same evaluation again and again": ([(30, "steps"), (25, "silent")] * 8, 0),
    "an evaluation of two hours with a bar": ([(180, "steps"), (120, "bar"), (9, "steps")], 0),
    "a save of 50 minutes that was announced": (
        [(180, "steps"), (1, "saves"), (49, "silent"), (9, "steps")], 0,
    ),
    "a save of 50 minutes that nothing announced": (
        [(180, "steps"), (50, "silent"), (9, "steps")], 1,
    ),
    "pauses between epochs": (EPOCHS, 0),
    "a step each 20 minutes": ([(0.5, "steps"), (19.5, "silent")] * 20, 0),
    "a step each 37 minutes": ([(37, "silent"), (6, "steps")] * 5, 0),
    "a program that restarts in its pods and compiles again": (
        [(40, "silent"), (180, "steps"), (40, "silent"), (9, "steps")], 0,
    ),
    "a log that shows a checkpoint each 130 minutes and no step": (
        [(124, "silent"), (6, "saved")] * 6, 0,
    ),
    "a hang after three hours": ([(180, "steps"), (17, "silent")], 1),
    "a hang in the first two hours": ([(60, "steps"), (32, "silent")], 1),
    "a hang with heartbeats that repeat its step": ([(180, "steps"), (17, "heartbeat")], 1),
    "a hang in which two ranks repeat their lines": ([(180, "steps"), (17, "two ranks")], 1),
    "a kubelet that is down for an hour": ([(180, "steps"), (60, "down"), (9, "steps")], 0),
    "a kubelet that is down during a silence": (
        [(180, "steps"), (10, "silent"), (60, "down"), (4, "silent"), (9, "steps")], 0,
    ),
    "a container that waits for its next start for half an hour": (
        [(180, "steps"), (30, "no log"), (1, "silent"), (9, "steps")], 0,
    ),
    "two hangs": ([(180, "steps"), (17, "silent"), (9, "steps"), (60, "silent")], 2),
}  # fmt: skip


@pytest.mark.parametrize(("script", "alarms"), HANGS.values(), ids=HANGS)
def test_the_number_of_reports_on_a_stalled_job(script: Script, alarms: int) -> None:
    hours = Hours()
    for minutes, activity in script:
        hours.run(minutes, activity)
    assert hours.alarms == alarms


def test_a_report_has_its_evidence_and_ends_once_a_counter_moves() -> None:
    hours = Hours().run(150, "steps").run(4, "silent").run(30, "steps").run(16, "silent")
    assert hours.verdict is not None
    since, pause, step = hours.verdict.message.split("; ")
    assert since.startswith("no counter of its log has moved since 1")
    assert pause in {f"its longest pause before was {240 + more} s" for more in range(0, 61, 5)}
    assert step == f"its last step is {hours.step}"
    assert hours.progress.stalled == 1
    hours.run(1, "steps")
    assert (hours.reason, hours.progress.stalled) == ("", 0)


def test_a_stall_shown_by_an_earlier_controller_counts_until_a_counter_moves() -> None:
    hours = Hours()
    shown = Reported(moves=SHOWN)

    def moves() -> Verdict | None:
        reported = hours.progress.reported(hours.tracked.job.uid)
        assert reported is not None
        return reported.after(shown).moves

    hours.run(0.01, "steps")  # the last lines before the controller began
    hours.run(25, "silent")
    assert moves() == shown.moves
    hours.run(1, "steps")
    assert moves() == MOVES


SHOWN = Verdict(names.REASON_STALLED, "since long ago")
INHERITED: dict[str, tuple[float, Verdict | None]] = {
    # the time of an earlier controller's report -> the verdict 40 minutes later
    "after the pods were created": (STARTED + 60, SHOWN),
    "before": (STARTED - 60, None),
}


@pytest.mark.parametrize(("since", "want"), INHERITED.values(), ids=INHERITED)
def test_the_evidence_of_an_earlier_controller_counts_until_a_counter_moves(
    since: float, want: Verdict | None
) -> None:
    bed = Hours().run(0.01, "steps")
    followed = bed.progress.followed(bed.tracked.job.uid)
    bed.progress.silences.inherit(followed, SHOWN, since=since)
    assert (bed.run(25, "silent").verdict, bed.progress.stalled) == (want, int(want is not None))
    assert (bed.run(15, "silent").verdict == SHOWN) is (want is not None)
    assert bed.run(1, "steps").verdict is None
    assert bed.run(150, "silent").verdict not in {SHOWN, None}


def test_a_job_is_not_judged_before_its_log_was_read_twice() -> None:
    bed = Hours().run(0.01, "steps")
    assert bed.progress.followed(bed.tracked.job.uid).moves is None


# --- changes that do not count --------------------------------------------------------------------


def change_size(hours: Hours) -> None:
    """The number of workers has just changed."""
    scale = ScaleState(changed_at=hours.at)
    hours.tracked.state = replace(hours.tracked.state, scale=scale)


def last_pod(hours: Hours) -> Pod:
    return max(hours.cluster.pods(hours.tracked.job.uid), key=lambda pod: pod.name)


def lose_pod(hours: Hours) -> None:
    pod = last_pod(hours)
    hours.cluster.observe_pod(pod, replace(pod, phase="Pending"))


def replace_pod(hours: Hours) -> None:
    """The job was suspended or moved, and continues in new pods."""
    pod = last_pod(hours)
    hours.cluster.observe_pod(pod, None)
    hours.cluster.observe_pod(None, replace(pod, uid="new", created=hours.at))


def test_steps_of_older_pods_beside_a_new_pod_do_not_count_as_its_first_step() -> None:
    bed = Hours(pods=2).run(40, "silent").run(60, "steps")
    change_size(bed)
    replace_pod(bed)
    assert bed.run(0.6, "steps").run(40, "silent").run(9, "steps").alarms == 0


def test_a_change_of_the_size_does_not_count_as_a_sign_of_life() -> None:
    bed = Hours(pods=2).run(60, "silent")
    change_size(bed)
    assert bed.run(150, "silent").alarms == 0


def test_a_job_that_hangs_soon_after_its_start_is_reported() -> None:
    assert Hours(pods=2).run(1, "steps").run(32, "silent").alarms == 1


def test_a_new_controller_does_not_know_when_the_first_step_came() -> None:
    hours = Hours(pods=2)
    hours.at += 4 * HOUR
    hours.run(1, "bar").run(150, "steps")
    replace_pod(hours)
    assert hours.run(40, "silent").alarms == 0


EVENTS: dict[str, Callable[[Hours], None]] = {
    "a change of the size": change_size,
    "a pod that does not run": lose_pod,
    "a new start": replace_pod,
}


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_the_silence_starts_again_after_an_event(event: Callable[[Hours], None]) -> None:
    bed = Hours(pods=2).run(180, "steps").run(12, "silent")
    event(bed)
    assert bed.run(12, "silent").alarms == 0


@pytest.mark.parametrize("event", [lose_pod, replace_pod])
def test_a_report_ends_when_a_pod_is_lost_or_replaced(event: Callable[[Hours], None]) -> None:
    bed = Hours(pods=2).run(180, "steps").run(40, "silent")
    assert (bed.reason, bed.hangs) == (names.REASON_STALLED, True)
    event(bed)
    assert not bed.hangs, "before the next read"
    bed.run(1, "silent")
    assert (bed.reason, bed.hangs) == ("", False)


def suspend(hours: Hours) -> None:
    hours.tracked.job = replace(hours.tracked.job, suspend=True)


def end_as_failed(hours: Hours) -> None:
    """The job ends, and its pods are gone before its last lines are read."""
    hours.cluster.observe_job(hours.builder.condition("Failed", since=hours.at).version(1000).raw)


@pytest.mark.parametrize("change", [suspend, end_as_failed])
def test_a_job_that_does_not_run_does_not_count_as_stalled(change: Callable[[Hours], None]) -> None:
    bed = Hours().run(180, "steps").run(20, "silent")
    assert bed.progress.stalled == 1
    change(bed)
    assert bed.progress.stalled == 0


def test_a_job_with_a_log_that_is_not_read_does_not_count_as_stalled() -> None:
    bed = Hours().run(180, "steps").run(20, "silent")
    bed.cluster.observe_job(bed.builder.annotated(names.METRICS, "off").version(1000).raw)
    assert bed.run(6, "silent").progress.stalled == 0


UNREADABLE = {"the kubelet is down": (AWAY, 30.0), "kfext may not read it": (FORBIDDEN, 6.0)}


@pytest.mark.parametrize(("why", "minutes"), UNREADABLE.values(), ids=UNREADABLE)
def test_an_unreadable_log_makes_a_job_unknown_and_never_stalled(
    why: Verdict, minutes: float
) -> None:
    bed = Hours().run(180, "steps").run(20, "silent")
    assert bed.reason == names.REASON_STALLED
    until = bed.at + minutes * MINUTE
    while bed.at < until:
        bed.at += TICK
        for read in bed.due(bed.at):
            bed.fail(read, why)
    assert bed.verdict == why
    assert bed.run(6, "steps").verdict is None


# --- the history of a series ----------------------------------------------------------------------


def end(hours: Hours, *, succeeds: bool) -> None:
    """End the job, and delete it with its pods."""
    job = hours.tracked.job
    ended = hours.builder.condition("Succeeded" if succeeds else "Failed", since=hours.at).version(
        1000
    )
    hours.cluster.observe_job(ended.raw)
    hours.run(1, "silent")
    for pod in hours.cluster.pods(job.uid):
        hours.cluster.observe_pod(pod, None)
    hours.cluster.forget_job(job.uid)
    hours.run(1, "silent")


SERIES: dict[str, tuple[Script, bool, Script, int]] = {
    # the first job, whether it succeeds, the second job -> the reports on the second job
    "a series with history is reported sooner": (
        [(30, "steps")], True, [(30, "steps"), (17, "silent")], 1,
    ),
    "a job that failed early is no history": (
        [(30, "steps")], False, [(30, "steps"), (17, "silent")], 0,
    ),
    "a long run is history": ([(150, "steps")], False, [(30, "steps"), (17, "silent")], 1),
    "a job of two minutes says nothing of the next hours": (
        [(2, "steps")], True, [(30, "steps"), (20, "silent"), (9, "steps")], 0,
    ),
    "its longest silence counts": (
        [(30, "steps"), (20, "silent"), (9, "steps")], True, [(30, "steps"), (50, "silent")], 0,
    ),
    "its first step counts": (
        [(50, "silent"), (30, "steps")], True, [(140, "silent"), (9, "steps")], 0,
    ),
    "a quick first step counts": ([(1, "silent"), (30, "steps")], True, [(17, "silent")], 1),
}  # fmt: skip


@pytest.mark.parametrize(("first", "succeeds", "second", "alarms"), SERIES.values(), ids=SERIES)
def test_the_reports_on_a_job_of_a_series_with_a_history(
    first: Script, succeeds: bool, second: Script, alarms: int
) -> None:
    hours = Hours(name="train-1")
    for minutes, activity in first:
        hours.run(minutes, activity)
    end(hours, succeeds=succeeds)
    assert hours.alarms == 0
    hours.start("train-2")
    for minutes, activity in second:
        hours.run(minutes, activity)
    assert hours.alarms == alarms


# --- posts ----------------------------------------------------------------------------------------


def test_a_job_that_only_posts_is_alive_while_it_posts() -> None:
    hours = Hours(metrics="push")
    uid = hours.tracked.job.uid
    for number in range(1, 400):
        hours.at += 30
        posted = Posted(f"{uid}-0", (Post(hours.at, number, 900),))
        hours.progress.post(uid, posted, hours.now)
        for read in hours.due(hours.at):
            hours.finish(read)
    assert hours.reason == ""
    assert hours.run(25, "silent").alarms == 1


# --- the odd pod ----------------------------------------------------------------------------------

CORES = {"healthy": [7.8, 7.9, 7.7, 7.8], "the third waits": [7.8, 7.9, 4.0, 7.8]}


def measure(hours: Hours, cores: Sequence[float], *, times: int) -> None:
    """Let the job be silent during some measurements."""
    uid = hours.tracked.job.uid
    for _ in range(times):
        uses = {f"{uid}-{n}": CpuUse(use, at=hours.at, window=30.0) for n, use in enumerate(cores)}
        hours.progress.record_measurements(uses)
        hours.run(0.5, "silent")


@pytest.mark.parametrize(
    ("cores", "times", "want"),
    [
        pytest.param(
            CORES["the third waits"], 3, "train-worker-2 on a uses 4 CPUs", id="it differs"
        ),
        pytest.param(CORES["the third waits"], 2, "", id="in two measurements alone"),
        pytest.param(CORES["healthy"], 3, "", id="no pod differs"),
    ],
)
def test_the_pod_that_differs_is_named(cores: list[float], times: int, want: str) -> None:
    bed = Hours(pods=4).run(180, "steps").run(16, "silent")
    measure(bed, cores, times=times)
    assert bed.verdict is not None
    assert bed.verdict.message.partition(want or " uses ")[1] == want


def test_no_pod_is_named_without_measurements() -> None:
    bed = Hours(pods=4).run(180, "steps").run(20, "silent")
    assert bed.verdict is not None
    assert " uses " not in bed.verdict.message


def test_a_namespace_keeps_the_history_of_few_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kfext.state.reports.silences._MAX_SERIES", 2)
    hours = Hours(name="a")
    for name in "bcd":
        end(hours.run(3, "steps"), succeeds=True)
        hours.start(name)
    (series,) = hours.progress.silences._habits.values()
    assert len(series) == 2
