"""The list of all policies, and which of them hold for a job."""

from kfext.core.settings.table import Settings
from kfext.model.policy import Mode, PolicyChoice
from kfext.state.running.cpu.resize import RESIZE
from kfext.state.running.cpu.shift import SHIFT
from kfext.state.running.move.migrate import MIGRATE
from kfext.state.running.policy import Policy, SignalPolicy
from kfext.state.running.size.scale import SCALE

CPU_POLICIES: tuple[SignalPolicy, ...] = (RESIZE, SHIFT)
POLICIES: tuple[Policy, ...] = (SCALE, MIGRATE, *CPU_POLICIES)
CONDITIONS = {policy.condition.type: policy.condition for policy in POLICIES}
"""By type, the conditions that a job has while it opts in to a policy of the companion."""


def chosen_policies(settings: Settings) -> dict[str, PolicyChoice]:
    """Return by name the policies that hold for a job, and how each runs."""
    choices = {policy.name: policy.effective(settings) for policy in POLICIES}
    return {name: choice for name, choice in choices.items() if choice.mode is not Mode.OFF}
