"""What is shown of what the companion does to a job."""

from dataclasses import dataclass

from kfext.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Shown:
    """One condition of a job that has opted in to a policy.

    `holds`: whether kfext gave it something else than the user wrote: CPU limits, or a size.
    `verdict`: what was done last, what would be done, or why nothing is; its reason is one of
        kfext.names.REASONS_RESIZED or REASONS_SCALED.
    """

    holds: bool
    verdict: Verdict
