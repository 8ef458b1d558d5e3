"""A client of the API server for tests: refusals are answers, and warnings are recorded."""

import json
from dataclasses import dataclass
from typing import Any

import urllib3

from e2e.testbed.cluster import Testbed
from e2e.testbed.pki import Credential

Object = dict[str, Any]
_KINDS = {"merge": "application/merge-patch+json", "json": "application/json-patch+json"}


@dataclass(frozen=True)
class Answer:
    """An answer: HTTP status, the object or Status, and the warnings that kubectl would print."""

    status: int
    body: Any
    warnings: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        return str(self.body.get("message", "")) if isinstance(self.body, dict) else str(self.body)

    @property
    def ok(self) -> bool:
        return self.status < 300


class RefusedError(AssertionError):
    """The API server refused a request that a test expects to succeed."""


class Kube:
    """A client with the permissions of an administrator, unless `user` or `token` says otherwise.

    Only `ask` returns refusals; the other methods raise RefusedError.

    `token`: the token of a service account, used instead of a certificate.
    """

    def __init__(
        self, testbed: Testbed, user: Credential | None = None, *, token: str = ""
    ) -> None:
        user = user or testbed.pki.client("tester", groups=("system:masters",))
        self._server = testbed.server
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._pool = urllib3.PoolManager(
            maxsize=64,
            ca_certs=str(testbed.pki.authority.certificate),
            cert_file=None if token else str(user.certificate),
            key_file=None if token else str(user.key),
            timeout=urllib3.Timeout(connect=5, read=60),
            retries=False,
        )

    def ask(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json"
    ) -> Answer:
        sent = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
        answer = self._pool.request(
            method, self._server + path, body=sent, headers={"Content-Type": kind, **self._headers}
        )
        warnings = answer.headers.getlist("Warning")
        try:
            content = json.loads(answer.data)
        except ValueError:
            content = answer.data.decode(errors="replace")
        # RFC 7234: 299 - "the text"
        texts = tuple(w.split('"', 1)[-1].rstrip('"').replace('\\"', '"') for w in warnings)
        return Answer(answer.status, content, texts)

    def get(self, path: str) -> Any:
        return self._accepted(self.ask("GET", path), path)

    def find(self, path: str) -> Any:
        """Return the object at a path, or None for an absent object."""
        answer = self.ask("GET", path)
        return None if answer.status == 404 else self._accepted(answer, path)

    def items(self, path: str) -> list[Object]:
        items: list[Object] = self.get(path)["items"]
        return items

    def create(self, path: str, body: Object) -> Any:
        return self._accepted(self.ask("POST", path, body), path)

    def patch(self, path: str, body: Any, *, kind: str = "merge") -> Any:
        return self._accepted(self.ask("PATCH", path, body, kind=_KINDS[kind]), path)

    def delete(self, path: str, *, grace: int | None = None) -> None:
        query = "" if grace is None else f"?gracePeriodSeconds={grace}"
        answer = self.ask("DELETE", path + query)
        if answer.status != 404:
            self._accepted(answer, path)

    @staticmethod
    def _accepted(answer: Answer, path: str) -> Any:
        if not answer.ok:
            raise RefusedError(f"{path}: {answer.status} {answer.message}")
        return answer.body
