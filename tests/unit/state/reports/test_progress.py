"""When each log is read, and the progress that logs and posts show."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from e2e.harness.katib import with_collector
from kfext import names
from kfext.core.progress.checkpoints import Checkpoints
from kfext.core.progress.posted import Post, Posted
from kfext.core.progress.reported import Reported
from kfext.core.settings.resolve import resolve
from kfext.core.settings.table import Settings
from kfext.model.cpu_use import CpuUse
from kfext.model.log_line import LogLine
from kfext.model.moment import Moment
from kfext.model.policy import TrainingPolicy
from kfext.model.timestamps import written_time
from kfext.model.verdict import Verdict
from kfext.names import PLACED
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.reports.progress import JobsProgress, LogRead
from tests.builders import JobBuilder, job, node, pod

AWAY = Verdict(names.REASON_LOG_UNAVAILABLE, "the kubelet does not answer")
FORBIDDEN = Verdict(names.REASON_LOG_FORBIDDEN, "may not")
LOSS = ["step 1 loss 0.5"]


def settings_of(tracked: TrackedJob) -> Settings:
    return resolve(tracked.job.annotations, {}, TrainingPolicy())


class Bed:
    """A cluster of jobs that run, and the reads of their logs. The clocks show `at`."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.progress = JobsProgress(self.cluster, settings_of)
        self.at = 0.0

    def runs(
        self,
        builder: JobBuilder,
        *,
        on: str = "a",
        phase: str = "Running",
        pods: int = 1,
        spec: Mapping[str, Any] | None = None,
    ) -> TrackedJob:
        self.cluster.observe_job(builder.raw)
        training_job = builder.build()
        uid = training_job.uid
        for index in range(pods):
            worker = pod(training_job, "worker", index, bound=on, uid=f"{uid}-{index}", spec=spec)
            self.cluster.observe_pod(None, replace(worker, phase=phase, created=self.at))
        tracked = self.cluster.jobs[uid]
        tracked.phase = PLACED
        return tracked

    def due(self, at: float | None = None, most: int = 100) -> list[LogRead]:
        self.at = self.at if at is None else at
        return self.progress.due(self.at, most=most)

    def finish(self, read: LogRead, *lines: str) -> None:
        """Finish a read with new lines."""
        printed = [LogLine(self.at, line) for line in lines]
        self.progress.read_lines(read, printed, self.now)

    def fail(self, read: LogRead, why: Verdict | None) -> None:
        self.progress.fail(read, why, self.now)

    @property
    def now(self) -> Moment:
        return Moment(wall=self.at, monotonic=self.at)

    def next(self) -> tuple[float, LogRead]:
        """Wait second by second for the next read; return the wait and the read."""
        began = self.at
        while self.at < began + 1000:
            if reads := self.due(self.at + 1):
                return self.at - began, reads[0]
        raise AssertionError("nothing is read any more")


def training(name: str = "train", *, namespace: str = "team", **settings: str) -> JobBuilder:
    builder = job(name=name, uid=f"uid-{namespace}-{name}").worker(1, cpu="1").resumed()
    builder.raw["metadata"]["namespace"] = namespace
    for key, value in settings.items():
        builder.annotated(f"{names.DOMAIN}/{key}", value)
    return builder


def test_the_log_of_the_training_container_of_rank_0_is_read() -> None:
    bed = Bed()
    bed.runs(training(), pods=1)
    (read,) = bed.due()
    assert (read.pod.name, read.container) == ("train-worker-0", "pytorch")


