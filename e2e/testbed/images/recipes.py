"""The recipes of all images; layers that rarely change are below layers that often change.

Python packages are installed with this machine's pip, for the Python of the image.
"""

import importlib.util
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from e2e.testbed import gpus, paths
from e2e.testbed.images import KFEXT_IMAGE, PAUSE_IMAGE, TENSORFLOW_IMAGE, TRAINING_IMAGE, rootfs
from e2e.testbed.images.layers import Image, Layer, Recipe, files_below
from e2e.testbed.images.rootfs import BALLAST, SUITE, bootstrap, mirror, repair_torchrun
from e2e.testbed.preflight import Unavailable
from e2e.testbed.progress import Planned

# Debian's Python imports packages from this folder.
PACKAGES = f"usr/local/lib/python{rootfs.PYTHON}/dist-packages"
_SCRIPTS = "usr/local/bin"
# A wheel's name has the oldest C library that it works with; bookworm has 2.36. 2014 means 2.17.
_OLDEST_LIBC = ("2014", "_2_17", "_2_24", "_2_26", "_2_27", "_2_28", "_2_31", "_2_34")
_LATER_SUITE = "trixie"
_TENSORFLOW = "tensorflow-cpu>=2.16,<3"
# Headers and a compiler library: a quarter of the package, never used at run time.
_TENSORFLOW_BALLAST = ("tensorflow/include", "clang")
_JOBS = paths.REPOSITORY / "e2e" / "jobs"
_BUSYBOX = Path("/bin/busybox")
"""The program of Debian's package busybox-static, which the testbed also installs; see NOTICE."""
_KFEXT_INPUTS = ("kfext", "pyproject.toml", "README.md", "LICENSE")
_UNBUFFERED = {"PYTHONUNBUFFERED": "1"}  # so that `kubectl logs` shows each line at once


def install(root: Path, requirements: Sequence[str], *, dependencies: bool = True) -> None:
    """Install packages into `root`, the content of an image layer."""
    packages = root / PACKAGES
    abi = [f"--platform=manylinux{libc}_{platform.machine()}" for libc in _OLDEST_LIBC]
    _pip(
        "install", "--target", str(packages), f"--python-version={rootfs.PYTHON}", *abi,
        "--implementation=cp", "--only-binary=:all:",
        *([] if dependencies else ["--no-deps"]), *requirements,
    )  # fmt: skip
    _move_scripts(packages / "bin", root / _SCRIPTS)


def wheel(project: Path, folder: Path) -> Path:
    # Use an installed build backend: fetching it takes longer than the build.
    isolation = [] if importlib.util.find_spec("hatchling") is None else ["--no-build-isolation"]
    _pip("wheel", "--no-deps", *isolation, "--wheel-dir", str(folder), str(project))
    return next(folder.glob("*.whl"))


def _pip(command: str, *arguments: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", command, "-q", *arguments],
        check=False,
        capture_output=True,
        text=True,
    )
    if ended.returncode != 0:
        output = "\n".join(ended.stderr.splitlines()[-5:])
        raise Unavailable(f"`pip {command}` for an image failed:\n{output}")


def _move_scripts(installed: Path, target: Path) -> None:
    """Move the scripts of packages to a folder on PATH, and make the image's Python run them."""
    if not installed.exists():
        return
    target.mkdir(parents=True, exist_ok=True)
    for script in installed.iterdir():
        first, _, body = script.read_bytes().partition(b"\n")
        if first.startswith(b"#!") and b"python" in first:
            (target / script.name).write_bytes(b"#!/usr/bin/python3\n" + body)
            (target / script.name).chmod(0o755)
        script.unlink()
    installed.rmdir()


def all_images() -> list[Image]:
    """Return all images of the testbed; make missing images first.

    They are in the unpacking order of `containerd.template`: images that rarely change
    come first, and kfext is last, so that a change of kfext costs little.
    """
    if gpus.used():
        return [pause_image(), training_image(), kfext_image().base(), kfext_image()]
    images = [tensorflow_image(), training_image(), kfext_image()]
    return [pause_image(), *(image.base() for image in images), *images]


def pause_image() -> Image:
    """Make the image of the process that keeps a pod's network namespace; it only sleeps."""
    busybox = shutil.which("busybox")
    if busybox is None:
        raise Unavailable("busybox is missing: apt-get install busybox-static")
    program = Path(busybox)

    def fill(folder: Path) -> None:
        (folder / "bin").mkdir()
        shutil.copy2(program, folder / "bin" / "busybox")

    layer = Recipe("pause", [program.read_bytes()], fill).layer()
    # Not every build of busybox accepts `sleep infinity`.
    return Image(PAUSE_IMAGE, [layer], entrypoint=["/bin/busybox", "sleep", "2000000000"])


