"""Read the progress of running jobs from their logs, at a bounded rate, and from their posts.

No text of a log is stored, logged or exported, except the names of metrics and numbers.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from kfext import names
from kfext.controller.metrics import guard
from kfext.controller.training_plan import WrittenTrainingPlan
from kfext.errors import ApiError, BadRequest, Forbidden, NotFound
from kfext.kube.client import Client
from kfext.kube.pod_log import PodLog
from kfext.kube.usage import Usage
from kfext.model.kinds.registered import KINDS
from kfext.model.moment import Moment
from kfext.model.tolerant import mapping, text
from kfext.model.verdict import Verdict
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.planner.planner import Planner
from kfext.state.reports.progress import MAX_A_SECOND, LogRead

_log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 0.5
_MAX_BEGUN = int(MAX_A_SECOND * _PAUSE_SECONDS)
"""The most reads that begin after each pause; the logs of many jobs are read less often."""
MAX_AT_ONCE = 16
_MAX_LOGS = 4
"""The most logs of a job with a known position; every second read is of the log with progress."""
_READ_SECONDS = 10.0
"""The longest time for one read: a kubelet may answer slowly or never."""


class ProgressReader:
    """Reads the logs that the planner requests; `show` is called with each job that was read.

    `client`: a client for logs alone, so that placement does not wait for logs.
    `usage`: measures the CPU use of pods, which a job's growth efficiency needs.
    """

    def __init__(
        self,
        client: Client,
        *,
        usage: Usage,
        planner: Planner,
        show: Callable[[TrackedJob], None],
        now: Callable[[], Moment],
    ) -> None:
        self._client = client
        self._usage = usage
        self._planner = planner
        self._show = show
        self._now = now
        self._logs: dict[str, dict[str, PodLog]] = {}
        self._running = 0

    async def run(self) -> None:
        """Read until cancelled."""
        progress = self._planner.progress
        async with asyncio.TaskGroup() as reads:
            reads.create_task(self._measure())
            while True:
                with guard("choose logs to read"):
                    most = min(_MAX_BEGUN, MAX_AT_ONCE - self._running)
                    for read in progress.due(self._now().monotonic, most=most):
                        self._running += 1
                        reads.create_task(self._read(read))
                    for tracked in progress.record_early_posts(self._now()):
                        self._show(tracked)
                for uid in self._logs.keys() - self._planner.cluster.jobs.keys():
                    del self._logs[uid]
                await asyncio.sleep(_PAUSE_SECONDS)

    def observe(self, old: WrittenTrainingPlan | None, new: WrittenTrainingPlan | None) -> None:
        """Pass the posts of a job's program to the planner if a new version has others."""
        if new is None or new.posted is None or (old and old.posted == new.posted):
            return
        with guard("read the posts of a job", uid=new.job_uid):
            if tracked := self._planner.progress.post(new.job_uid, new.posted, self._now()):
                self._show(tracked)

    def observe_job(self, uid: str, raw: Mapping[str, Any]) -> None:
        """Pass the progress in the status of a job to the planner."""
        kind = KINDS.get(text(raw.get("kind")))
        status = kind.trainer_status(mapping(raw.get("status"))) if kind else None
        if not status:
            return
        with guard("read the status of a job", uid=uid):
            if tracked := self._planner.progress.post_status(uid, status, self._now()):
                self._show(tracked)

    async def _measure(self) -> None:
        progress = self._planner.progress
        while True:
            with guard("measure the use of CPU"):
                nodes = progress.shared_nodes()
                used = await self._usage.read(progress.running(), nodes=nodes)
                progress.record_measurements(used.pods, used.nodes)
            await asyncio.sleep(progress.measure_seconds)

    async def _read(self, read: LogRead) -> None:
        try:
            await self._read_lines(read)
            if read.uid in self._planner.cluster.jobs:
                self._show(read.tracked)
        except Exception:
            # The log of one job must not end the reading of all others.
            _log.exception("log not read", pod=read.pod.name, namespace=read.pod.namespace)
            why = Verdict(names.REASON_LOG_UNAVAILABLE, "an error of kfext, which is in its log")
            self._planner.progress.fail(read, why, self._now())
        finally:
            self._running -= 1

    async def _read_lines(self, read: LogRead) -> None:
        """Pass the new lines of a log to the planner, or the reason why kfext cannot read them."""
        progress, pod = self._planner.progress, read.pod
        try:
            async with asyncio.timeout(_READ_SECONDS):
                lines = await self._log_of(read).read()
        except (BadRequest, NotFound):
            progress.fail(read, None, self._now())  # its container has not started, or it is gone
        except Forbidden:
            message = f"kfext may not read the logs of namespace {pod.namespace}"
            progress.fail(read, Verdict(names.REASON_LOG_FORBIDDEN, message), self._now())
        except (ApiError, TimeoutError) as error:
            why = error.reason if isinstance(error, ApiError) else "no answer in time"
            message = f"the log of pod {pod.name} could not be read: {why}"
            progress.fail(read, Verdict(names.REASON_LOG_UNAVAILABLE, message), self._now())
            _log.info("log not read", pod=pod.name, namespace=pod.namespace, why=why)
        else:
            progress.read_lines(read, lines, self._now())

    def _log_of(self, read: LogRead) -> PodLog:
        """Return the log of a pod, which remembers its position."""
        pod, logs = read.pod, self._logs.setdefault(read.uid, {})
        log = logs.pop(pod.uid, None)
        if log is None:
            log = PodLog(self._client, pod.namespace, pod.name, read.container)
        logs[pod.uid] = log
        if len(logs) > _MAX_LOGS:
            del logs[next(iter(logs))]
        return log
