"""Events on jobs, with reasons and without repetitions."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from dataclasses import dataclass, field

import structlog

from kfext.errors import ApiError, Conflict
from kfext.kube import paths
from kfext.kube.client import Client, Object
from kfext.model.job import TrainingJob
from kfext.model.timestamps import written_micro_time
from kfext.model.verdict import Verdict

_log = structlog.get_logger(__name__)

_MAX_QUEUED = 1000  # events
_MAX_JOBS = 10_000  # remembered jobs
_MAX_MESSAGES = 64  # remembered messages of a job
_LONGEST_NOTE = 1024  # the API refuses more
_LONGEST_NAME = 200  # the limit is 253, and the hash needs the rest


@dataclass(slots=True)
class _Recorded:
    """The reason of a job, and the reasons and messages of its last events."""

    reason: str = ""
    messages: dict[tuple[str, str], None] = field(default_factory=dict)


class EventRecorder:
    """Queues and writes events; `record` never waits and never fails.

    An event is written when the reason of a job changes, but never twice with the same reason and
    message. The name of an event has a hash of its content, so this holds across restarts while
    the API server stores the event. `dropped` counts events that did not reach the cluster.
    """

    def __init__(self, client: Client, *, reporter: str, instance: str) -> None:
        self.dropped = 0
        self._client = client
        self._reporter = reporter
        self._instance = instance
        self._queue: asyncio.Queue[tuple[TrainingJob, Object]] = asyncio.Queue(_MAX_QUEUED)
        self._recorded: OrderedDict[str, _Recorded] = OrderedDict()

    def record(
        self, job: TrainingJob, verdict: Verdict, *, action: str, warning: bool = False
    ) -> None:
        """Queue an event unless it repeats an earlier one; drop and count it if the queue is full.

        `action`: the action of kfext, in CamelCase.
        """
        reason, message = verdict.reason, verdict.message
        recorded = self._recorded.setdefault(job.uid, _Recorded())
        self._recorded.move_to_end(job.uid)
        if len(self._recorded) > _MAX_JOBS:
            self._recorded.popitem(last=False)
        if reason == recorded.reason or (reason, message) in recorded.messages:
            recorded.reason = reason
            return
        event = self._event(job, verdict, action=action, warning=warning)
        try:
            self._queue.put_nowait((job, event))
        except asyncio.QueueFull:
            self.dropped += 1
            return
        recorded.reason = reason
        recorded.messages[reason, message] = None
        if len(recorded.messages) > _MAX_MESSAGES:
            del recorded.messages[next(iter(recorded.messages))]

    async def run(self) -> None:
        """Write queued events until cancelled."""
        while True:
            job, event = await self._queue.get()
            try:
                await self._client.create(paths.events(job.namespace), event)
            except Conflict:
                pass  # an earlier process wrote it
            except ApiError as error:
                self.dropped += 1
                self._recorded.pop(job.uid, None)  # so that the next `record` writes it
                _log.warning(
                    "event not written",
                    namespace=job.namespace,
                    name=event["metadata"]["name"],
                    error=str(error),
                )
            except Exception:
                # Users write parts of the text, and one event must not end all others.
                self.dropped += 1
                _log.exception("event not written", namespace=job.namespace)
            finally:
                self._queue.task_done()

    async def drain(self) -> None:
        """Wait until all events queued so far are written or dropped, while `run` runs."""
        await self._queue.join()

    def _event(self, job: TrainingJob, verdict: Verdict, *, action: str, warning: bool) -> Object:
        content = "\0".join((job.uid, verdict.reason, verdict.message)).encode(errors="replace")
        digest = hashlib.sha256(content).hexdigest()[:16]
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "namespace": job.namespace,
                "name": f"{job.name[:_LONGEST_NAME].rstrip('.-')}.{digest}",
            },
            "eventTime": written_micro_time(time.time()),
            "reportingController": self._reporter,
            "reportingInstance": self._instance,
            "action": action,
            "reason": verdict.reason,
            "type": "Warning" if warning else "Normal",
            "note": _truncated(verdict.message),
            "regarding": {
                "apiVersion": job.kind.api_version,
                "kind": job.kind.name,
                "namespace": job.namespace,
                "name": job.name,
                "uid": job.uid,
            },
        }


def _truncated(message: str) -> str:
    """Return the message, cut to the number of bytes that the API accepts."""
    encoded = message.encode(errors="replace")  # a user's text may have half a surrogate pair
    if len(encoded) <= _LONGEST_NOTE:
        return encoded.decode()
    return encoded[: _LONGEST_NOTE - 3].decode(errors="ignore") + "…"
