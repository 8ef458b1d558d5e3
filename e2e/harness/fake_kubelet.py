"""A kubelet for the logs of fake nodes: each pod has printed what a test has it print.

kwok serves files that were named when it was started. Cases make pods as they go, so the API server
is sent here for their logs; for all else kwok stays the kubelet.
"""

import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from e2e.harness.kube import Kube
from e2e.testbed.cluster import Testbed

_ADDRESS = "127.0.0.1"
_MOST_LINES = 5000


class PodLog:
    """What a container has printed; each line has a time of its own."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)
        self._last = 0

    def write(self, text: str) -> None:
        """Print a line."""
        self._last = max(self._last + 1, time.time_ns())
        seconds, rest = divmod(self._last, 10**9)
        second = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        self._lines.append(f"{second}.{rest:09}Z {text}\n")

    def read(self, *, tail: int | None, most: int | None, timestamps: bool) -> bytes:
        """Return the last lines, and of these the first bytes, as a kubelet does."""
        lines = list(self._lines)
        chosen = lines if tail is None else lines[max(0, len(lines) - tail) :]
        if not timestamps:
            chosen = [line.split(" ", 1)[1] for line in chosen]
        return "".join(chosen).encode()[:most]


class _Handler(BaseHTTPRequestHandler):
    """Answers /containerLogs/NAMESPACE/POD/CONTAINER with what `read` of the server says."""

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        parts, query = asked.path.strip("/").split("/"), parse_qs(asked.query)
        if parts[0] != "containerLogs" or len(parts) != 4:
            self.send_error(404)
            return
        tail, most = (query.get(name) for name in ("tailLines", "limitBytes"))
        log: PodLog = self.server.log_of(parts[1], parts[2])  # type: ignore[attr-defined]
        body = log.read(
            tail=int(tail[0]) if tail else None,
            most=int(most[0]) if most else None,
            timestamps=query.get("timestamps") == ["true"],
        )
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is inherited
        """Say nothing of each request."""


class FakeKubelet:
    """The logs of pods, by namespace and name, at a port of this machine."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._logs: dict[tuple[str, str], PodLog] = {}
        self._lock = threading.Lock()

    def log_of(self, namespace: str, pod: str) -> PodLog:
        """Return the log of a pod, empty at first."""
        with self._lock:
            return self._logs.setdefault((namespace, pod), PodLog())

    def forget(self, namespace: str, pod: str) -> None:
        """Begin the log of a pod anew, as when another pod takes its name."""
        with self._lock:
            self._logs.pop((namespace, pod), None)

    def take_over(self, kube: Kube, node: str) -> None:
        """Have the API server ask here for the logs of a node's pods."""
        addresses = [
            {"type": "InternalIP", "address": _ADDRESS},
            {"type": "Hostname", "address": node},
        ]
        endpoints = {"kubeletEndpoint": {"Port": self.port}}
        status = {"addresses": addresses, "daemonEndpoints": endpoints}
        kube.patch(f"/api/v1/nodes/{node}/status", {"status": status})

    @contextmanager
    def serving(self, tls: ssl.SSLContext) -> Iterator[None]:
        """Answer for the time of a `with` block."""
        server = ThreadingHTTPServer((_ADDRESS, self.port), _Handler)
        server.daemon_threads = True
        server.log_of = self.log_of  # type: ignore[attr-defined]
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, name="fake-kubelet")
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@contextmanager
def fake_kubelet(testbed: Testbed) -> Iterator[FakeKubelet]:
    """Have a kubelet beside a testbed, whose API server takes any certificate from one."""
    serving = testbed.pki.server("fake-kubelet", hosts=[_ADDRESS])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(serving.certificate, serving.key)
    made = FakeKubelet(testbed.new_port())
    with made.serving(tls):
        yield made
