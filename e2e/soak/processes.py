"""What kfext's own processes must not do: lose the Lease by themselves, or take too much memory."""

import math
from dataclasses import dataclass, field
from pathlib import Path

from e2e.harness.install import read
from e2e.soak.amounts import amount

_LATE_SECONDS = 30.0
"""For how long a pause still counts once it is over: a Lease is taken over after 15 s, and both
processes may have to wait for a busy machine."""
_MIB = 1 << 20


@dataclass
class Leadership:
    """Who holds the Lease, by the id of the process. Times are in seconds of one clock.

    `unasked`: changes of the holder that nothing which befell the earlier one explains.
    """

    changes: int = 0
    unasked: list[str] = field(default_factory=list)
    _holder: int | None = None
    _until: dict[int, float] = field(default_factory=dict)

    def befall(self, pid: int | None) -> None:
        """Take in that a process is killed, or kept from its work until it may `resume`."""
        if pid is not None:
            self._until[pid] = math.inf

    def resume(self, pid: int, *, at: float) -> None:
        """Take in that a process is at work again."""
        self._until[pid] = at + _LATE_SECONDS

    def see(self, holder: int | None, *, at: float) -> None:
        """Take in the holder as of now, None if no process of kfext is."""
        if holder is None or holder == self._holder:
            return
        before, self._holder = self._holder, holder
        if before is None:
            return
        self.changes += 1
        if self._until.get(before, 0.0) < at:
            self.unasked.append(
                f"at {at:.0f} s the Lease went from process {before} to {holder}, unasked"
            )


def peak_bytes(pid: int | None) -> int:
    """Return the most memory that a process had at once, 0 if it does not run."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    peaks = [line.split()[1] for line in text.splitlines() if line.startswith("VmHWM:")]
    return int(peaks[0]) * 1024 if peaks else 0  # a process that is ending has none


def limit_bytes() -> int:
    """Return the memory limit of the controller, as in its Deployment."""
    (deployment,) = [
        one for one in read("base/controller/deployment.yaml") if one["kind"] == "Deployment"
    ]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return int(amount(container["resources"]["limits"]["memory"]))


def too_large(peak: int, limit: int) -> list[str]:
    """Return what is wrong with the most memory that a controller had."""
    told = f"[memory] a controller had {peak / _MIB:.0f} MiB, its limit is {limit / _MIB:.0f} MiB"
    return [told] if peak >= limit else []
