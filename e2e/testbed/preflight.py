"""The requirements of a testbed and of its real nodes, and the remedies if they are not met."""

import os
import platform


class Unavailable(Exception):  # noqa: N818 - it names a state of the machine, not a fault
    """A requirement that this machine does not meet; the message names it and the remedy."""


def require_linux() -> None:
    """Raise Unavailable unless this is Linux."""
    if platform.system() != "Linux":
        raise Unavailable(
            f"the testbed runs on Linux only, this is {platform.system()}: use a Linux machine, "
            "a virtual machine or WSL"
        )


def require_root() -> None:
    """Raise Unavailable unless this is root, who may make network namespaces and mounts."""
    if os.geteuid() != 0:
        raise Unavailable(
            "real nodes need root (network namespaces, cgroups, mounts): run with sudo; "
            "the control plane and fake nodes do not"
        )
