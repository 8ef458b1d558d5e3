"""How much CPU a pod or node has used over a window."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CpuUse:
    """The `cores` that a pod or node used on average over a window.

    `at`: when the window ended, in seconds since the epoch by the clock of the node.
    `window`: its length in seconds.
    """

    cores: float
    at: float
    window: float
