"""What holds back a low-priority pod on a shared card, in words."""

from kfext.model.shared_gpu import EVICTED_AFTER

INFEASIBLE = "its minimum cannot be met within the loss budget of the job beside it"


def shut_out(strikes: int) -> str:
    """Return the clause on a pod that was shut out for losses this many times that still count."""
    return f"shut out {strikes} of {EVICTED_AFTER} times for losses"


def coarse(millis: int) -> str:
    """Return the sentence on a pod with micro-steps that are too long."""
    return f"it gives way only after micro-steps of up to {millis} ms"
