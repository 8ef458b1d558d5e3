"""The list of all policies, and which of them hold for a job."""

from kfext.core.companion.migrate import MIGRATE
from kfext.core.companion.policy import Policy, SignalPolicy
from kfext.core.companion.resize import RESIZE
from kfext.core.companion.scale import SCALE
from kfext.core.companion.shift import SHIFT
from kfext.core.settings.table import Settings
from kfext.model.policy import Mode, PolicyChoice

CPU_POLICIES: tuple[SignalPolicy, ...] = (RESIZE, SHIFT)
POLICIES: tuple[Policy, ...] = (SCALE, MIGRATE, *CPU_POLICIES)
CONDITIONS = {policy.condition.type: policy.condition for policy in POLICIES}
"""By type, the conditions that a job has while it opts in to a policy of the companion."""


def chosen_policies(settings: Settings) -> dict[str, PolicyChoice]:
    """Return by name the policies that hold for a job, and how each runs."""
    choices = {policy.name: policy.effective(settings) for policy in POLICIES}
    return {name: choice for name, choice in choices.items() if choice.mode is not Mode.OFF}