def test_the_log_of_the_collector_of_a_katib_trial_is_read() -> None:
    spec = {"containers": [{"name": "pytorch", "image": "i", "command": ["python3", "train.py"]}]}
    bed = Bed()
    tracked = bed.runs(training(), spec=with_collector(spec))
    (read,) = bed.due()
    assert read.container == "metrics-logger-and-collector"
    bed.finish(read, "I1127 10:00:00.123456      14 main.go:143] step 3/40 loss=0.25")
    reported = bed.progress.reported(tracked.job.uid)
    assert reported is not None
    assert (reported.progress.step, reported.progress.value) == (3, 0.25)


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        pytest.param({"phase": "Pending"}, 0, id="a pod that has not started has no log"),
        pytest.param({"phase": "Running"}, 1, id="a pod that runs has a log"),
        pytest.param({"phase": "Succeeded"}, 1, id="a pod that ended has a log"),
    ],
)
def test_a_pod_has_a_log_once_it_has_started(fields: dict[str, Any], want: int) -> None:
    bed = Bed()
    bed.runs(training(), **fields)
    assert len(bed.due()) == want


@pytest.mark.parametrize(
    ("settings", "reads"),
    [
        pytest.param({}, 1, id="without a setting"),
        pytest.param({"metrics": "auto"}, 1, id="auto"),
        pytest.param({"metrics": r"stdout:l (?P<value>\d+)"}, 1, id="an expression"),
        pytest.param({"metrics": "off"}, 0, id="off"),
        pytest.param({"metrics": "push"}, 1, id="push, for checkpoints and until it posts"),
        pytest.param({"metrics": "pull"}, 1, id="a malformed value"),
    ],
)
def test_the_setting_says_whether_a_log_is_read(settings: dict[str, str], reads: int) -> None:
    bed = Bed()
    bed.runs(training(**settings))
    assert len(bed.due()) == reads


@pytest.mark.parametrize(
    ("resize", "phase", "seconds"),
    [
        pytest.param("off", "Running", 30, id="usually"),
        pytest.param("cpu", "Running", 15, id="more often while a job may be resized"),
        pytest.param("observe", "Running", 15, id="or while a dry run is shown"),
        pytest.param("cpu", "Succeeded", 30, id="until it has ended"),
    ],
)
def test_the_interval_of_cpu_measurements(resize: str, phase: str, seconds: float) -> None:
    bed = Bed()
    bed.runs(training(resize=resize), phase=phase)
    bed.due()
    assert bed.progress.measure_seconds == seconds


def test_jobs_that_kfext_does_not_handle_are_not_read() -> None:
    bed = Bed()
    bed.runs(training()).phase = None
    assert bed.due() == []


@pytest.mark.parametrize(
    ("settings", "lines", "want"),
    [
        pytest.param({}, LOSS, 30, id="usually every 30 s"),
        pytest.param({"resize": "cpu"}, LOSS, 10, id="with resizing every 10 s"),
        pytest.param({"elastic": "1-4"}, LOSS, 10, id="with scaling too"),
        pytest.param({"migrate": "checkpointed"}, LOSS, 10, id="with migration too"),
        pytest.param({}, ["loss 0.5"], 30, id="also of a job that prints no steps"),
        pytest.param({}, ["nothing"], 3, id="more often while nothing is recognised yet"),
    ],
)
def test_the_seconds_between_reads(settings: dict[str, str], lines: list[str], want: float) -> None:
    bed = Bed()
    bed.runs(training(**settings))
    (read,) = bed.due()
    for _ in range(2):
        bed.finish(read, *lines)
        pause, read = bed.next()
    assert pause == want


def test_a_log_is_read_soon_again_until_two_reads_show_progress() -> None:
    bed = Bed()
    bed.runs(training())
    (read,) = bed.due()
    waited = []
    for lines in ([], ["step 1/90 loss 0.5"], [], [], ["step 2/90 loss 0.5"], []):
        bed.finish(read, *lines)
        pause, read = bed.next()
        waited.append(pause)
    assert waited == [3, 3, 3, 3, 30, 30]


