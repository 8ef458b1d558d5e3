"""What the controller must remember of a job over a restart. It is stored as JSON on the job."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from kfext.model.tolerant import mapping, text

LIMIT = 4096
"""Bytes that the annotation may have."""

_MESSAGE_LIMIT = 1024
_LARGEST = 2.0**63


@dataclass(frozen=True, slots=True)
class JobState:
    """The memory of a job. Times are seconds since the epoch.

    `strikes` counts the placements in a row that kube-scheduler or the operator did not carry
    out; `excluded` says until when a node is out of the question for this job; `suspended_at` is
    when kfext last suspended a job that had pods; `retry_at` is the end of a back-off, and of a job
    that goes on the earliest next strike; `reason`, `message` say what it is for. `generation` is
    the number of the last plan that was taken off the job; `asked` is how many workers the user
    asked for while the job runs with the fewer that kfext `admitted`, else 0. `no_host_network` is
    why the job is not to be tried on the host network again, empty if nothing speaks against it.
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

    def encode(self) -> str:
        """Return compact JSON of what differs from the start, within LIMIT bytes."""
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
            }
            written = json.dumps(
                {key: value for key, value in values.items() if value}, separators=(",", ":")
            )
            if len(written.encode()) <= LIMIT or not excluded:
                return written
            # The exclusion that ends first is the one least missed.
            del excluded[min(excluded, key=lambda node: excluded[node])]


def decode_state(written: str | None) -> JobState:
    """Return the state in an annotation; a damaged one counts as none."""
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
    )


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if abs(value) <= _LARGEST and math.isfinite(value) else 0.0


def _cut(message: str) -> str:
    """Return the message within 1 KiB of JSON, where a character may take twelve bytes."""
    while len(json.dumps(message)) > _MESSAGE_LIMIT:
        message = message[: len(message) * 3 // 4]
    return message
