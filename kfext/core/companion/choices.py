"""Which policies may look at a job, and what they may do there."""

from dataclasses import replace

from kfext.core.companion.registry import POLICIES
from kfext.core.settings.table import Settings
from kfext.core.settings.values import Resize
from kfext.model.policy import Mode, PolicyChoice


def chosen_policies(settings: Settings) -> dict[str, PolicyChoice]:
    """Return by name the policies that hold for a job; the setting `resize` opts in to all.

    A job that only wants to be shown what would be done never has more done to it than that,
    whatever the TrainingPolicy allows; and nothing that it allows makes a job opt in.
    """
    if not settings.managed or settings.resize is Resize.OFF:
        return {}
    found = {}
    for policy in POLICIES:
        choice = settings.companion.get(policy.name, PolicyChoice())
        if choice.mode is not Mode.OFF:
            shown_only = settings.resize is Resize.OBSERVE
            found[policy.name] = replace(choice, mode=Mode.OBSERVE) if shown_only else choice
    return found
