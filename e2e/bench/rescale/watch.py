"""Looks at a run several times a second, and keeps what was seen."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e2e.bench.companion.pods import Pods
from e2e.bench.interleaved import SpoiledError
from e2e.bench.rescale.cases import GANG, GANG_KIND, TRAIN
from e2e.bench.rescale.samples import Sample, sample
from e2e.harness.elastic_jobs import journal
from e2e.harness.jobs import jobs_path
from e2e.harness.look import ended
from e2e.testbed.api import ApiError

Object = dict[str, Any]
_LOOK_SECONDS = 0.25
_GONE = 404


class Watch:
    """The samples of a run of a job of some kind; `folder`: where it writes its journal."""

    def __init__(self, pods: Pods, kind: str, folder: Path) -> None:
        self.samples: list[Sample] = []
        self.lines: list[str] = []
        self._pods, self._folder = pods, folder
        plans = f"/apis/kfext.dev/v1alpha1/namespaces/{pods.namespace}/trainingplans"
        self._kind, self._plan = kind, f"{plans}/{kind.lower()}-{TRAIN}"
        self._began = time.monotonic()

    def now(self) -> float:
        """Return the seconds since the run began."""
        return time.monotonic() - self._began

    def look(self) -> Sample:
        """Take a sample, and wait until the next one is due."""
        began = self.now()
        body = self._find(jobs_path(self._pods.namespace, self._kind, TRAIN))
        view = self._find(self._plan)
        new = journal(self._folder)[len(self.lines) :]
        self.lines += new
        bodies = self._pods.bodies()
        found = sample(self.now(), job=body, view=view or {}, pods=bodies, lines=new)
        self.samples.append(found)
        if found.ended == "Failed":
            raise SpoiledError("the job failed")
        time.sleep(max(0.0, _LOOK_SECONDS - (self.now() - began)))
        return found

    def until(self, condition: Callable[[Sample], bool], *, what: str, seconds: float) -> None:
        """Look until a condition holds; raise SpoiledError if it does not in time."""
        deadline = self.now() + seconds
        while not condition(self.look()):
            if self.now() > deadline:
                last = self.samples[-1]
                raise SpoiledError(f"in {seconds:.0f} s it was not seen that {what}: {last}")

    def rest(self, seconds: float) -> None:
        """Look for some time."""
        until = self.now() + seconds
        while self.now() < until:
            self.look()

    def gang_has_ended(self) -> bool:
        """Return whether the gang has ended well; raise SpoiledError if it has failed."""
        body = self._find(jobs_path(self._pods.namespace, GANG_KIND, GANG)) or {}
        if (how := ended(body)) == "Failed":
            raise SpoiledError(f"{GANG} failed")
        return how == "Succeeded"

    def _find(self, path: str) -> Object | None:
        try:
            found: Object = self._pods.bed.api.get(path)
        except ApiError as error:
            if error.status == _GONE:
                return None
            raise
        return found
