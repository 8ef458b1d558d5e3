"""What is shown of what the companion does to a job."""

from dataclasses import dataclass

from kfext.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Shown:
    """What a job that has opted in to a policy is shown.

    `resized`: whether pods of it have other CPU limits than the user wrote.
    `verdict`: what was done last, what would be done, or why nothing is; its reason is one of
        kfext.names.REASONS_RESIZED.
    """

    resized: bool
    verdict: Verdict
