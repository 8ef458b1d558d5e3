"""The words of the pages: what each holds. Times are of CLOCK_MONOTONIC, in nanoseconds.

The first word of every page is the version of this layout; a reader ignores a page of another one.
"""

VERSION = 1
LAYOUT = 0

# Of the page of a sharer, which its hook writes.
PULSE = 1
"""When the process last ran Python."""
BUSY = 2
"""1 while work that was given to the card has not ended, or more is about to be given, else 0."""
CHANGED = 3
"""When BUSY was last set."""
BUSY_NS = 4
"""For how long BUSY has been 1, in all, until it was last set to 0."""
STEPS = 5
"""How many steps the job's optimizers have made."""
STEPPED = 6
"""When the last of them was made."""
MICRO_STEPS = 7
"""How many micro-steps were begun."""
LONGEST_NS = 8
"""How long the longest of the last calibration took on the card."""
ASKING = 9
"""1 while a micro-step waits for the gate, with all those before it done, else 0."""
WAITED_NS = 10
"""For how long micro-steps have waited for the gate."""
WORKED_NS = 11
"""For how long the process has been between two gates, in all."""
INTRUDED = 12
"""How many micro-steps were begun while the job of high priority was busy."""
INTRUDED_NS = 13
"""How long those took, in all."""
MEMORY = 14
"""Bytes of the card that the process has reserved, 0 while that is not known."""
HOOKED = 15
"""What the hook does at the gate: nothing if 0, else one of the numbers below."""
TICKETS_SEEN = 16
"""How many tickets there were when the process last passed its gate."""
UNHOOKED = 17
"""Why nothing is heard of the process, or nothing any more: 0 if it is heard of, else one of the
numbers below."""
RESTED_NS = 18
"""For how long of that in WORKED_NS the card had nothing to do between a step and what follows."""

WATCHING, READY, COARSE = 1, 2, 3
"""HOOKED: calibrating; at its boundaries; some micro-step is longer than it should be."""

FAILED, OLD_TENSORFLOW, CALLBACK_LIST = 1, 2, 3
"""UNHOOKED: a hook raised an error; TensorFlow is older than 2.6; `Model.fit` is given a whole
`CallbackList`."""

# Of the page of orders, which the agent writes for one sharer.
LEASE = 1
"""Until when these orders hold; past it the agent is taken for dead."""
MODE = 2
"""One of the numbers below."""
MICRO_STEP_NS = 3
"""How long a micro-step should take at most."""
TURN = 4
"""Until when it is the sharer's turn among those of its class."""
ALLOWANCE_NS = 5
"""For how long, in all since the start, it may work while the job of high priority is busy."""
TICKETS = 6
"""Rises by one for each step that it may begin while it would have to wait; see `Orders.word`."""

OPEN, GATED, SHUT = 0, 1, 2
"""MODE: always; while the job of high priority is idle; never, but for tickets."""
