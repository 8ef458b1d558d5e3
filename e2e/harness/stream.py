"""An open watch, and what has passed on it: for tests that must not overtake what they changed."""

import json
from dataclasses import dataclass, field

from e2e.harness.faults import Exchange

_FOLLOWED = {"namespaces", "networkpolicies", "nodes", "resourcequotas", "trainingpolicies"}
"""Small collections that decide about jobs and pods, which come on watches of their own."""


@dataclass(eq=False)
class Stream:
    """A watch of one reader, from the version of its list on.

    Of a followed collection, `version` is that of the newest object which passed, and `gone` has
    the uids of those that were deleted.
    """

    exchange: Exchange
    open: bool = True
    version: int = field(init=False)
    gone: set[str] = field(default_factory=set)
    _rest: bytes = b""

    def __post_init__(self) -> None:
        self.plural = self.exchange.path.rsplit("/", 1)[-1]
        self.version = int(self.exchange.query.get("resourceVersion") or 0)

    def note(self, chunk: bytes) -> None:
        """Take in what was passed on."""
        if self.plural not in _FOLLOWED:
            return
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            event = json.loads(line)
            metadata = event["object"].get("metadata", {})
            # The versions of one collection are numbers that grow.
            self.version = max(self.version, int(metadata.get("resourceVersion") or 0))
            if event["type"] == "DELETED":
                self.gone.add(metadata["uid"])