@pytest.mark.parametrize(
    ("others", "pauses"),
    [
        pytest.param(0, [3] * 600 + [300] * 2, id="few jobs: after half an hour"),
        pytest.param(299, [15] * 20 + [300] * 2, id="more jobs: after five minutes"),
        pytest.param(999, [30] * 10 + [300] * 2, id="a thousand jobs: after ten reads"),
    ],
)
def test_a_log_that_shows_nothing_is_read_seldom_until_it_does(
    others: int, pauses: list[int]
) -> None:
    bed = Bed()
    bed.runs(training(), on="own")
    for number in range(others):
        bed.runs(training(f"other-{number}"), on=f"node-{number}")
    (read,) = [
        read for read in bed.due(most=others + 1) if read.tracked.job.name == "train"
    ]  # the reads of the others never end
    waited = []
    for _ in pauses:
        bed.finish(read, "nothing")
        pause, read = bed.next()
        waited.append(pause)
    assert waited == pauses
    bed.finish(read, *LOSS)
    assert bed.next()[0] == min(30, pauses[0])
    bed.finish(read, *LOSS)
    assert bed.next()[0] == 30


FIRST_LINES: dict[str, tuple[int, Callable[[int], float]]] = {
    "at once": (200, lambda number: 0.0),
    "one after another": (200, lambda number: number * 0.15),
    "after 90 s": (200, lambda number: 90.0 + number * 0.01),
    "after six minutes": (200, lambda number: 360.0 + number * 0.1),
    "at any time, for every second job": (200, lambda number: number * 1.9 * (number % 2)),
    "few jobs": (20, lambda number: 1.7 * number),
}


@pytest.mark.parametrize(("jobs", "first"), FIRST_LINES.values(), ids=FIRST_LINES)
def test_the_first_line_of_each_of_200_jobs_is_read_within_ten_seconds(
    jobs: int, first: Callable[[int], float]
) -> None:
    bed = Bed()
    prints = {}
    for number in range(jobs):
        namespace = f"team-{number % 7 and number % 3}"
        builder = training(f"job-{number}", namespace=namespace)
        prints[bed.runs(builder, on=f"node-{number // 2}").job.uid] = first(number)
    late, per_tick = dict[str, float](), list[int]()
    while len(late) < jobs:
        reads = bed.due(bed.at + 0.5, most=10)
        per_tick.append(len(reads))
        for read in reads:
            printed = prints[read.uid] <= bed.at
            bed.finish(read, *(LOSS if printed else ["nothing"]))
            if printed:
                late.setdefault(read.uid, bed.at - prints[read.uid])
    assert max(late.values()) <= 10.0
    assert max(map(sum, pairwise(per_tick))) <= 20


def test_each_of_a_thousand_jobs_that_show_nothing_is_read_in_its_turn() -> None:
    bed = Bed()
    for number in range(1000):
        bed.runs(training(f"job-{number}", namespace=f"team-{number % 4}"), on=f"n-{number // 8}")
    last, longest = dict.fromkeys(bed.cluster.jobs, 0.0), 0.0
    while bed.at < 160.0:
        for read in bed.due(bed.at + 0.5, most=10):
            longest = max(longest, bed.at - last[read.uid])
            last[read.uid] = bed.at
            bed.finish(read, "nothing")
    assert longest <= 1000 / 20 + 2
    assert min(last.values()) >= bed.at - longest


@pytest.mark.parametrize(
    ("failures", "want"),
    [
        pytest.param([None], 10, id="no log yet"),
        pytest.param([AWAY], 30, id="one failure"),
        pytest.param([AWAY, AWAY], 60, id="two failures"),
        pytest.param([AWAY] * 9, 300, id="many failures"),
        pytest.param([FORBIDDEN], 300, id="forbidden"),
    ],
)
def test_the_back_off_after_failed_reads(failures: list[Verdict | None], want: float) -> None:
    bed = Bed()
    bed.runs(training())
    for why in failures:
        (read,) = bed.due(bed.at + 1000)
        bed.fail(read, why)
    assert bed.next()[0] == want


