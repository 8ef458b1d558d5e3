"""The CPU use of a pod or node over a window."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CpuUse:
    """The mean CPU use of a pod or node over a window, in cores.

    `at`: the end of the window, in seconds since the epoch by the clock of the node.
    `window`: the length of the window in seconds.
    """

    cores: float
    at: float
    window: float
