"""The parameters of the policy that scales workers, and where an administrator sets them."""

from collections.abc import Mapping

from kfext.core.settings.table import Settings
from kfext.model.policy import Mode, PolicyChoice

NAME = "scale"
"""The policy's key in `spec.companion` of a TrainingPolicy."""
DEFAULTS: Mapping[str, float] = {
    "wait": 30.0,
    "idle": 60.0,
    "rest": 60.0,
    "ceiling": 0.97,
    "acrossNamespaces": 1.0,
}
"""`wait`: seconds that a job waits for room before others are shrunk. `idle`: seconds without a
change of any size before a job grows. `rest`: seconds between two changes of one job. `ceiling`:
the share of the cluster's CPU up to which jobs grow beyond what they asked for. `acrossNamespaces`:
0 if a job is never shrunk for one of another namespace."""


def choice_of(settings: Settings) -> PolicyChoice:
    """Return how the policy is to run for a job; a job opts in by the setting `elastic`."""
    if not settings.managed or settings.elastic is None:
        return PolicyChoice(mode=Mode.OFF)
    return settings.companion.get(NAME, PolicyChoice())


def parameter(settings: Settings, name: str) -> float:
    """Return a parameter as it holds for a job."""
    chosen = settings.companion.get(NAME, PolicyChoice()).parameters
    return chosen.get(name, DEFAULTS[name])