def test_a_log_is_not_read_again_before_its_read_has_ended() -> None:
    bed = Bed()
    bed.runs(training())
    assert len(bed.due()) == 1
    assert bed.due(1000.0) == []


def test_the_log_of_an_ended_pod_is_read_exactly_once_more() -> None:
    bed = Bed()
    tracked = bed.runs(training())
    (read,) = bed.due()
    bed.finish(read, *LOSS)
    running = read.pod
    bed.cluster.observe_pod(running, replace(running, phase="Succeeded", resource_version="2"))
    (last,) = bed.due(bed.at + 30)
    bed.finish(last, "step 9 loss 0.1")
    assert bed.due(bed.at + 1000) == []
    reported = bed.progress.reported(tracked.job.uid)
    assert reported is not None
    assert reported.progress.step == 9


def test_the_log_of_a_pod_that_ended_before_its_container_started_is_sought_once() -> None:
    bed = Bed()
    bed.runs(training())
    (read,) = bed.due()
    bed.cluster.observe_job(training().condition("Failed").version(2).raw)
    bed.fail(replace(read, pod=replace(read.pod, phase="Failed")), None)
    bed.cluster.observe_pod(read.pod, replace(read.pod, phase="Failed", resource_version="2"))
    assert bed.due(bed.at + 1000) == []


def test_the_log_of_a_job_that_finishes_is_read_at_once() -> None:
    bed = Bed()
    tracked = bed.runs(training())
    (read,) = bed.due()
    bed.finish(read, *LOSS)
    assert bed.due(1.0) == []
    bed.cluster.observe_job(training().condition("Succeeded").version(2).raw)
    assert [read.uid for read in bed.due(2.0)] == [tracked.job.uid]
    bed.finish(read, "step 9 loss 0.1")
    assert bed.due(3.0) == []


def test_a_job_that_ended_between_two_reads_is_read_once() -> None:
    bed = Bed()
    bed.runs(training(), phase="Pending")
    assert bed.due() == []
    bed.runs(training().condition("Succeeded").version(2), phase="Succeeded")
    (read,) = bed.due(5.0)
    bed.finish(read, "step 9 loss 0.1")
    reported = bed.progress.reported(read.uid)
    assert reported is not None
    assert reported.progress.step == 9
    assert bed.due(1000.0) == []


def test_a_job_that_finishes_while_its_log_is_read_is_read_once_more_at_once() -> None:
    bed = Bed()
    bed.runs(training())
    (read,) = bed.due()
    bed.cluster.observe_job(training().condition("Succeeded").version(2).raw)
    assert bed.due(1.0) == []
    bed.finish(read, *LOSS)
    assert len(bed.due(2.0)) == 1


def test_little_is_kept_of_a_job_once_its_last_lines_were_read() -> None:
    bed = Bed()
    tracked = bed.runs(training())
    bed.finish(bed.due()[0], *LOSS)
    (pod_,) = bed.cluster.pods(tracked.job.uid)
    bed.cluster.observe_pod(pod_, replace(pod_, phase="Succeeded", resource_version="2"))
    bed.cluster.observe_job(training().condition("Succeeded").version(2).raw)
    bed.finish(bed.due(1.0)[0], "step 9 loss 0.1")
    assert bed.progress.reported(tracked.job.uid) is not None
    assert bed.due(60.0) == []
    assert bed.progress.reported(tracked.job.uid) is None
    assert bed.due(1000.0) == []


def test_jobs_that_had_ended_before_are_not_read() -> None:
    bed = Bed()
    bed.runs(training().condition("Succeeded"), phase="Succeeded")
    assert bed.due() == []


def test_namespaces_take_turns() -> None:
    bed = Bed()
    for number in range(10):
        bed.runs(training(f"many-{number}", namespace="big"), on=f"n{number}")
    bed.runs(training("one", namespace="small"), on="x")
    chosen = bed.due(most=4)
    assert len(chosen) == 4
    assert [read.pod.namespace for read in chosen].count("small") == 1
    assert len({read.uid for read in [*chosen, *bed.due(most=100)]}) == 11