def training_image() -> Image:
    """Make the image of PyTorch jobs: Debian's PyTorch, and the training scripts in /jobs."""
    return Image(TRAINING_IMAGE, _layers(_training()), environment=_UNBUFFERED)


def later_pytorch() -> Layer:
    """Make a layer with PyTorch 2 from a later Debian; no image has PyTorch 2."""
    packages = ["python3-torch"]
    inputs = [_LATER_SUITE, mirror(_LATER_SUITE), *packages, *BALLAST]
    step = Planned("making a root file system with PyTorch 2", 240)
    fill = partial(bootstrap, packages=packages, suite=_LATER_SUITE)
    return Recipe("pytorch-2", inputs, fill, step).layer()


def tensorflow_image() -> Image:
    """Make the image of TensorFlow jobs: PyPI's TensorFlow, and the training scripts in /jobs."""
    return Image(TENSORFLOW_IMAGE, _layers(_tensorflow()), environment=_UNBUFFERED)


def kfext_image(name: str = KFEXT_IMAGE, *, source: Path = paths.REPOSITORY) -> Image:
    """Make kfext's image with the steps of the Dockerfile: dependencies, then the wheel.

    `source`: the folder with the code. The dependencies are from this repository's lock file.
    """
    return Image(
        name,
        _layers(_kfext(source)),
        entrypoint=["kfext"],
        user="65532:65532",
        environment=_UNBUFFERED,
    )


def missing_recipes() -> list[Recipe]:
    """Return the recipes of `all_images` without a layer in the cache, in the order of their use.

    It leaves out the pause image, because busybox may not be installed yet.
    """
    others = () if gpus.used() else _tensorflow()
    by_name = {recipe.name: recipe for recipe in (*others, *_training(), *_kfext())}
    return [recipe for recipe in by_name.values() if not recipe.is_made]


def _layers(recipes: Iterable[Recipe]) -> list[Layer]:
    return [recipe.layer() for recipe in recipes]


def _training() -> list[Recipe]:
    if gpus.used():
        return [_jobs()]
    packages = ["python3-torch", "ca-certificates"]

    def fill(folder: Path) -> None:
        bootstrap(folder, packages)
        repair_torchrun(folder)

    inputs = [SUITE, mirror(), *packages, *BALLAST, "repair_torchrun"]
    step = Planned("making a root file system with PyTorch", 180)
    return [Recipe("pytorch", inputs, fill, step), _jobs()]


def _tensorflow() -> list[Recipe]:
    def fill(folder: Path) -> None:
        install(folder, [_TENSORFLOW])
        for ballast in _TENSORFLOW_BALLAST:
            for path in folder.rglob(f"dist-packages/{ballast}"):
                shutil.rmtree(path)

    inputs = [_TENSORFLOW, *_TENSORFLOW_BALLAST]
    step = Planned("installing TensorFlow from PyPI", 60)
    return [_python(), Recipe("tensorflow", inputs, fill, step), _jobs()]


def _kfext(source: Path = paths.REPOSITORY) -> list[Recipe]:
    lock = paths.REPOSITORY / "requirements.lock"
    requirements = ["--require-hashes", f"--requirement={lock}"]

    def fill_busybox(folder: Path) -> None:
        target = folder / "usr/local/bin" / _BUSYBOX.name
        target.parent.mkdir(parents=True)
        shutil.copy2(_BUSYBOX, target)

    def fill_kfext(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as built:
            install(folder, [str(wheel(source, Path(built)))], dependencies=False)

    dependencies = Planned("installing kfext's dependencies for its image", 20)
    own = Planned("installing kfext for its image", 10)
    inputs = files_below(*(source / part for part in _KFEXT_INPUTS))
    return [
        _python(),
        Recipe("busybox", [str(_BUSYBOX)], fill_busybox),
        Recipe(
            "kfext-dependencies",
            [lock.read_bytes()],
            partial(install, requirements=requirements),
            dependencies,
        ),
        Recipe("kfext", inputs, fill_kfext, own),
    ]


def _python() -> Recipe:
    packages = ["python3", "ca-certificates"]
    inputs = [SUITE, mirror(), *packages, *BALLAST]
    step = Planned("making a root file system with Python", 40)
    return Recipe("python", inputs, partial(bootstrap, packages=packages), step)


def _jobs() -> Recipe:
    def fill(folder: Path) -> None:
        shutil.copytree(_JOBS, folder / "jobs", ignore=shutil.ignore_patterns("__pycache__"))

    return Recipe("jobs", files_below(_JOBS), fill)
