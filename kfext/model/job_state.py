"""What the controller must remember about a job across restarts, stored as JSON on the job."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from kfext.model.tolerant import mapping, strings, text

LIMIT = 4096
"""The largest size of the annotation, in bytes."""

_MESSAGE_LIMIT = 1024
_LARGEST = 2.0**63


@dataclass(frozen=True, slots=True)
class JobState:
    """What the controller remembers about a job. Times are seconds since the epoch.

    `strikes`: how many placements in a row kube-scheduler or the operator did not carry out.
    `excluded`: until when each excluded node must not be used for this job.
    `suspended_at`: when kfext last suspended the job while it had pods.
    `retry_at`: the end of the back-off; for a job that was not suspended, when the next strike is
        due at the earliest.
    `reason`, `message`: why the job backs off.
    `generation`: the number of the last plan that was removed from the job.
    `asked`: the workers that the user requested while the job runs with fewer, else 0.
    `admitted`: the workers with which kfext started such a job, else 0.
    `no_host_network`: why the job must not be tried on the host network again, empty if it may.
    """

    strikes: int = 0
    excluded: Mapping[str, float] = field(default_factory=dict)
    suspended_at: float = 0.0
    retry_at: float = 0.0
    reason: str = ""
    message: str = ""
    generation: int = 0
    asked: int = 0
    admitted: int = 0
    no_host_network: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)

    def excluded_at(self, now: float) -> tuple[str, ...]:
        """Return the nodes that are out of the question now."""
        return tuple(node for node, until in self.excluded.items() if until > now)

    def encode(self) -> str:
        """Return compact JSON of the fields that are not 0 or empty, within LIMIT bytes."""
        excluded = {node: round(until) for node, until in self.excluded.items()}
        message, no_host_network = _cut(self.message), _cut(self.no_host_network)
        while True:
            values = {
                "strikes": self.strikes,
                "excluded": excluded,
                "suspendedAt": round(self.suspended_at, 3),
                "retryAt": round(self.retry_at, 3),
                "reason": self.reason,
                "message": message,
                "generation": self.generation,
                "asked": self.asked,
                "admitted": self.admitted,
                "noHostNetwork": no_host_network,
                "settings": dict(self.settings),
            }
            written = json.dumps(
                {key: value for key, value in values.items() if value}, separators=(",", ":")
            )
            if len(written.encode()) <= LIMIT or not excluded:
                return written
            # Drop the exclusion that ends first, as it matters for the shortest time.
            del excluded[min(excluded, key=lambda node: excluded[node])]


def decode_state(written: str | None) -> JobState:
    """Return the state in an annotation; an empty state if it is absent or damaged."""
    try:
        raw = mapping(json.loads(written or ""))
    except (ValueError, RecursionError):
        return JobState()
    return JobState(
        strikes=int(_number(raw.get("strikes"))),
        excluded={node: _number(until) for node, until in mapping(raw.get("excluded")).items()},
        suspended_at=_number(raw.get("suspendedAt")),
        retry_at=_number(raw.get("retryAt")),
        reason=text(raw.get("reason")),
        message=text(raw.get("message")),
        generation=int(_number(raw.get("generation"))),
        asked=int(_number(raw.get("asked"))),
        admitted=int(_number(raw.get("admitted"))),
        no_host_network=text(raw.get("noHostNetwork")),
        settings=strings(raw.get("settings")),
    )


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if abs(value) <= _LARGEST and math.isfinite(value) else 0.0


def _cut(message: str) -> str:
    """Return the message, cut to 1 KiB of JSON, where one character may take twelve bytes."""
    while len(json.dumps(message)) > _MESSAGE_LIMIT:
        message = message[: len(message) * 3 // 4]
    return message
