"""The logs that the planner requests: when they are read, and the effect of an error."""

import asyncio
from collections.abc import Callable, Iterable, Set
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import pytest

from kfext import names
from kfext.controller import progress_reader as module
from kfext.controller.progress_reader import MAX_AT_ONCE, ProgressReader
from kfext.controller.training_plan import TrainingPlanStatus, WrittenTrainingPlan
from kfext.core.progress.posted import Post, Posted
from kfext.errors import ApiError, BadRequest, Forbidden, NotFound, Unavailable
from kfext.kube.client import Client
from kfext.kube.usage import Usage, Used
from kfext.model.cpu_use import CpuUse
from kfext.model.moment import Moment
from kfext.model.namespace import Namespace
from kfext.model.pod import Pod
from kfext.model.verdict import Verdict
from kfext.names import PLACED
from kfext.state.planner.planner import Planner
from kfext.state.reports.progress import JobsProgress, LogRead
from tests.builders import job, pod

PATH = "/api/v1/namespaces/team/pods/train-worker-0/log"
PAUSE, HOUR = module._PAUSE_SECONDS, 3600.0
LINES = b"2026-11-22T10:00:00.1Z step 1/10 loss 0.9\n2026-11-22T10:00:01.1Z step 2/10 loss 0.8\n"


class FakeKubelet:
    """Answers reads of logs. `answers`: the log or the error for each path, by default LINES.

    `answered`: while it is not set, all reads wait.
    """

    def __init__(self) -> None:
        self.answers: dict[str, bytes | ApiError] = {}
        self.answered = asyncio.Event()
        self.answered.set()
        self.paths: list[str] = []
        self.at_once = self.most_at_once = 0

    async def read(self, path: str, **query: str) -> bytes:
        assert query["container"] == "pytorch"
        self.paths.append(path)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.answered.wait()
        finally:
            self.at_once -= 1
        answer = self.answers.get(path, LINES)
        if isinstance(answer, ApiError):
            raise answer
        return answer


class FakeUsage:
    """Reports the CPU use of pods. `cores`: the use of each pod by its uid; others are forbidden.

    `nodes`: the nodes that were asked for so far.
    """

    def __init__(self) -> None:
        self.cores: dict[str, float] = {}
        self.nodes: set[str] = set()

    async def read(self, pods: Iterable[Pod], *, nodes: Set[str]) -> Used:
        self.nodes |= nodes
        used: dict[str, CpuUse | Verdict] = {
            pod.uid: CpuUse(self.cores[pod.uid], at=1.0, window=30.0)
            if pod.uid in self.cores
            else Verdict(names.REASON_CPU_USE_FORBIDDEN, "may not")
            for pod in pods
        }
        return Used(used, {name: CpuUse(3.5, at=1.0, window=30.0) for name in nodes})


