"""One replica of the webhook as a local process."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import urllib3

from e2e.harness.controller_process import COMMAND
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed

_END_SECONDS = 30


class WebhookProcess:
    """A replica that answers reviews at `port`.

    `in_service` says what a Service knows: a replica becomes an endpoint when it is ready, and
    ceases to be one when its readiness probe fails.
    """

    def __init__(self, testbed: Testbed, *, name: str, kubeconfig: Path) -> None:
        self.name = name
        self._testbed = testbed
        self._kubeconfig = kubeconfig
        self._process: subprocess.Popen[bytes] | None = None
        self.port, self._probe_port = testbed.new_port(), testbed.new_port()
        self.in_service = False

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *, drain_seconds: float = 0, environment: Mapping[str, str]) -> None:
        """Start the process and wait until it is ready to answer."""
        self._process = self._testbed.start_process(
            [
                *(str(COMMAND), "webhook", "--tls-ip=127.0.0.1"),
                f"--drain-seconds={drain_seconds:g}",
                f"--kubeconfig={self._kubeconfig}",
                f"--port={self.port}",
                f"--probe-port={self._probe_port}",
            ],
            name=self.name,
            environment=environment,
        )
        until(self.ready, what=f"{self.name} is ready", account=self._told)
        self.in_service = True

    def ready(self) -> bool:
        """Say whether it would get reviews as an endpoint of the Service."""
        assert self.alive, f"the webhook ended\n{self._told()}"
        return self.probe("/readyz").startswith("ok")

    def probe(self, path: str) -> str:
        """Return what it says to a probe; empty if it does not answer."""
        url = f"http://127.0.0.1:{self._probe_port}{path}"
        try:
            return urllib3.request("GET", url, retries=False, timeout=2).data.decode()
        except urllib3.exceptions.HTTPError:
            return ""

    def reviews(self, kind: str) -> float:
        """Return how many jobs, or pods, it has been asked about since it started."""
        counted = f'kfext_webhook_review_duration_seconds_count{{kind="{kind}"'
        lines = self.probe("/metrics").splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(counted))

    def kill(self) -> None:
        """SIGKILL; connections are still sent here until somebody notices."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None
        self.in_service = False

    def stop(self) -> int:
        """SIGTERM, and wait for the end; return the exit code."""
        assert self._process is not None
        self._process.terminate()
        until(lambda: not self.probe("/readyz").startswith("ok"), what=f"{self.name} is not ready")
        self.in_service = False
        code = self._process.wait(_END_SECONDS)
        self._process = None
        return code

    def _told(self) -> str:
        return self._testbed.log(self.name).read_text(errors="replace")[-4000:]
