"""The requirements of a testbed and of its real nodes, and the remedies if they are not met."""

import os
import platform


class Unavailable(Exception):  # noqa: N818 - it names a state of the machine, not a fault
    """A requirement is missing on this machine; the message names it and the remedy."""


def require_linux() -> None:
    """Raise unless this is Linux, on which everything here runs."""
    if platform.system() != "Linux":
        raise Unavailable(
            f"the testbed runs on Linux only, this is {platform.system()}: use a Linux machine, "
            "a virtual machine or WSL"
        )


def require_root() -> None:
    """Raise without permission to make network namespaces, cgroups and mounts."""
    if os.geteuid() != 0:
        raise Unavailable(
            "real nodes need root (network namespaces, cgroups, mounts): run with sudo; "
            "the control plane and fake nodes do not"
        )