def test_each_job_is_read_once_before_any_is_read_again() -> None:
    bed = Bed()
    for number in range(30):
        bed.runs(training(f"job-{number}", namespace=f"team-{number % 3}"), on=f"n{number}")
    seen: list[str] = []
    for _ in range(10):
        reads = bed.due(bed.at + 60, most=6)
        seen += [read.uid for read in reads]
        for read in reads:
            bed.finish(read, *LOSS)
    assert len(set(seen[:30])) == len(set(seen[30:])) == 30


def test_few_reads_wait_for_one_node() -> None:
    bed = Bed()
    for number in range(5):
        bed.runs(training(f"stuck-{number}"), on="stuck")
    bed.runs(training("fine"), on="well")
    first = bed.due()
    assert sorted(read.pod.node_name for read in first) == ["stuck", "stuck", "well"]
    assert bed.due(5.0) == []
    bed.fail(next(read for read in first if read.pod.node_name == "stuck"), AWAY)
    assert [read.pod.node_name for read in bed.due(10.0)] == ["stuck"]


def test_the_log_of_another_worker_is_found_when_it_becomes_rank_0() -> None:
    bed = Bed()
    elastic = job(uid="e").worker(4, cpu="1").elastic(minReplicas=1, rdzvBackend="c10d").resumed()
    bed.runs(elastic, pods=4)
    prints, seen = {1: "train-worker-0", 7: "train-worker-3"}, []
    rank_zero = ""
    for number in range(1, 16):
        rank_zero = prints.get(number, rank_zero)
        (read,) = bed.due()
        bed.finish(read, *(LOSS if read.pod.name == rank_zero else ["nothing"]))
        seen.append(read.pod.name.removeprefix("train-worker-"))
        bed.at += 30
    # While it shows nothing, the log that showed something last is read twice more, then every
    # second time.
    assert "".join(seen) == "000000" + "00" + "010203" + "3"


def test_the_jobs_with_known_progress_are_reported() -> None:
    bed = Bed()
    for name in ("shows", "prints-nothing"):
        bed.runs(training(name), on=name)
    for read in bed.due():
        bed.finish(read, *(LOSS if read.tracked.job.name == "shows" else ["nothing"]))
    ((known, reported),) = bed.progress.reports()
    assert (known.name, reported.progress.step) == ("shows", 1)


def test_a_new_expression_starts_without_progress() -> None:
    bed = Bed()
    tracked = bed.runs(training())
    bed.finish(bed.due()[0], *LOSS)
    bed.cluster.observe_job(training(metrics=r"stdout:x (?P<value>\d+)").version(2).raw)
    assert len(bed.due(30.0)) == 1
    assert bed.progress.reported(tracked.job.uid) == Reported()


@pytest.mark.parametrize("gone", ["off", "deleted"])
def test_nothing_is_known_of_a_job_that_was_deleted_or_opted_out(gone: str) -> None:
    bed = Bed()
    tracked = bed.runs(training())
    (read,) = bed.due()
    if gone == "off":
        bed.finish(read, *LOSS)
        bed.cluster.observe_job(training(metrics="off").version(2).raw)
        assert bed.due(30.0) == []
    else:
        bed.cluster.forget_job(tracked.job.uid)
        assert bed.due(30.0) == []
        bed.finish(read, *LOSS)
    assert bed.progress.reported(tracked.job.uid) is None


def cores(amount: float) -> CpuUse:
    return CpuUse(amount, at=1.0, window=30.0)


