"""The result of a decision: a reason for machines and a sentence with numbers for people."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """The reason for a decision, a REASON of kfext.names, and a sentence for the user."""

    reason: str
    message: str
