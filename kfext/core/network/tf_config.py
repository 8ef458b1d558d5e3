"""TF_CONFIG of a pod on the host network: every replica has a port of its own there.

Source: the operator writes `{"cluster": {type: [address]}, "task": …}`. With dynamic workers (the
sparse form) a worker sees itself, as `{index: address}`, and all servers; a server only itself.
"""

import json
from collections.abc import Mapping
from typing import Any

from kfext.core.ledger.ports import offset_of
from kfext.model.tolerant import mapping, sequence, text

NAME = "TF_CONFIG"


class TFConfig:
    """One TF_CONFIG; a damaged one, or one without a cluster, is left unchanged."""

    def __init__(self, written: str) -> None:
        try:
            self._config = mapping(json.loads(written))
        except (ValueError, RecursionError):
            self._config = {}
        self._cluster = mapping(self._config.get("cluster"))
        self._servers = len(sequence(self._cluster.get("ps")))

    def port_of(self, type_: str, index: int, *, base: int) -> int | None:
        """Return the port on which a replica listens, None if on none; `type_` in lower case."""
        offset = offset_of(type_, index, servers=self._servers) if self._cluster else None
        return None if offset is None else base + offset

    def moved(self, job: str, *, base: int) -> str | None:
        """Return TF_CONFIG with each replica of a job at its own port, None without a cluster."""
        if not self._cluster:
            return None

        def at(type_: str, address: object) -> str:
            host = text(address).rpartition(":")[0]
            # The position in the list is no index: in the sparse form a server sees only itself.
            index = host.partition(".")[0].removeprefix(f"{job}-{type_}-")
            port = self.port_of(type_, int(index), base=base) if _is_index(index) else None
            return text(address) if port is None else f"{host}:{port}"

        cluster: dict[str, Any] = {
            type_: {key: at(type_, value) for key, value in addresses.items()}
            if isinstance(addresses, Mapping)
            else [at(type_, address) for address in sequence(addresses)]
            for type_, addresses in self._cluster.items()
        }
        return json.dumps({**self._config, "cluster": cluster}, separators=(",", ":"))


def _is_index(written: str) -> bool:
    return written.isascii() and written.isdigit() and len(written) <= 6
