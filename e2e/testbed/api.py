"""A small client of the API server, for the testbed itself."""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import urllib3

from e2e.testbed.pki import Credential

Manifest = dict[str, Any]
_MANAGER = "kfext-testbed"
_CONNECTIONS = 64


class ApiError(Exception):
    """The API server refused a request. `status`: the HTTP status, such as 404."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Api:
    """A client of the API server for one user; threads may share it."""

    def __init__(self, server: str, *, authority: Path, user: Credential) -> None:
        self._server = server
        self._pool = urllib3.PoolManager(
            maxsize=_CONNECTIONS,
            ca_certs=str(authority),
            cert_file=str(user.certificate),
            key_file=str(user.key),
            timeout=urllib3.Timeout(connect=5, read=60),
            retries=False,
        )
        self._resources: dict[str, list[Manifest]] = {}
        self._lock = threading.Lock()

    def get(self, path: str) -> Any:
        """Return the object or list at `path`, for instance `/api/v1/nodes`."""
        return self.request("GET", path)

    def create(self, path: str, body: Manifest) -> Any:
        return self.request("POST", path, body)

    def patch(self, path: str, body: Manifest) -> Any:
        """Apply a JSON merge patch to the object at `path`."""
        return self.request("PATCH", path, body, kind="application/merge-patch+json")

    def delete(self, path: str) -> None:
        """Delete the object or collection at `path`; a missing object is no error."""
        try:
            self.request("DELETE", path)
        except ApiError as error:
            if error.status != 404:
                raise

    def apply(self, manifest: Manifest) -> Any:
        """Create or update the object of `manifest` (server-side apply)."""
        path = f"{self.path(manifest)}?fieldManager={_MANAGER}&force=true"
        return self.request("PATCH", path, manifest, kind="application/apply-patch+yaml")

    def path(self, manifest: Manifest) -> str:
        version, kind = manifest["apiVersion"], manifest["kind"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        resource = self._resource(root, kind)
        metadata = manifest["metadata"]
        if resource["namespaced"]:
            root += f"/namespaces/{metadata.get('namespace', 'default')}"
        return f"{root}/{resource['name']}/{metadata['name']}"

    def request(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json"
    ) -> Any:
        """Send one request; return the decoded answer, or its text if it is not JSON."""
        answer = self._pool.request(
            method,
            self._server + path,
            body=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": kind, "Accept": "application/json, */*"},
        )
        is_json = answer.headers.get("Content-Type", "").startswith("application/json")
        content = json.loads(answer.data) if is_json else answer.data.decode(errors="replace")
        if answer.status >= 400:
            message = content.get("message", "") if isinstance(content, dict) else content
            raise ApiError(answer.status, f"{method} {path}: {answer.status} {message}")
        return content

    def _resource(self, root: str, kind: str) -> Manifest:
        """Return the API resource of a kind; ask the server again if the kind is unknown."""
        with self._lock:
            for reload in (False, True):
                if reload or root not in self._resources:
                    self._resources[root] = self.get(root)["resources"]
                for resource in self._resources[root]:
                    if resource["kind"] == kind and "/" not in resource["name"]:
                        return resource
        raise ApiError(404, f"the API server knows no {kind} in {root}")


def is_ready(node: Mapping[str, Any]) -> bool:
    """Return whether a node object is ready, and without the taint for not ready."""
    conditions = node.get("status", {}).get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    taints = {taint["key"] for taint in node.get("spec", {}).get("taints", [])}
    return ready and "node.kubernetes.io/not-ready" not in taints
