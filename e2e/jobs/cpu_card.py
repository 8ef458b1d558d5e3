"""The driver of the card that `e2e/gpu/cpu_card.py` simulates.

A job with this driver computes on the CPU as usual. It also launches kernels on the card: for each
innermost module one in the forward and two in the backward pass, and one for the optimizer. The
card runs them in order while the training continues; `Tensor.item` waits for them.

It is loaded by `KFEXT_GPU_DEVICE=cpu_card:Card`, or without kfext by `python3 -m cpu_card SCRIPT`.
"""

import os
import runpy
import socket
import struct
import sys
import threading
import time
from importlib import import_module
from typing import Any

_KERNEL, _MARKER = struct.Struct("=cdd"), struct.Struct("=cqd")
"""The same as KERNEL and MARKER in `e2e/gpu/cpu_card.py`, which jobs cannot import."""


class Marker:
    """A point between the kernels that were launched on the card."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._at = 0.0

    def reach(self, at: float) -> None:
        """Record that all kernels before it had ended at the time `at`."""
        self._at = at
        self._reached.set()

    def reached(self) -> bool:
        """Return whether all kernels before it have ended."""
        return self._reached.is_set()

    def wait(self, expected: "int | None" = None) -> None:
        """Block until it is reached. `expected`: when the hook expects this, as with CUDA."""
        if expected is not None:
            waits = import_module("kfext_hook.waits")
            if waits.poll(self.reached, expected, waits.CLOCK):
                return
        self._reached.wait()

    def seconds_since(self, earlier: Any) -> float:
        """Return the seconds between the moments in which two markers were reached."""
        earlier.wait()
        self.wait()
        return float(self._at - earlier._at)


class Card:
    """The card for one process, with a socket in the folder `CPU_CARD_FOLDER`, by default /cards.

    A kernel lasts `CPU_CARD_KERNEL_MS`, by default 1.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._kernel = float(os.environ.get("CPU_CARD_KERNEL_MS", "1")) / 1000
        self._markers: dict[int, Marker] = {}
        self._marked = 0
        self._unmarked = False
        self._lock = threading.Lock()
        self._card: socket.socket | None = None
        self._process: int | None = None
        # The layers of a compiled model launch nothing, because its graph must stay whole.
        compiler = getattr(torch, "compiler", None)
        self._traced = compiler.is_compiling if compiler else lambda: False
        modules = torch.nn.modules.module
        modules.register_module_forward_hook(self._forward)
        optimizers = torch.optim.Optimizer
        zero_gradients = optimizers.zero_grad
        card = self

        def zero_grad(self: Any, *args: Any, **kwargs: Any) -> Any:
            card.launch()
            return zero_gradients(self, *args, **kwargs)

        optimizers.zero_grad = zero_grad
        item = torch.Tensor.item

        def synchronous(self: Any) -> Any:
            card.mark().wait()
            return item(self)

        torch.Tensor.item = synchronous

    def ready(self) -> bool:
        """Return whether this process, not only its parent, has launched a kernel."""
        return self._process == os.getpid()

    def capturing(self) -> bool:
        """Return False: this card records no kernels for later, as CUDA graphs do."""
        return False

    def mark(self) -> Marker:
        """Set a marker after all kernels launched so far, and return it."""
        marker = Marker()
        with self._lock:
            if self._card is None or not (self._unmarked or self._markers):
                marker.reach(time.monotonic())
            else:
                self._marked += 1
                self._unmarked = False
                self._markers[self._marked] = marker
                self._card.send(_MARKER.pack(b"m", self._marked, time.monotonic()))
        return marker

    def memory(self) -> int:
        """Return 0: the card has no memory of its own."""
        return 0

    def launch(self) -> None:
        """Launch a kernel."""
        if self._process not in {None, os.getpid()}:
            return
        with self._lock:
            if self._card is None:
                self._process = os.getpid()
                self._card = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                folder = os.environ.get("CPU_CARD_FOLDER", "/cards")
                self._card.connect(f"{folder}/{os.environ['NVIDIA_VISIBLE_DEVICES']}")
                self._card.send(os.environ.get("CPU_CARD_NAME", str(os.getpid())).encode())
                threading.Thread(target=self._run, args=(self._card,), daemon=True).start()
            self._unmarked = True
            self._card.send(_KERNEL.pack(b"k", self._kernel, time.monotonic()))

    def _forward(self, module: Any, _: Any, returned: Any) -> None:
        if self._traced() or next(module.children(), None) is not None:
            return
        self.launch()
        if isinstance(returned, self._torch.Tensor) and returned.requires_grad:
            returned.register_hook(self._backward)

    def _backward(self, _: Any) -> None:
        self.launch()
        self.launch()

    def _run(self, card: socket.socket) -> None:
        """Record the markers that the card reports as reached."""
        while True:
            _, number, at = _MARKER.unpack(card.recv(_MARKER.size))
            self._markers.pop(number).reach(at)


def main() -> None:
    """Run a script on the card, without kfext."""
    Card(import_module("torch"))
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
