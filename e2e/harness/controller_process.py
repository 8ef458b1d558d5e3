"""One controller of kfext as a local process, with a proxy of its own before the API server."""

import signal
import ssl
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import urllib3

from e2e.harness.installed import plain_kubeconfig
from e2e.harness.proxy import Proxy
from e2e.testbed.cluster import Testbed

COMMAND = Path(sys.executable).with_name("kfext")
_END_SECONDS = 30


class ControllerProcess:
    """A controller that may be killed, frozen and started again; its requests pass `proxy`.

    It is known to others by `name`, which is also that of its log.
    """

    def __init__(self, testbed: Testbed, tls: ssl.SSLContext, *, name: str) -> None:
        self.name = name
        self._testbed = testbed
        self._process: subprocess.Popen[bytes] | None = None
        self._probe_port = testbed.new_port()
        self.proxy = Proxy(testbed.server, tls, testbed.new_port(), kill=self.kill)
        self._config = plain_kubeconfig(
            testbed.folder / "kubeconfigs" / f"{name}.yaml", self.proxy.server
        )

    def launch(self, *, environment: Mapping[str, str]) -> None:
        """Start the process; whether it comes to lead is another matter."""
        self._process = self._testbed.start_process(
            [
                *(str(COMMAND), "controller", "--log-level=debug"),
                f"--kubeconfig={self._config}",
                f"--probe-port={self._probe_port}",
            ],
            name=self.name,
            environment=environment,
        )

    @property
    def pid(self) -> int | None:
        """The id of the process, None if it does not run."""
        alive = self._process is not None and self._process.poll() is None
        return self._process.pid if alive and self._process else None

    def kill(self) -> None:
        """SIGKILL: it gets no chance to say or finish anything."""
        if self._process is not None:
            self._process.kill()

    def freeze(self) -> None:
        """SIGSTOP: it stands still, and knows nothing of it."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """SIGTERM, and wait for the end."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
        self.wait_dead()

    def wait_dead(self) -> int | None:
        """Wait for the end; return the exit code, None if it never ran."""
        if self._process is None:
            return None
        code = self._process.wait(_END_SECONDS)
        self._process = None
        return code

    def is_holder(self, identity: str) -> bool:
        """Say whether the holder of a Lease is this process."""
        return self.pid is not None and identity.endswith(f"_{self.pid}")

    def ready(self) -> bool:
        """Say whether it knows the cluster, so that it could lead."""
        url = f"http://127.0.0.1:{self._probe_port}/readyz"
        try:
            return urllib3.request("GET", url, retries=False, timeout=2).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def metric(self, name: str) -> float:
        """Return a gauge."""
        url = f"http://127.0.0.1:{self._probe_port}/metrics"
        lines = urllib3.request("GET", url).data.decode().splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))
