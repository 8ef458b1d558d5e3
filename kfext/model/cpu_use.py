"""The CPU use of a pod or node over a window."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CpuUse:
    """The `cores` that a pod or node used on average over a window.

    `at`: the end of the window, in seconds since the epoch by the clock of the node.
    `window`: its length in seconds.
    """

    cores: float
    at: float
    window: float
