"""What happens at the start of each Python process of a job that shares a GPU.

As little as possible, and without modules of the standard library that a program may replace: the
program's folder is on `sys.path` only later, and an earlier import would hide the program's module.
"""

from __future__ import annotations

import os
from importlib import import_module

from .importing import when_imported
from .pythonpath import restore

TYPE_CHECKING = False  # `typing` is not imported here, see above
if TYPE_CHECKING:
    from types import ModuleType

PRIORITY, SOCKET = "KFEXT_GPU_PRIORITY", "KFEXT_GPU_SOCKET"
RECORDED = "KFEXT_PYTHONPATH"
"""Environment variables: `high` or `low`; the agent's socket; a file with the image's own path."""
DEVICE = "KFEXT_GPU_DEVICE"
"""MODULE:CLASS of a simulated card in tests; the class takes the module torch."""
HIGH = "high"
_KERAS = ("keras", "tf_keras", "tensorflow")


def start() -> None:
    """Install hooks when the process imports a framework. Raises no error that can be foreseen."""
    restore(os.environ.get(RECORDED, ""))
    if not os.environ.get(SOCKET):
        return
    frameworks = ("torch", *(_KERAS if os.environ.get(PRIORITY) == HIGH else ()))
    when_imported(frameworks, _hook, _failed)


def _hook(name: str, framework: ModuleType) -> None:
    _hooks().install(name, framework)


def _failed() -> None:
    _hooks().failed()


def _hooks() -> ModuleType:
    """Return the module that is imported only after a framework, which needs most of it anyway."""
    return import_module(".frameworks", __package__)
