"""The list of all policies, and which of them hold for a job."""

from kfext.core.companion.migrate import MIGRATE
from kfext.core.companion.policy import Condition, Policy, SignalPolicy
from kfext.core.companion.resize import RESIZE
from kfext.core.companion.scale import SCALE
from kfext.core.companion.shift import SHIFT
from kfext.core.settings.table import Settings
from kfext.model.policy import Mode, PolicyChoice

POLICIES: tuple[Policy, ...] = (SCALE, MIGRATE, RESIZE, SHIFT)
CONDITIONS = tuple({policy.condition.type: policy.condition for policy in POLICIES}.values())


def chosen_policies(settings: Settings) -> dict[str, PolicyChoice]:
    """Return by name the policies that hold for a job, and how each runs."""
    choices = {policy.name: policy.effective(settings) for policy in POLICIES}
    return {name: choice for name, choice in choices.items() if choice.mode is not Mode.OFF}


def policies_of(condition: Condition) -> frozenset[str]:
    """Return the names of the policies with a condition."""
    return frozenset(policy.name for policy in POLICIES if policy.condition is condition)


def signal_policies(condition: Condition) -> tuple[SignalPolicy, ...]:
    """Return the policies with a condition that decide by signals alone."""
    return tuple(
        policy
        for policy in POLICIES
        if isinstance(policy, SignalPolicy) and policy.condition is condition
    )
