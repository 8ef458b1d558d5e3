"""A card for the hook of a low-priority job that records when the job uses the card.

It is loaded by `KFEXT_GPU_DEVICE=gate_trace:on_cuda` (or `:on_cpu_card`). It appends to the file
`GATE_TRACE` a line `pass T` when a micro-step passes the gate, and a line `done T S` when a thread
sees that all work that was launched before the gate has ended. T is the time of CLOCK_MONOTONIC, S
the time on the card since the last such end, both in nanoseconds.
"""

import os
import queue
import threading
from functools import wraps
from importlib import import_module
from time import monotonic_ns
from typing import Any


def on_cuda(torch: Any) -> Any:
    """Return the GPU that PyTorch uses."""
    return _traced(import_module("kfext_hook.device").Cuda(torch))


def on_cpu_card(torch: Any) -> Any:
    """Return the card that the CPU simulates."""
    return _traced(import_module("cpu_card").Card(torch))


def _traced(device: Any) -> Any:
    trace = os.open(os.environ["GATE_TRACE"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    markers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    gate = import_module("kfext_hook.gate").Gate
    enter = gate.enter

    def write(text: str) -> None:
        os.write(trace, f"{text}\n".encode())

    @wraps(enter)
    def traced(self: Any, seconds: float = 0.0) -> None:
        markers.put(device.mark())
        enter(self, seconds)
        write(f"pass {monotonic_ns()}")

    def wait() -> None:
        before = None
        while True:
            marker = markers.get()
            marker.wait()
            seen = monotonic_ns()
            passed = 0.0 if before is None else marker.seconds_since(before)
            write(f"done {seen} {int(passed * 1e9)}")
            before = marker

    gate.enter = traced
    threading.Thread(target=wait, daemon=True).start()
    return device
