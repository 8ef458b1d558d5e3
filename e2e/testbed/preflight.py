"""What this machine lacks for a testbed, or for its real nodes, and what to do about it."""

import os
import platform


class Unavailable(Exception):  # noqa: N818 - it names a state of the machine, not a fault
    """Something this machine lacks; the message says what, and what to do about it."""


def require_linux() -> None:
    """Raise unless this is Linux, on which everything here runs."""
    if platform.system() != "Linux":
        raise Unavailable(
            f"the testbed runs on Linux only, this is {platform.system()}: use a Linux machine, "
            "a virtual machine or WSL"
        )


def require_root() -> None:
    """Raise unless we may make network namespaces, cgroups and mounts."""
    if os.geteuid() != 0:
        raise Unavailable(
            "real nodes need root (network namespaces, cgroups, mounts): run with sudo; "
            "the control plane and fake nodes do not"
        )
