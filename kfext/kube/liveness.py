"""Whether a controller is alive, judged by its Lease, for the webhooks that hold jobs for it."""

import msgspec

from kfext.model.timestamps import timestamp
from kfext.model.tolerant import mapping

_FRESH_SECONDS = 30.0


def decode_renew_time(raw: bytes) -> float:
    """Return the renewTime of a Lease in epoch seconds, 0.0 without one, for an Informer."""
    lease = mapping(msgspec.json.decode(raw))
    return timestamp(mapping(lease.get("spec")).get("renewTime"))


class LeaseWatch:
    """Freshness of the Lease, without I/O. All times are in seconds.

    When the Lease is first seen, its age comes from renewTime and the wall clock. From then on it
    is the time on our own monotonic clock since we last saw renewTime change.
    """

    def __init__(self, *, fresh_seconds: float = _FRESH_SECONDS) -> None:
        self._fresh_seconds = fresh_seconds
        self._renewed: float | None = None
        self._changed_at = 0.0

    def observe(self, renewed: float | None, *, wall: float, monotonic: float) -> None:
        """Record the current renewTime; None if there is no Lease."""
        if renewed is None or renewed == self._renewed:
            self._renewed = renewed
            return
        # A renewTime in the future only means that clocks differ.
        age = max(0.0, wall - renewed) if self._renewed is None else 0.0
        self._renewed, self._changed_at = renewed, monotonic - age

    def fresh(self, *, monotonic: float) -> bool:
        """Return whether the Lease was renewed less than `fresh_seconds` ago."""
        return self._renewed is not None and monotonic - self._changed_at < self._fresh_seconds
