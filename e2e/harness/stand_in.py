"""A stand-in for the mutating webhook of another system."""

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from e2e.harness.kube import Kube, Object
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed

_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
Mutate = Callable[[Object], list[Object]]
"""Returns the JSON patch for a new object; an empty list leaves the object unchanged."""


class _Handler(BaseHTTPRequestHandler):
    """Answers an AdmissionReview with the patch from the server's `mutate`."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
        operations = self.server.mutate(request["object"])  # type: ignore[attr-defined]
        response = {"uid": request["uid"], "allowed": True}
        if operations:
            patch = base64.b64encode(json.dumps(operations).encode()).decode()
            response |= {"patchType": "JSONPatch", "patch": patch}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        body = json.dumps({**review, "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        """Log no requests."""


@contextmanager
def standing_in(
    testbed: Testbed,
    kube: Kube,
    *,
    name: str,
    namespace: str,
    rule: Object,
    mutate: Mutate,
    effective: Callable[[], object],
) -> Iterator[None]:
    """Run a webhook that changes new objects of a namespace during a `with` block.

    The API server calls mutating webhooks in the order of their configurations' names: to be called
    after kfext's, a webhook needs a later `name`. The block begins once `effective` returns true.
    """
    port = testbed.new_port()
    serving = testbed.pki.server(name, hosts=["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(serving.certificate, serving.key)
    server = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
    server.mutate = mutate  # type: ignore[attr-defined]
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True, name=name).start()
    trust = base64.b64encode(testbed.pki.authority.certificate.read_bytes()).decode()
    hook = {
        "name": f"{name}.example.com",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": trust},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [{"operations": ["CREATE"], "scope": "Namespaced", **rule}],
    }
    kube.create(_CONFIGURATIONS, {"metadata": {"name": name}, "webhooks": [hook]})
    try:
        until(effective, what=f"the webhook {name} is called")
        yield
    finally:
        kube.delete(f"{_CONFIGURATIONS}/{name}")
        server.shutdown()
        server.server_close()
