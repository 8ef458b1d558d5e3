"""Finds and undoes mounts below a folder."""

import re
import subprocess
from pathlib import Path


def unmount_below(folder: Path) -> None:
    """Unmount everything at or below `folder`, deepest first; there may be no mounts."""
    for point in mount_points(Path("/proc/self/mountinfo").read_text(), folder.resolve()):
        # The last process of a container may use a mount for a moment; then detach the mount.
        if subprocess.run(["umount", point], check=False, capture_output=True).returncode != 0:
            subprocess.run(["umount", "--lazy", point], check=True, capture_output=True)


def mount_points(mountinfo: str, folder: Path) -> list[str]:
    """Return the mount points at or below `folder`, in the order for unmounting.

    Several mounts may have the same mount point; the newest is on top, and comes first.
    """
    points = [_decoded(line.split()[4]) for line in mountinfo.splitlines()]
    newest_first = [point for point in reversed(points) if Path(point).is_relative_to(folder)]
    return sorted(newest_first, key=lambda point: -point.count("/"))


def _decoded(field: str) -> str:
    """Decode the kernel's escapes: a space in a path is written as backslash 040."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