@pytest.mark.parametrize(
    ("allocatable", "growth"),
    [
        pytest.param("4", 4 * 0.4, id="a quarter of its node"),
        pytest.param("", 0.4, id="an unknown node: all of it"),
    ],
)
def test_growth_counts_the_used_fraction_of_the_nodes(allocatable: str, growth: float) -> None:
    bed = Bed()
    if allocatable:
        bed.cluster.observe_node(None, node("a", cpu=allocatable))
    tracked = bed.runs(training())
    for window, value in enumerate((1.0, 0.6)):
        (read,) = bed.due(30.0 * window + 29.9)
        bed.progress.record_measurements({read.pod.uid: cores(1.0)})
        lines = [LogLine(30.0 * window + tick, f"loss={value}") for tick in range(29)]
        bed.progress.read_lines(read, lines, bed.now)
    reported = bed.progress.reported(tracked.job.uid)
    assert reported is not None
    assert reported.growth == pytest.approx(growth)


def test_a_job_on_a_busy_node_keeps_its_place() -> None:
    bed = Bed()
    on_busy = {bed.runs(training(f"busy-{number}"), on="busy").job.name for number in range(3)}
    reads = bed.due()
    (parked,) = on_busy - {read.tracked.job.name for read in reads}
    for number in range(30):
        bed.runs(training(f"other-{number}"), on=f"node-{number}")
    assert bed.due(most=1)
    bed.finish(reads[0], *LOSS)
    assert [read.tracked.job.name for read in bed.due(most=1)] == [parked]


def test_a_thousand_jobs_packed_on_few_nodes_are_all_read_in_little_more_than_their_turns() -> None:
    bed = Bed()
    for number in range(1000):
        bed.runs(training(f"job-{number}"), on=f"node-{number // 32}")
    seen: set[str] = set()
    under_way: list[LogRead] = []
    while bed.at < 90 and len(seen) < 1000:
        bed.at += 0.5
        began = bed.due(most=10)
        seen |= {read.uid for read in began}
        for read in under_way:
            bed.finish(read, *LOSS)
        under_way = began
    assert len(seen) == 1000


SAVED = "saved checkpoint /c/1.pt"


def test_the_log_shows_checkpoints_restarts_and_pauses() -> None:
    bed = Bed()
    uid = bed.runs(training()).job.uid
    read = bed.due()[0]
    for at, step in ((0.0, 5), (40.0, 7), (50.0, 6)):
        bed.at = at
        bed.finish(read, f"step {step} loss 0.5", SAVED)
    progress = bed.progress
    assert progress.followed(uid).checkpoints == Checkpoints(saved=50.0, step=6)
    assert (
        progress.followed(uid).course.restarts,
        progress.followed(uid).pause,
        progress.last_read(uid),
    ) == (1, 40.0, 50.0)


def test_a_failed_read_does_not_count_as_the_last_read() -> None:
    bed = Bed()
    uid = bed.runs(training()).job.uid
    bed.finish(bed.due(5.0)[0], *LOSS)
    bed.fail(bed.due(1000.0)[0], AWAY)
    assert bed.progress.last_read(uid) == 5.0


def test_no_settings_are_read_when_the_read_of_a_deleted_job_ends() -> None:
    bed, resolved = Bed(), list[str]()

    def record(tracked: TrackedJob) -> Settings:
        resolved.append(tracked.job.uid)
        return settings_of(tracked)

    bed.progress = JobsProgress(bed.cluster, record)
    uid = bed.runs(training()).job.uid
    read = bed.due()[0]
    bed.cluster.forget_job(uid)
    resolved.clear()
    bed.finish(read, *LOSS)
    assert resolved == []


@pytest.mark.parametrize("gone", [False, True], ids=["a job that was not read", "a deleted job"])
def test_nothing_is_known_about_the_log_of_an_unknown_job(gone: bool) -> None:
    bed = Bed()
    uid = bed.runs(training()).job.uid
    if gone:
        bed.finish(bed.due()[0], *LOSS, SAVED)
        bed.progress.await_checkpoint(uid, awaited=True)
        bed.cluster.forget_job(uid)
        bed.due(30.0)
    progress = bed.progress
    assert progress.followed(uid).checkpoints == Checkpoints()
    assert (
        progress.followed(uid).course.restarts,
        progress.followed(uid).pause,
        progress.last_read(uid),
    ) == (0, 0.0, None)
    assert (progress.printer(uid) is None) is gone


