"""The image's own PYTHONPATH, which a variable of the pod replaces instead of extending."""

from __future__ import annotations

import os
import sys

VARIABLE = "PYTHONPATH"
_LONGEST = 65536


def restore(recorded: str) -> None:
    """Put the paths in a file after the hook's path, for this process and its children.

    The file is written before the job's containers start; without it nothing is restored.
    """
    try:
        with open(recorded, encoding="utf-8", errors="surrogateescape") as file:
            paths = file.read(_LONGEST).strip("\n")
    except OSError:
        return
    present = os.environ.get(VARIABLE, "")
    missing = [path for path in paths.split(os.pathsep) if path not in present.split(os.pathsep)]
    if not paths or not missing:
        return  # the parent process has restored it
    os.environ[VARIABLE] = os.pathsep.join([present, *missing] if present else missing)
    last = _last_of(present)
    sys.path[last:last] = [path for path in missing if path not in sys.path]


def _last_of(present: str) -> int:
    """Return where in `sys.path` the paths of PYTHONPATH end."""
    given = {os.path.abspath(path) for path in present.split(os.pathsep) if path}
    places = [place for place, path in enumerate(sys.path) if os.path.abspath(path) in given]
    return max(places, default=-1) + 1
