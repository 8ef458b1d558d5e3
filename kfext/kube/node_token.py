"""The token that kubelets are shown: of an account that may read their metrics and nothing else.

Whoever controls a node sees what is sent to its kubelet. With the token of the controller they
could change every pod of the cluster.
"""

import asyncio
from collections.abc import Callable

from kfext.errors import ApiError
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.model.tolerant import mapping, text
from kfext.names import NAMESPACE, NODE_METRICS_ACCOUNT

TOKEN_SECONDS = 600
"""How long a token is valid: the shortest time for which the API server issues one."""
_RENEWED_SECONDS = 480.0
_REFUSED_SECONDS = 60.0


class NodeToken:
    """A token that is asked for again before it expires, and some time after a refusal."""

    def __init__(self, client: Client, monotonic: Callable[[], float]) -> None:
        self._client = client
        self._monotonic = monotonic
        self._value = ""
        self._refusal: ApiError | None = None
        self._until = float("-inf")
        self._lock = asyncio.Lock()

    async def value(self) -> str:
        """Return the token. Raises ApiError, for a while the same without another request."""
        async with self._lock:
            if self._monotonic() >= self._until:
                await self._renew()
        if self._refusal is not None:
            raise self._refusal
        return self._value

    async def _renew(self) -> None:
        path = paths.account_token(NAMESPACE, NODE_METRICS_ACCOUNT)
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        }
        try:
            answer = await self._client.create(path, body)
        except ApiError as error:
            self._refusal, self._until = error, self._monotonic() + _REFUSED_SECONDS
            return
        self._value = text(mapping(answer.get("status")).get("token"))
        self._refusal, self._until = None, self._monotonic() + _RENEWED_SECONDS