class Bed:
    """A ProgressReader for running jobs. `at`: the time of its clock. `shown`: the jobs shown."""

    def __init__(self) -> None:
        self.at = 100.0
        self.kubelet, self.usage = FakeKubelet(), FakeUsage()
        self.planner = Planner()
        self.planner.settings.observe_namespace(
            None, Namespace("team", labels={names.MANAGED: "true"})
        )
        self.shown: list[str] = []
        self.reader = ProgressReader(
            cast(Client, self.kubelet),
            usage=cast(Usage, self.usage),
            planner=self.planner,
            show=lambda tracked: self.shown.append(tracked.job.name),
            now=lambda: Moment(wall=2e9, monotonic=self.at),
        )

    def runs(self, name: str, *, uid: str = "", resize: str = "off", metrics: str = "auto") -> None:
        builder = job(name=name, uid=f"uid-{name}").worker(1, cpu="1").resumed()
        builder.annotated(names.RESIZE, resize).annotated(names.METRICS, metrics)
        self.planner.cluster.observe_job(builder.raw)
        worker = pod(builder.build(), "worker", 0, bound=f"node-{name}", uid=uid or f"pod-{name}")
        self.planner.cluster.observe_pod(None, replace(worker, phase="Running"))
        self.planner.cluster.jobs[f"uid-{name}"].phase = PLACED

    def reason(self, name: str) -> str:
        reported = self.planner.progress.reported(f"uid-{name}")
        return reported.known.reason if reported and reported.known else ""

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let the reader read until `holds` returns True."""
        reading = asyncio.create_task(self.reader.run())
        try:
            async with asyncio.timeout(30):
                while not holds():  # noqa: ASYNC110 - states of many kinds, none with an event
                    await asyncio.sleep(0.001)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.001)
    return Bed()


async def test_after_an_error_of_kfext_about_one_log_the_other_logs_are_read(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = bed.planner.progress.read_lines

    def read_lines(read: LogRead, *rest: Any) -> None:
        if read.tracked.job.name == "odd":
            raise ValueError("a bug")
        original(read, *rest)

    monkeypatch.setattr(bed.planner.progress, "read_lines", read_lines)
    bed.runs("odd")
    bed.runs("train")
    await bed.until(lambda: bed.shown == ["train"])


async def test_the_progress_in_the_log_of_a_job_is_shown(bed: Bed) -> None:
    bed.runs("train")
    await bed.until(lambda: bed.shown == ["train"])
    assert bed.kubelet.paths == [PATH]
    reported = bed.planner.progress.reported("uid-train")
    assert reported is not None
    assert (reported.progress.step, reported.progress.value) == (2, 0.8)


@pytest.mark.parametrize(
    ("error", "reads", "want"),
    [
        pytest.param(
            Forbidden(status=403, reason="Forbidden", message=""), 1, names.REASON_LOG_FORBIDDEN,
            id="no permission",
        ),
        pytest.param(
            Unavailable(status=500, reason="InternalError", message="secret"), 3,
            names.REASON_LOG_UNAVAILABLE, id="the kubelet fails",
        ),
        pytest.param(
            BadRequest(status=400, reason="BadRequest", message="waiting to start"), 5, "",
            id="the container has not started",
        ),
        pytest.param(
            NotFound(status=404, reason="NotFound", message=""), 5, "", id="the pod is gone"
        ),
    ],
)  # fmt: skip
async def test_the_reason_shown_after_some_failed_reads_of_a_log(
    bed: Bed, error: ApiError, reads: int, want: str
) -> None:
    bed.kubelet.answers[PATH] = error
    bed.runs("train")
    for number in range(reads):
        assert bed.reason("train") == ""
        await bed.until(lambda wanted=number + 1: len(bed.shown) == wanted)  # type: ignore[misc]
        bed.at += 1000
    assert bed.reason("train") == want
    reported = bed.planner.progress.reported("uid-train")
    assert reported is not None
    assert "secret" not in str(reported.known)


async def test_a_read_without_an_answer_is_cancelled_and_counts_as_failed(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_READ_SECONDS", 0.001)
    bed.kubelet.answered.clear()
    bed.runs("train")
    for number in range(3):
        await bed.until(lambda wanted=number + 1: len(bed.shown) == wanted)  # type: ignore[misc]
        bed.at += 1000
    assert bed.reason("train") == names.REASON_LOG_UNAVAILABLE
    assert bed.kubelet.at_once == 0


async def test_only_a_bounded_number_of_logs_is_read_at_once(bed: Bed) -> None:
    for number in range(40):
        bed.runs(f"job-{number}")
    bed.kubelet.answered.clear()
    await bed.until(lambda: bed.kubelet.at_once == MAX_AT_ONCE)
    bed.kubelet.answered.set()
    bed.shown.clear()
    bed.at += 1000
    await bed.until(lambda: len(set(bed.shown)) == 40 - MAX_AT_ONCE)
    assert bed.kubelet.most_at_once == MAX_AT_ONCE


async def test_at_most_20_reads_begin_per_second(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE_SECONDS", HOUR)
    for number in range(40):
        bed.runs(f"job-{number}")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await bed.until(lambda: False)
    assert len(bed.kubelet.paths) == 20 * PAUSE


async def test_the_log_of_a_pod_that_was_replaced_is_read_from_its_start(bed: Bed) -> None:
    bed.runs("train")
    await bed.until(lambda: len(bed.shown) == 1)
    (old,) = bed.planner.cluster.pods("uid-train")
    bed.planner.cluster.observe_pod(old, None)
    bed.planner.cluster.observe_pod(None, replace(old, uid="another", created=9.0))
    bed.kubelet.answers[PATH] = LINES.replace(b"2026-11-22T10", b"2026-11-22T09")
    bed.at += 1000
    await bed.until(lambda: len(bed.shown) == 2)
    assert bed.planner.progress._followed["uid-train"].fruitless == 0


async def test_the_logs_of_a_deleted_job_are_forgotten(bed: Bed) -> None:
    bed.runs("train")
    await bed.until(lambda: len(bed.shown) == 1)
    bed.planner.cluster.forget_job("uid-train")
    await bed.until(lambda: not bed.reader._logs)


async def test_the_cpu_use_of_jobs_is_measured(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobsProgress, "measure_seconds", 0.001)
    bed.usage.cores["pod-train"] = 1.5
    bed.runs("train")
    bed.runs("other")

    def measured() -> list[float | str | None]:
        results = [bed.planner.progress.reported(f"uid-{name}") for name in ("train", "other")]
        shown = [reported for reported in results if reported is not None]
        return [
            reported.unmeasured.reason if reported.unmeasured else reported.cpu
            for reported in shown
        ]

    await bed.until(lambda: measured() == [1.5, names.REASON_CPU_USE_FORBIDDEN])


async def test_the_cpu_use_of_a_node_is_measured_if_a_job_on_it_may_be_resized(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobsProgress, "measure_seconds", 0.001)
    bed.runs("train", resize="cpu")
    bed.runs("other")
    await bed.until(lambda: bed.planner.progress.uses.of_node("node-train") == 3500)
    assert bed.usage.nodes == {"node-train"}


def plan(posted: Posted | None) -> WrittenTrainingPlan:
    return WrittenTrainingPlan("uid-train", TrainingPlanStatus(), posted=posted)


def posted(step: int, *, pod: str = "pod-train") -> Posted:
    return Posted(pod, (Post(float(step), step, 100, (("loss", 0.5),)),))


POSTS: dict[str, tuple[list[WrittenTrainingPlan | None], int]] = {
    "the first posts": ([plan(posted(1))], 1),
    "no posts": ([plan(None)], 0),
    "further posts": ([plan(posted(1)), plan(posted(2))], 2),
    "a change of another field": ([plan(posted(1)), plan(posted(1))], 1),
    "the plan is deleted": ([plan(posted(1)), None], 1),
    "the posts of a pod that is not the job's": ([plan(posted(1, pod="other"))], 0),
}


@pytest.mark.parametrize(("versions", "shown"), POSTS.values(), ids=POSTS)
def test_each_new_version_of_the_posts_is_shown_once(
    bed: Bed, versions: list[WrittenTrainingPlan | None], shown: int
) -> None:
    bed.runs("train", metrics="push")
    for old, new in pairwise([None, *versions]):
        bed.reader.observe(old, new)
    assert bed.shown == ["train"] * shown


async def test_posts_that_arrive_before_their_job_are_shown(bed: Bed) -> None:
    bed.reader.observe(None, plan(posted(1)))
    bed.runs("train", metrics="push")

    def has_step() -> bool:
        reported = bed.planner.progress.reported("uid-train")
        return reported is not None and reported.progress.step == 1

    await bed.until(has_step)
    assert "train" in bed.shown


def test_an_error_about_a_post_is_not_raised(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bed.planner.progress, "post", lambda *args: 1 / 0)
    bed.reader.observe(None, plan(posted(1)))
    assert bed.shown == []
