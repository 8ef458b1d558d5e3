"""The words of the pages and their meaning. Times are of CLOCK_MONOTONIC, in nanoseconds.

The first word of every page is the version of this layout; a reader ignores other versions.
"""

NS = 1_000_000_000
"""Nanoseconds in a second."""
VERSION = 1
LAYOUT = 0

# The page of a sharer, which its hook writes.
HEARTBEAT = 1
"""The time at which the process last ran Python."""
BUSY = 2
"""1 while the card has unfinished work of the process, or is about to receive some; else 0."""
CHANGED = 3
"""The time at which BUSY was last set."""
BUSY_NS = 4
"""The total time in which BUSY was 1, up to the last time at which it was set to 0."""
STEPS = 5
"""The number of steps of the job's optimizers."""
STEPPED = 6
"""The time of the last step of the optimizers."""
MICRO_STEPS = 7
"""The number of micro-steps begun."""
LONGEST_NS = 8
"""The time of the longest micro-step on the card, by the last calibration."""
ASKING = 9
"""1 while a micro-step waits for the gate and all earlier micro-steps are done; else 0."""
WAITED_NS = 10
"""The total time that micro-steps have waited for the gate."""
WORKED_NS = 11
"""The total time that the process has spent between two gates."""
INTRUDED = 12
"""The number of micro-steps that began while the high-priority job was busy, or that would probably
not end before it is."""
INTRUDED_NS = 13
"""The total time of the micro-steps counted in INTRUDED."""
MEMORY = 14
"""Bytes of the card that the process has reserved; 0 for unknown."""
HOOKED = 15
"""The state of the gate: 0 without a gate, else a number below."""
UNHOOKED = 17
"""The reason why the agent ignores this process, a number below; 0 if it does not."""
RESTED_NS = 18
"""The part of WORKED_NS in which the card was idle between a step and the next work."""
PAUSED = 31
"""The number of pauses, from BUSY 0 to BUSY 1, that have ended."""
PAUSES = 32
"""The first of `kfext.gpu.hook.pauses.KEPT` words with the last pauses; the oldest is replaced."""

WATCHING, READY, COARSE = 1, 2, 3
"""Values of HOOKED: calibrating; calibrated; calibrated, and some micro-step is too long."""

FAILED, OLD_TENSORFLOW, CALLBACK_LIST = 1, 2, 3
"""Values of UNHOOKED: a hook raised an error; TensorFlow is older than 2.6; `Model.fit` was called
with a whole `CallbackList`."""

# The page of orders, which the agent writes for one sharer.
LEASE = 1
"""The time at which these orders end; after it the agent counts as dead."""
MODE = 2
"""A number below."""
MICRO_STEP_NS = 3
"""The longest time that a micro-step should take."""
TURN = 4
"""The end of the sharer's turn among the low-priority sharers."""
ALLOWANCE_NS = 5
"""The limit of INTRUDED_NS: at it, the gate is shut while the high-priority job is busy."""
PRICE = 6
"""`kfext.gpu.hook.pauses.PRICE` in thousandths; 0 means the default."""

OPEN, GATED, SHUT, FREE = 0, 1, 2, 3
"""Values of MODE: always open; open while the high-priority job is idle; always shut; always open,
and no other job waits for the card."""