def test_the_pod_that_prints_progress() -> None:
    bed = Bed()
    elastic = job(uid="e").worker(2, cpu="1").elastic(minReplicas=1, rdzvBackend="c10d").resumed()
    bed.runs(elastic, pods=2)
    found = []
    for lines in (["nothing"], LOSS):
        printer = bed.progress.printer("e")
        found.append(printer and printer.name)
        bed.finish(bed.due()[0], *lines)
        bed.at += 30
    printer = bed.progress.printer("e")
    assert [*found, printer and printer.name] == ["train-worker-0"] * 2 + ["train-worker-1"]


def test_a_log_that_shows_checkpoints_alone_is_read_as_often_as_others() -> None:
    bed = Bed()
    bed.runs(training(elastic="1-4"))
    (read,) = bed.due()
    while bed.at < 2000.0:
        bed.finish(read, "kfext.checkpoint 0")
        pause, read = bed.next()
    assert pause == 10


@pytest.mark.parametrize("lines", [LOSS, ["nothing"]], ids=["recognised", "nothing recognised"])
def test_while_a_checkpoint_is_awaited_the_log_is_read_at_once_and_every_2_s(
    lines: list[str],
) -> None:
    bed = Bed()
    uid = bed.runs(training(elastic="1-4")).job.uid
    (read,) = bed.due()
    while bed.at < 1800.0:
        bed.finish(read, *lines)
        read = bed.next()[1]
    bed.finish(read, *lines)
    assert bed.due() == []
    waited = []
    for _ in range(3):
        bed.progress.await_checkpoint(uid, awaited=True)
        pause, read = bed.next()
        waited.append(pause)
        bed.finish(read, *lines)
    assert waited == [1, 2, 2]  # the first read is due at once; `next` waits at least 1 s
    bed.progress.await_checkpoint(uid, awaited=False)
    bed.finish(bed.next()[1], *lines)
    assert bed.next()[0] == (10 if lines == LOSS else 300)


@pytest.mark.parametrize(("why", "want"), [(AWAY, 10), (FORBIDDEN, 300)], ids=["away", "forbidden"])
def test_an_unreadable_log_while_a_checkpoint_is_awaited(why: Verdict, want: float) -> None:
    bed = Bed()
    uid = bed.runs(training(elastic="1-4")).job.uid
    (read,) = bed.due()
    bed.progress.await_checkpoint(uid, awaited=True)
    for _ in range(4):
        bed.fail(read, why)
        (read,) = bed.due(bed.at + 1000)
    bed.fail(read, why)
    assert bed.next()[0] == want


def test_a_log_that_is_being_read_is_not_begun_twice() -> None:
    bed = Bed()
    uid = bed.runs(training(elastic="1-4")).job.uid
    (read,) = bed.due()
    bed.progress.await_checkpoint(uid, awaited=True)
    assert bed.due(1.0) == []
    bed.finish(read, *LOSS)
    assert bed.next()[0] == 2


def test_an_unknown_job_is_not_awaited() -> None:
    bed = Bed()
    builder = training(elastic="1-4")
    bed.progress.await_checkpoint(builder.build().uid, awaited=True)
    bed.runs(builder)
    bed.finish(bed.due()[0], *LOSS)
    bed.finish(bed.next()[1], *LOSS)
    assert bed.next()[0] == 10


def posted(pod: str, *, at: float = 1.0) -> Posted:
    return Posted(pod, (Post(at, 40, 100, (("loss", 0.5),)),))


