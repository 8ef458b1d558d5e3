"""The result of a decision: a reason for machines and a sentence with numbers for people."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why kfext decided something.

    `reason`: one of the REASON names of kfext.names.
    `message`: a sentence for the user.
    """

    reason: str
    message: str
