"""kfext as local processes: a controller behind its proxy, and replicas of the webhook.

A TCP balancer in front of the webhook's replicas stands in for their Service.
"""

import asyncio
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import urllib3

from e2e.harness.install import plain_kubeconfig
from e2e.harness.proxy import Proxy
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed

COMMAND = Path(sys.executable).with_name("kfext")
_END_SECONDS = 30
_CONNECT_SECONDS = 1.0


class ControllerProcess:
    """A controller that may be killed, frozen and restarted; its requests pass through `proxy`."""

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
        """Start the process, without waiting until it leads."""
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
        """The id of the process, or None before its start and after its end."""
        alive = self._process is not None and self._process.poll() is None
        return self._process.pid if alive and self._process else None

    def kill(self) -> None:
        """Send SIGKILL, so that it neither finishes its work nor releases its Lease."""
        if self._process is not None:
            self._process.kill()

    def freeze(self) -> None:
        """Send SIGSTOP; the process cannot notice its pause."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Send SIGTERM, and wait for the end."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
        self.wait_dead()

    def wait_dead(self) -> int | None:
        """Wait for the end; return the exit code, or None for a process that never ran."""
        if self._process is None:
            return None
        code = self._process.wait(_END_SECONDS)
        self._process = None
        return code

    def is_holder(self, identity: str) -> bool:
        """Return whether the holder of a Lease is this process."""
        return self.pid is not None and identity.endswith(f"_{self.pid}")

    def ready(self) -> bool:
        """Return whether it has read the cluster, and so is ready to lead."""
        url = f"http://127.0.0.1:{self._probe_port}/readyz"
        try:
            return urllib3.request("GET", url, retries=False, timeout=2).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def metric(self, name: str) -> float:
        url = f"http://127.0.0.1:{self._probe_port}/metrics"
        lines = urllib3.request("GET", url).data.decode().splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))


class WebhookProcess:
    """A replica of the webhook, which answers reviews on `port`.

    `in_service`: whether it is an endpoint of the Service, that is from its first readiness until
    its readiness probe fails.
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
        until(self.ready, what=f"{self.name} is ready", account=self._log_tail)
        self.in_service = True

    def ready(self) -> bool:
        """Return whether its readiness probe succeeds."""
        assert self.alive, f"the webhook ended\n{self._log_tail()}"
        return self.probe("/readyz").startswith("ok")

    def probe(self, path: str) -> str:
        """Return the answer to a probe; empty if there is no answer."""
        url = f"http://127.0.0.1:{self._probe_port}{path}"
        try:
            return urllib3.request("GET", url, retries=False, timeout=2).data.decode()
        except urllib3.exceptions.HTTPError:
            return ""

    def reviews(self, kind: str) -> float:
        """Return the number of its reviews of a kind since its start."""
        counter = f'kfext_webhook_review_duration_seconds_count{{kind="{kind}"'
        lines = self.probe("/metrics").splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(counter))

    def kill(self) -> None:
        """Send SIGKILL, and remove it from the endpoints."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None
        self.in_service = False

    def stop(self) -> int:
        """Send SIGTERM, and wait for the end; return the exit code."""
        assert self._process is not None
        self._process.terminate()
        until(lambda: not self.probe("/readyz").startswith("ok"), what=f"{self.name} is not ready")
        self.in_service = False
        code = self._process.wait(_END_SECONDS)
        self._process = None
        return code

    def _log_tail(self) -> str:
        return self._testbed.log(self.name).read_text(errors="replace")[-4000:]


@dataclass
class Balancer:
    """Forwards each new connection to the next port of `endpoints()`, which may change at any time.

    Like a Service it does not read the traffic; only `cut` ends connections. It skips ports where
    nothing listens.
    """

    port: int
    endpoints: Callable[[], Sequence[int]]
    connections: dict[int, int] = field(default_factory=dict)
    """Port -> the number of connections that were forwarded to it."""
    _turn: int = 0
    _open: set[asyncio.StreamWriter] = field(default_factory=set)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    def start(self) -> None:
        threading.Thread(target=self._loop.run_forever, daemon=True, name="balancer").start()
        listening = asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)

    def cut(self) -> None:
        """End all connections, as an API server does after a long time without reviews."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(10)

    async def _cut(self) -> None:
        for writer in self._open:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = await self._connect()
        if upstream is not None:
            self._open.add(writer)
            copies = (_copy(reader, upstream[1]), _copy(upstream[0], writer))
            await asyncio.gather(*copies)
            self._open.remove(writer)
        writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        ports = list(self.endpoints())
        self._turn += 1
        for step in range(len(ports)):
            port = ports[(self._turn + step) % len(ports)]
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CONNECT_SECONDS):
                    connection = await asyncio.open_connection("127.0.0.1", port)
                self.connections[port] = self.connections.get(port, 0) + 1
                return connection
        return None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction until either side ends."""
    with suppress(OSError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()
