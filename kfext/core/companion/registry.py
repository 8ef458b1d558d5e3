"""All policies, one line each."""

from kfext.core.companion.policy import Policy
from kfext.core.companion.resize import RESIZE
from kfext.core.companion.shift import SHIFT

POLICIES: tuple[Policy, ...] = (RESIZE, SHIFT)
