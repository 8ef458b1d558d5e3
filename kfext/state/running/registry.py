"""The list of all policies."""

from kfext.state.running.cpu.record import CPU_POLICIES
from kfext.state.running.move.migrate import MIGRATE
from kfext.state.running.policy import Policy
from kfext.state.running.size.scale import SCALE
from kfext.state.running.stop.preempt import PREEMPT

POLICIES: tuple[Policy, ...] = (SCALE, PREEMPT, MIGRATE, *CPU_POLICIES)
CONDITIONS = {policy.condition.type: policy.condition for policy in POLICIES}
"""The conditions of jobs that opt in to a policy of the companion, by condition type."""
