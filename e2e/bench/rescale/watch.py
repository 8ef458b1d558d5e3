"""Looks at a run several times a second, and keeps what was seen."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e2e.bench.companion.pods import Pods
from e2e.bench.rescale.cases import TRAIN
from e2e.bench.rescale.samples import Sample, ended, sample
from e2e.harness.elastic_jobs import journal
from e2e.harness.jobs import PLURAL
from e2e.testbed.api import ApiError

Object = dict[str, Any]
_LOOK_SECONDS = 0.25
_GONE = 404


class SpoiledError(Exception):
    """A run that does not count: something failed, or never came about."""


class Watch:
    """The samples of a run of a job of some kind; `folder`: where it writes its journal."""

    def __init__(self, pods: Pods, kind: str, folder: Path) -> None:
        self.samples: list[Sample] = []
        self.lines: list[str] = []
        self._pods, self._folder = pods, folder
        self._plan = f"{kind.lower()}-{TRAIN}"
        self._plural = PLURAL[kind]
        self._began = time.monotonic()

    def now(self) -> float:
        """Return the seconds since the run began."""
        return time.monotonic() - self._began

    def look(self) -> Sample:
        """Take a sample, and wait until the next one is due."""
        began = self.now()
        body = self._find(f"/apis/kubeflow.org/v1/namespaces/{{}}/{self._plural}/{TRAIN}")
        view = self._find(f"/apis/kfext.dev/v1alpha1/namespaces/{{}}/trainingplans/{self._plan}")
        new = journal(self._folder)[len(self.lines) :]
        self.lines += new
        bodies = self._pods.bodies()
        found = sample(self.now(), job=body, view=view or {}, pods=bodies, lines=new)
        self.samples.append(found)
        if body is not None and ended(body) == "Failed":
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

    def has_ended(self, name: str, plural: str) -> bool:
        """Return whether a job has ended well; raise SpoiledError if it has failed."""
        body = self._find(f"/apis/kubeflow.org/v1/namespaces/{{}}/{plural}/{name}") or {}
        if (how := ended(body)) == "Failed":
            raise SpoiledError(f"{name} failed")
        return how == "Succeeded"

    def _find(self, path: str) -> Object | None:
        try:
            found: Object = self._pods.bed.api.get(path.format(self._pods.namespace))
        except ApiError as error:
            if error.status == _GONE:
                return None
            raise
        return found
