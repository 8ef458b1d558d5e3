"""Trains a model on generated data until it converges, in one process and one thread.

    python3 /jobs/converge.py --framework torch --model cnn --steps 400 --rate 0.003

prints `step=1/400 loss=2.3026` for each step, and its totals as JSON at the end. The loss falls by
a large factor and then stays level; `--rate` decides how soon. The batch of a step depends only on
the step, so that a run resumed from a checkpoint sees the same data as an unbroken run.

Start-up takes 0.7 to 1.0 CPU seconds with PyTorch 1.13 and 1.7 to 2.5 with TensorFlow 2.21; a step
takes 29 ms (PyTorch cnn, batch 512), 47 (gru, 256), 39 (vae, 512), 37 (TensorFlow cnn, 1536) and
32 (vae, 8192). Measured on a core of an AMD EPYC, shared by three to five such processes.
"""

import argparse
import importlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # reads the numbers of threads when it is imported

Array = np.ndarray[Any, Any]
Batch = tuple[Array, Array]
CLASSES, SIDE, LENGTH, WIDTH = 10, 16, 24, 64
"""The number of classes, pixels per side of an image, points of a wave, numbers in a vector."""
_LATENT = 3
_SEED = 1


class Training(Protocol):
    """A model with its optimizer, in some framework."""

    def step(self, inputs: Array, targets: Array) -> float:
        """Train on one batch; return its loss."""

    def save(self, path: Path) -> None:
        """Write the complete state of the training."""

    def load(self, path: Path) -> None:
        """Restore a saved state."""


def images(step: int, batch: int) -> Batch:
    """Return noisy images, with one shape for each class, and their classes."""
    shapes = np.random.default_rng(_SEED).standard_normal((CLASSES, 1, SIDE // 2, SIDE // 2))
    shapes = shapes.repeat(2, axis=2).repeat(2, axis=3)
    chance = np.random.default_rng((_SEED, step))
    labels = chance.integers(CLASSES, size=batch)
    noise = chance.standard_normal((batch, 1, SIDE, SIDE))
    return (shapes[labels] + noise).astype(np.float32), labels


def waves(step: int, batch: int) -> Batch:
    """Return sine waves with random phases and frequencies, and the point after each point."""
    chance = np.random.default_rng((_SEED, step))
    phase, speed = chance.uniform(0, 2 * np.pi, (batch, 1)), chance.uniform(0.2, 0.8, (batch, 1))
    points = np.sin(phase + speed * np.arange(LENGTH + 1))
    points = points[:, :, None].astype(np.float32)
    return points[:, :-1], points[:, 1:]


def vectors(step: int, batch: int) -> Batch:
    """Return vectors on a curved surface of _LATENT dimensions, as inputs and as targets."""
    chance = np.random.default_rng(_SEED)
    bend = chance.standard_normal((_LATENT, 32))
    spread = chance.standard_normal((32, WIDTH)) / np.sqrt(32)
    latent = np.random.default_rng((_SEED, step)).standard_normal((batch, _LATENT))
    points = (np.tanh(latent @ bend) @ spread).astype(np.float32)
    return points, points


MODELS: dict[str, Callable[[int, int], Batch]] = {"cnn": images, "gru": waves, "vae": vectors}
"""The data of each model."""
FRAMEWORKS = {"torch": ("cnn", "gru", "vae"), "tf": ("cnn", "vae")}
"""The models of each framework, in `converge_torch.py` and `converge_tf.py`."""


def main() -> None:
    arguments = parse(None)
    module = importlib.import_module(f"converge_{arguments.framework}")
    training: Training = module.make(arguments.model, arguments.rate)
    batch_of = MODELS[arguments.model]
    totals = train(
        training,
        lambda step: batch_of(step, arguments.batch),
        steps=arguments.steps,
        checkpoints=arguments.checkpoint,
        every=arguments.every,
    )
    print(json.dumps(totals), flush=True)


def train(
    training: Training,
    feed: Callable[[int], Batch],
    *,
    steps: int,
    checkpoints: Path | None = None,
    every: int = 50,
) -> dict[str, float]:
    """Train until step `steps`, from the newest checkpoint in the folder `checkpoints` if any.

    Returns the totals, with the CPU seconds before the first step and since then.
    """
    done = _resume(training, checkpoints) if checkpoints else 0
    began = time.process_time()
    loss = float("nan")
    for step in range(done + 1, steps + 1):
        loss = training.step(*feed(step))
        print(f"step={step}/{steps} loss={loss:.4f}", flush=True)
        if checkpoints and step % every == 0:
            _checkpoint(training, checkpoints, step)
    return {
        "steps": steps - done,
        "startup_cpu_seconds": round(began, 3),
        "cpu_seconds": round(time.process_time() - began, 3),
        "loss": round(loss, 4),
    }


def _resume(training: Training, folder: Path) -> int:
    """Load the newest checkpoint; return its step, or 0 if there is no checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    checkpoints = sorted(folder.glob("step-*"))
    if not checkpoints:
        return 0
    training.load(checkpoints[-1])
    return int(checkpoints[-1].name.removeprefix("step-"))


def _checkpoint(training: Training, folder: Path, step: int) -> None:
    """Save so that a complete checkpoint exists even if the process is killed at any moment."""
    before = list(folder.glob("step-*"))
    unfinished = folder / "unfinished"
    training.save(unfinished)
    unfinished.replace(folder / f"step-{step:08}")
    for path in before:
        path.unlink()


def parse(words: list[str] | None) -> argparse.Namespace:
    """Return the arguments; exit with an error if the framework lacks the model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", choices=FRAMEWORKS, default="torch")
    parser.add_argument("--model", choices=MODELS, default="cnn")
    parser.add_argument("--steps", type=_positive, default=400)
    parser.add_argument("--batch", type=_positive, default=64)
    parser.add_argument("--rate", type=float, default=0.003, help="of learning")
    parser.add_argument("--checkpoint", type=Path, metavar="FOLDER", help="default: none")
    parser.add_argument("--every", type=_positive, default=50, help="steps between checkpoints")
    arguments = parser.parse_args(words)
    if arguments.model not in FRAMEWORKS[arguments.framework]:
        allowed = ", ".join(FRAMEWORKS[arguments.framework])
        parser.error(f"--model: {arguments.framework} has {allowed}, not {arguments.model}")
    return arguments


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


if __name__ == "__main__":
    main()
