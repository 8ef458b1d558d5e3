"""How the container runtime is told which card a container gets: NVIDIA's device-list strategies.

They bear the names that NVIDIA's device plugin has for them in DEVICE_LIST_STRATEGY, and several
may be named, as there. A card has the CDI name that it has in the specification which that plugin
writes on its node, by UUID. Source: k8s-device-plugin, README.md and cmd/nvidia-device-plugin; the
form of the annotation: container-device-interface, pkg/cdi.
"""

from collections.abc import Set

from kfext.errors import SettingError
from kfext.gpu.device_plugin import Allocation

ENVVAR, CDI_ANNOTATIONS, CDI_CRI = "envvar", "cdi-annotations", "cdi-cri"
STRATEGIES = (ENVVAR, CDI_ANNOTATIONS, CDI_CRI)
DEFAULT: Set[str] = frozenset({ENVVAR})

_CDI_KIND = "k8s.device-plugin.nvidia.com/gpu"
_ANNOTATION = "cdi.k8s.io/kfext.gpu_"
"""CDI's prefix, the vendor and kind of the plugin, and before what tells its answers apart."""


def parse_strategies(written: str) -> Set[str]:
    """Return the strategies in a list with commas. Raises SettingError."""
    found = frozenset(one.strip() for one in written.split(","))
    if not found <= set(STRATEGIES):
        raise SettingError(
            field="DEVICE_LIST_STRATEGY",
            value=written,
            allowed=f"{', '.join(STRATEGIES)}, or some of them with commas",
            example=f"{CDI_ANNOTATIONS},{CDI_CRI}",
        )
    return found


def allocation_of(card: str, *, strategies: Set[str], name: str) -> Allocation:
    """Return what gives a container the card of that UUID. `name` tells it from all others."""
    device = f"{_CDI_KIND}={card}"
    return Allocation(
        env={"NVIDIA_VISIBLE_DEVICES": card} if ENVVAR in strategies else {},
        annotations={_ANNOTATION + name: device} if CDI_ANNOTATIONS in strategies else {},
        cdi=[device] if CDI_CRI in strategies else [],
    )