POSTS: dict[str, tuple[dict[str, str], str, bool]] = {
    "rank 0 of a job that posts": ({"metrics": "push"}, "uid-team-train-0", True),
    "a job without the setting `push`": ({}, "uid-team-train-0", False),
    "a job with the setting `off`": ({"metrics": "off"}, "uid-team-train-0", False),
    "a pod of no job": ({"metrics": "push"}, "uid-of-another", False),
    "another rank": ({"metrics": "push"}, "uid-team-train-1", False),
}


@pytest.mark.parametrize(("settings", "pod", "counts"), POSTS.values(), ids=POSTS)
def test_which_posts_count(settings: dict[str, str], pod: str, counts: bool) -> None:
    bed = Bed()
    tracked = bed.runs(training(**settings), pods=2)
    result = bed.progress.post(tracked.job.uid, posted(pod), bed.now)
    assert result is (tracked if counts else None)
    reported = bed.progress.reported(tracked.job.uid)
    assert (reported is not None and reported.progress.step == 40) is counts


def status(step: int, *, at: float = 1.0) -> dict[str, Any]:
    metrics = {"loss": "0.5", "current_step": f"{step}", "total_steps": "100"}
    reported = [{"name": name, "value": value} for name, value in metrics.items()]
    return {"lastUpdatedTime": written_time(at), "progressPercentage": step, "metrics": reported}


@pytest.mark.parametrize(
    ("metrics", "counts"),
    [("auto", True), ("push", True), ("off", False), (r"stdout:x=(?P<value>\S+)", False)],
)
def test_the_status_of_trainer_counts_by_the_metrics_setting(metrics: str, *, counts: bool) -> None:
    bed = Bed()
    tracked = bed.runs(training(metrics=metrics), pods=2)
    result = bed.progress.post_status(tracked.job.uid, status(40), bed.now)
    assert result is (tracked if counts else None)
    reported = bed.progress.reported(tracked.job.uid)
    assert (reported is not None and reported.progress.step == 40) is counts
    assert bed.progress.post_status(tracked.job.uid, status(40), bed.now) is None


def test_a_standby_keeps_nothing_of_deleted_jobs() -> None:
    bed = Bed()
    tracked = bed.runs(training(metrics="push"))
    bed.progress.stand_by(1.0)
    bed.progress.post_status(tracked.job.uid, status(40), bed.now)
    assert bed.progress.reported(tracked.job.uid) is not None
    bed.cluster.forget_job(tracked.job.uid)
    bed.progress.stand_by(2.0)
    assert bed.progress.reported(tracked.job.uid) is None
    assert bed.progress.post_status(tracked.job.uid, status(41), bed.now) is None


def test_the_posts_of_an_unknown_job_are_ignored() -> None:
    bed = Bed()
    assert bed.progress.post("gone", posted("a"), bed.now) is None


def test_posts_that_arrive_after_the_end_of_a_job_change_nothing() -> None:
    bed = Bed()
    builder = training(metrics="push")
    tracked = bed.runs(builder)
    bed.cluster.observe_job(builder.condition("Succeeded").version(2).raw)
    assert bed.progress.post(tracked.job.uid, posted("uid-team-train-0"), bed.now) is None


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        pytest.param({}, 300, id="usually seldom"),
        pytest.param({"resize": "cpu"}, 300, id="also with resizing, which needs no checkpoint"),
        pytest.param({"elastic": "1-2"}, 10, id="often if kfext waits for checkpoints"),
        pytest.param({"migrate": "checkpointed"}, 10, id="and before a move"),
    ],
)
def test_the_interval_of_reads_for_a_job_that_posts(settings: dict[str, str], want: float) -> None:
    bed = Bed()
    tracked = bed.runs(training(metrics="push", **settings))
    (read,) = bed.due(0.0)
    bed.progress.post(tracked.job.uid, posted(read.pod.uid), bed.now)
    bed.finish(read, *LOSS)
    assert bed.next()[0] == want
