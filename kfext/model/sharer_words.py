"""What is said of a pod of low priority whose work on its card is known: what holds it back."""

from kfext.model.shared_gpu import EVICTED_AFTER

INFEASIBLE = "its minimum cannot be met within the loss budget of the job beside it"


def shut_out(strikes: int) -> str:
    """Return the clause on a pod that was shut out for losses, so many times that count."""
    return f"shut out {strikes} of {EVICTED_AFTER} times for losses"


def coarse(millis: int) -> str:
    """Return the sentence on a pod with micro-steps that are longer than they should be."""
    return f"it gives way only after micro-steps of up to {millis} ms"
