"""What kfext aims at: the rows of the design's performance table that these benchmarks measure.

A figure is judged, never asserted: a miss is printed as a miss, and the benchmark goes on.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on one figure; `sense` is `<=`, `<`, `>=` or `==`."""

    sense: str
    bound: float
    unit: str = ""

    def judge(self, figure: float) -> str:
        """Return the cell of a table: the bound, and whether the figure keeps it."""
        kept = {
            "<=": figure <= self.bound,
            "<": figure < self.bound,
            ">=": figure >= self.bound,
            "==": figure == self.bound,
        }[self.sense]
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.sense} {self.bound:g}{unit}: {'PASS' if kept else 'MISS'}"


REVIEW_P50 = Target("<=", 1.0, "ms")
"""One review at 200 a second."""
REVIEW_P99 = Target("<=", 5.0, "ms")
REVIEW_RATE = Target(">=", 2000.0, "/s")
"""Reviews a second of one replica, 32 connections."""
REVIEW_ERRORS = Target("==", 0.0)

GANG_RATIO = Target(">=", 0.9)
"""Time of a bare client divided by that of kfext, 64 pods."""
GANG_POD_WRITES = Target("==", 1.0)

PLAN_RATE = {1000: Target(">=", 1000.0, "/s"), 5000: Target(">=", 300.0, "/s")}
"""Plans a second, by number of nodes."""

LONGEST_TICK = Target("<=", 1.0, "s")
"""CPU between two turns of the controller's loop: 5,000 nodes, 1,000 queued jobs of 200 shapes."""

TAIL_START = Target("<=", 5.0, "s")
"""The longest wait of a job that fits behind 1,000 others, while ten pods end a second."""

COMPANION_TURN = Target("<=", 11.0, "s")
"""The longest time between two turns of the companion meanwhile: ten seconds, and one tick."""

FIRST_BIND_RATIO = Target("<=", 1.5)
"""Submit to first pod bound, with kfext divided by without."""

QUEUE_CPU = Target("<=", 10.0, "s")
"""Controller time until 1,000 queued jobs are planned and all of their pods released."""
LIVE_MEMORY = Target("<", 300.0, "MB")
"""Of the controller at 5,000 nodes, 50,000 pods and 1,000 live jobs."""
LIVE_PLAN_RATE = Target(">=", 300.0, "/s")
"""Decisions a second on 5,000 nodes, by the controller's own histogram."""
IDLE_CPU = Target("<", 1.0, "%")
"""Of the controller with 1,000 queued jobs that do not fit, once calm."""
IDLE_WRITES = Target("==", 0.0)
"""API writes meanwhile, the Lease apart."""
WHY_NOT = Target("<=", 1.0, "s")
"""Submit of a job that does not fit to the sentence that says why."""

GANGS_TO_PLAIN = Target(">=", 0.75)
"""Gangs a second with kfext divided by plain Kubernetes', 50 gangs of 8 at once."""
GANGS_TO_KUEUE = Target(">=", 1.0)
"""The same divided by Kueue's."""
WAIT_TO_KUEUE = Target(">=", 4.0)
"""Last pod created to last ungated, 64 pods: the time of Kueue divided by kfext's."""

WORST_REVIEW = Target("<=", 250.0, "ms")
"""Of the most expensive object that the API server accepts."""
WORST_CONTROLLER = Target("<=", 100.0, "ms")
"""From its JSON to the decision."""
WORST_KEPT = Target("<=", 20.0, "MiB")
"""Of it, in the controller."""
WORST_MEMORY = Target("<=", 512.0, "MiB")
"""The memory limit of the controller."""

NETWORK_GAIN = Target(">=", 20.1, "%")
"""Training time saved by one node and the host network, against two nodes and the overlay: the
most that CMS-DL has published for one job."""
UNLIMITED_SPEED = Target(">=", 0.97)
"""Speed of a job without a CPU limit where kfext puts it, divided by that apart."""

CAPPED_SHARE = Target("<=", 5.0, "%")
"""By how much the CPU of spinning pods under caps may differ from what arithmetic says."""

OVERHEAD = Target("<", 1.0, "%")
"""By how much longer training takes where its progress is read, or where it may be resized."""

GUARD_ACTS = Target("<=", 35.0, "s")
"""From the arrival of a gang until kfext takes workers for it: after 30 s, which it may wait."""
GANG_BOUND = Target("<=", 15.0, "s")
"""From the end of the last pod that made room until the gang is bound."""
TORCHRUN_PAUSE = {"in": Target("<", 19.0, "s"), "out": Target("<", 10.0, "s")}
"""For how long training stands still while a torchrun job gives workers and gets them. The bounds
are what an elastic torchrun took without kfext on the same nodes, from the edit of its size on."""
LOST_STEPS = Target("==", 0.0)
"""Times that a training went on from before what it had saved."""
LOSS_TOLERANCE = {"PyTorchJob": Target("<=", 0.1, "%"), "TFJob": Target("<=", 2.0, "%")}
"""By how much the last loss of a job that was rescaled may differ from that of one that was not.
Workers that do not wait for each other use weights that are a little old, and always in another
way."""

HIGH_LOSS = Target("<=", 2.0, "%")
"""Of the speed of a job of high priority beside one of low."""
LOW_EFFICIENCY = Target(">=", 0.9)
"""Of what a card that runs one kernel at a time leaves low, the part that it gets."""
HOOK_OVERHEAD = {"high": Target("<", 0.5, "%"), "low": Target("<", 2.0, "%")}
"""By how much slower a job is with the hook, alone on its card."""
GROUP_COMPLETION = Target("<=", -20.0, "%")
"""By how much sooner the last of six jobs ends than with the card for one job at a time."""
GROUP_UTILISATION = Target(">=", 10.0, "points")
"""By how much longer the card is busy meanwhile."""
