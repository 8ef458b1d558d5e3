"""The answer of a decision: a machine reason and a sentence with numbers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why something is as it is.

    `reason` is one of the REASON names of kfext.names; `message` is a sentence for the user.
    """

    reason: str
    message: str
