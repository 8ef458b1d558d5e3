"""All policies, one line each."""

from kfext.core.companion.policy import Policy
from kfext.core.companion.resize import RESIZE

POLICIES: tuple[Policy, ...] = (RESIZE,)
