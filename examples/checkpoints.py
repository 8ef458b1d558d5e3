"""Checkpoints that kfext asks for: copy this file into your program (docs/checkpoints.md)."""

import pathlib
import time


class Checkpoints:
    def __init__(self, control="/etc/kfext/control"):
        self.control, self.done, self.next = pathlib.Path(control), 0, 0.0
        self.requested()

    def requested(self):
        """Return the number of the checkpoint that is asked for, 0 if none is."""
        try:
            text = self.control.read_text().strip()
        except OSError:
            return 0
        if time.monotonic() >= self.next:
            self.next = time.monotonic() + 60
            print("\nkfext.checkpoint 0", flush=True)  # a progress bar may not have ended its line
        number = int(text) if text.isdecimal() else 0
        return number if number > self.done else 0

    def saved(self, number):
        """Answer a request, once its checkpoint is complete."""
        self.done = number
        print(f"\nkfext.checkpoint {number}", flush=True)
