"""The Pythons in which the jobs run."""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.testbed import paths
from e2e.testbed.images.layers import Layer, key
from e2e.testbed.images.lock import exclusively
from e2e.testbed.images.recipes import later_pytorch, tensorflow_image, training_image
from e2e.testbed.preflight import require_root

_ENTER = (
    'for folder in dev proc sys; do mount --rbind "/$folder" "$0/$folder" || exit; done; '
    'exec chroot "$0" python3 "$@"'
)
"""In mounts of its own, so that none is left behind; Python and PyTorch read these folders."""


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter. `command` runs it, with `root` as the root of its file system."""

    command: tuple[str, ...]
    root: Path = Path("/")

    def inside(self, path: Path) -> str:
        """Return what a path below `root` is called in the interpreter."""
        return f"/{path.relative_to(self.root)}"

    @property
    def temporary(self) -> Path:
        """Where folders can be made that the interpreter sees."""
        return self.root / "tmp"


def of_training_image() -> Python:
    """Return that of the image of PyTorch jobs, unpacked in the cache. Raises Unavailable."""
    require_root()
    return _unpacked(training_image().layers[0])


def of_later_pytorch() -> Python:
    """Return one that has PyTorch 2, unpacked in the cache. Raises Unavailable."""
    require_root()
    return _unpacked(later_pytorch())


def of_tensorflow_image() -> Python:
    """Return that of the image of TFJobs, unpacked in the cache. Raises Unavailable."""
    require_root()
    return _unpacked(*tensorflow_image().layers[:2])


def _unpacked(*layers: Layer) -> Python:
    stems = [layer.path.stem for layer in layers]
    # The path of a socket below it has 107 bytes at most.
    root = paths.cache() / "roots" / (stems[0] if len(stems) == 1 else key(stems))
    with exclusively(root.parent):
        if not root.is_dir():
            _unpack(layers, root)
    return Python(("unshare", "--mount", "sh", "-c", _ENTER, str(root)), root)


def _unpack(layers: Sequence[Layer], root: Path) -> None:
    unfinished = root.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    for layer in layers:
        subprocess.run(["tar", "-xf", str(layer.path), "-C", str(unfinished)], check=True)
    unfinished.rename(root)
