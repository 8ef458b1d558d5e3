"""The cards on which sharing is measured (a GPU, or simulated by the CPU), and their Pythons."""

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Protocol

from e2e.gpu.cpu_card import report
from e2e.harness.wait import until
from e2e.testbed import paths
from e2e.testbed.images.layers import Layer, key
from e2e.testbed.images.recipes import later_pytorch, tensorflow_image, training_image
from e2e.testbed.preflight import Unavailable, require_root

_ENTER = (
    'for folder in dev proc sys; do mount --rbind "/$folder" "$0/$folder" || exit; done; '
    'exec chroot "$0" python3 "$@"'
)
"""Mounts in a namespace of their own, so that none remains; Python and PyTorch read the folders."""
Busy = Callable[[], float]
"""Returns the busy seconds of the card since it was opened."""
_SAMPLE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter. `command` runs it, with `root` as the root of its file system."""

    command: tuple[str, ...]
    root: Path = Path("/")

    def inside(self, path: Path) -> str:
        """Return a path below `root` as the interpreter sees it."""
        return f"/{path.relative_to(self.root)}"

    @property
    def temporary(self) -> Path:
        """A folder for temporary folders that the interpreter can see."""
        return self.root / "tmp"


def of_training_image() -> Python:
    """Return the Python of the image of PyTorch jobs, unpacked in the cache. Raises Unavailable."""
    require_root()
    return _unpacked(training_image().layers[0])


def of_later_pytorch() -> Python:
    """Return a Python with PyTorch 2, unpacked in the cache. Raises Unavailable."""
    require_root()
    return _unpacked(later_pytorch())


def of_tensorflow_image() -> Python:
    """Return the Python of the image of TFJobs, unpacked in the cache. Raises Unavailable."""
    require_root()
    return _unpacked(*tensorflow_image().layers[:2])


def _unpacked(*layers: Layer) -> Python:
    stems = [layer.path.stem for layer in layers]
    # The path of a socket below it is limited to 107 bytes.
    root = paths.cache() / "roots" / (stems[0] if len(stems) == 1 else key(stems))
    with paths.exclusively(root.parent):
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


class Card(Protocol):
    """A card."""

    simulated: bool

    @property
    def title(self) -> str:
        """Its name in tables."""

    @property
    def model(self) -> tuple[str, ...]:
        """The arguments of the training on it."""

    @property
    def traced(self) -> str:
        """The card that a job's hook loads to trace its gate, see `gate_trace.py`."""

    def python(self) -> Python:
        """Return the Python with PyTorch for it. Raises Unavailable."""

    def opened(self, folder: Path) -> AbstractContextManager[Busy]:
        """Prepare the card for jobs, which see `folder`."""

    def idle(self, folder: Path) -> Mapping[str, float]:
        """Return the idle seconds by the jobs before and after, see `report`; empty if unknown."""

    def environment(self, job: str, folder: str) -> Mapping[str, str]:
        """Return the variables for the job to find the card; `folder`: as the job sees it."""

    def driver(self, *, hooked: bool) -> tuple[str, ...]:
        """Return the arguments of Python before the script of a job."""


class CpuCard:
    """The card of `e2e/gpu/cpu_card.py`, with kernels of 2 ms.

    The CPU needs 0.5 ms to launch a layer, so a layer must last much longer, as on a GPU.
    """

    simulated = True
    title = "CPU card"
    model = ("--device", "cpu", "--layers", "40")
    traced = "gate_trace:on_cpu_card"

    def python(self) -> Python:
        """Return the Python of the image of training jobs."""
        return of_training_image()

    @contextmanager
    def opened(self, folder: Path) -> Iterator[Busy]:
        """Simulate the card in a process."""
        path = folder / "card"
        command = [sys.executable, "-m", "e2e.gpu.cpu_card", str(path)]
        with subprocess.Popen(command, cwd=paths.REPOSITORY) as card:
            try:
                until(path.exists, what="the card exists")
                yield lambda: _busy(path)
            finally:
                card.kill()

    def idle(self, folder: Path) -> Mapping[str, float]:
        """Return what the card has counted."""
        idle: dict[str, float] = report(str(folder / "card"))["idle"]
        return idle

    def environment(self, job: str, folder: str) -> Mapping[str, str]:
        """Return the variables of its driver, which the hook loads."""
        return {
            "NVIDIA_VISIBLE_DEVICES": "card",
            "CPU_CARD_FOLDER": folder,
            "CPU_CARD_NAME": job,
            "CPU_CARD_KERNEL_MS": "2",
            "KFEXT_GPU_DEVICE": "cpu_card:Card",
        }

    def driver(self, *, hooked: bool) -> tuple[str, ...]:
        """Load the driver where no hook does so."""
        return () if hooked else ("-m", "cpu_card")


def _busy(path: Path) -> float:
    return float(sum(client["seconds"] for client in report(str(path))["clients"]))


class Cuda:
    """The first GPU of this machine, by NVML."""

    simulated = False
    traced = "gate_trace:on_cuda"
    # 180 products of matrices a step; each takes a GPU of 2024 about a quarter of a ms.
    model = ("--device", "cuda", "--layers", "60", "--width", "2048", "--batch", "8192")

    def __init__(self) -> None:
        try:
            self._nvml = import_module("pynvml")
            self._nvml.nvmlInit()
            self._handle = self._nvml.nvmlDeviceGetHandleByIndex(0)
            name = self._nvml.nvmlDeviceGetName(self._handle)
        except ImportError as error:
            raise Unavailable(
                f"NVML cannot be called: pip install nvidia-ml-py ({error})"
            ) from error
        except self._nvml.NVMLError as error:
            raise Unavailable(
                f"this machine has no NVIDIA GPU with a driver ({error}); --card cpu simulates one"
            ) from error
        self.title = name.decode() if isinstance(name, bytes) else name

    def python(self) -> Python:
        """Return this Python."""
        check = "import sys, torch; sys.exit(not torch.cuda.is_available())"
        if subprocess.run([sys.executable, "-c", check], check=False).returncode:
            raise Unavailable(f"{sys.executable} has no PyTorch that finds the GPU")
        return Python((sys.executable,))

    @contextmanager
    def opened(self, folder: Path) -> Iterator[Busy]:
        """Ask the driver ten times a second for the utilisation of the GPU."""
        use = _Use(lambda: self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu / 100)
        try:
            yield lambda: use.seconds
        finally:
            use.stop()

    def idle(self, folder: Path) -> Mapping[str, float]:
        """Return nothing: a GPU does not report it."""
        return {}

    def environment(self, job: str, folder: str) -> Mapping[str, str]:
        """Return the variables that select the GPU, in NVML's order."""
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0"}

    def driver(self, *, hooked: bool) -> tuple[str, ...]:
        """Return no arguments: PyTorch loads the driver."""
        return ()


class _Use:
    """Sums up the busy time of a card in `seconds`."""

    def __init__(self, part: Callable[[], float]) -> None:
        self._part = part
        self._ended = threading.Event()
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        before = monotonic()
        while not self._ended.wait(_SAMPLE_SECONDS):
            part, now = self._part(), monotonic()
            self.seconds += part * (now - before)
            before = now

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()


CARDS: Mapping[str, Callable[[], Card]] = {"cpu": CpuCard, "cuda": Cuda}
