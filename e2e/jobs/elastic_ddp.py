"""Elastic data-parallel training with PyTorch: its loss does not depend on its number of workers.

    torchrun /jobs/elastic_ddp.py --steps 2000 --folder /checkpoints

The samples of a step depend only on the step. Each rank trains on its slice of them; with any
number of ranks the gradient is the mean over all samples, up to rounding. The training resumes from
the newest checkpoint in the folder, and saves at regular steps and when kfext requests it.

Rank 0, whichever pod it is in, also appends its output to the file `journal` in the folder:

    resumed at step 100 with world 4
    step 105/2000 loss=0.4321
    saved checkpoint at step 107
    kfext.checkpoint 1
"""

import argparse
import importlib
import json
import os
import socket
import time
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # reads the numbers of threads when it is imported

Array = np.ndarray[Any, Any]
SAMPLES, INPUTS, CLASSES = 4096, 64, 10
_SEED = 1
_MINUTE = 60.0


class Training(Protocol):
    """One rank of a team; all ranks call the same methods in the same order."""

    rank: int
    world: int

    def agreed(self, step: int) -> int:
        """Return the `step` of rank 0, on every rank."""

    def wait(self, seconds: float) -> None:
        """Sleep for the time of a computation, and all-reduce a message, as for its gradients."""

    def step(self, own: Array, batch: int, asked: int) -> tuple[float, int]:
        """Train on this rank's samples `own` of a batch; `asked`: its latest checkpoint request.

        Returns the loss of the whole batch, and the latest checkpoint request of rank 0.
        """

    def loss(self) -> float:
        """Return the mean loss of all samples."""

    def save(self, path: Path) -> None:
        """Write the complete state of the training."""

    def load(self, path: Path) -> None:
        """Restore a saved state."""


class Requests:
    """Reads kfext's checkpoint requests: kfext writes the number of the latest into a file."""

    def __init__(self, path: Path = Path("/etc/kfext/control")) -> None:
        self._path, self._announced_at = path, float("-inf")

    def latest(self) -> int:
        """Return the number of the latest request; 0 before the first."""
        try:
            text = self._path.read_text().strip()
        except OSError:
            return 0
        return int(text) if text.isdecimal() else 0

    def announce(self, say: Callable[[str], None]) -> None:
        """Print at most once a minute that this program answers requests."""
        if time.monotonic() - self._announced_at >= _MINUTE:
            say("kfext.checkpoint 0")
            self._announced_at = time.monotonic()


class NoRequests(Requests):
    """Stands in for `Requests` in a program that ignores kfext."""

    def latest(self) -> int:
        return 0

    def announce(self, say: Callable[[str], None]) -> None:
        """Do nothing."""


def samples(step: int, batch: int) -> Array:
    """Return the samples of a step, counted from 1; all samples are used before one repeats."""
    positions = np.arange((step - 1) * batch, step * batch)
    rounds = positions // SAMPLES
    parts = [
        _order(int(number))[positions[rounds == number] % SAMPLES] for number in np.unique(rounds)
    ]
    return np.concatenate(parts)


@lru_cache(maxsize=4)
def _order(number: int) -> Array:
    return np.random.default_rng((_SEED, number)).permutation(SAMPLES)


def share(batch: int, *, rank: int, world: int) -> slice:
    """Return a rank's slice of a batch; the slices differ by at most one sample."""
    return slice(rank * batch // world, (rank + 1) * batch // world)


def data() -> tuple[Array, Array]:
    """Return all inputs and their classes, which depend on the inputs except for some noise."""
    chance = np.random.default_rng(_SEED)
    inputs = chance.standard_normal((SAMPLES, INPUTS))
    bend, spread = chance.standard_normal((INPUTS, 32)), chance.standard_normal((32, CLASSES))
    scores = np.tanh(inputs @ bend) @ spread
    noise = 0.5 * chance.standard_normal(scores.shape)
    return inputs.astype(np.float32), (scores + noise).argmax(axis=1)


def train(
    training: Training,
    *,
    steps: int,
    batch: int,
    folder: Path,
    requests: Requests,
    every: int = 100,
    print_every: int = 5,
    least: float = 0.0,
) -> None:
    """Train until step `steps`. `least`: the minimum seconds of a step on a single worker."""
    say = partial(_say, folder / "journal") if training.rank == 0 else _say_nothing
    done = training.agreed(newest(folder))
    if done:
        training.load(_checkpoint(folder, done))
    say(f"resumed at step {done} with world {training.world}")
    answered = 0
    part = share(batch, rank=training.rank, world=training.world)
    for step in range(done + 1, steps + 1):
        requests.announce(say)
        training.wait(least * (part.stop - part.start) / batch)
        loss, asked = training.step(samples(step, batch)[part], batch, requests.latest())
        if step % print_every == 0 or step == steps:
            say(f"step {step}/{steps} loss={loss:.6f}")
        if step % every == 0 or asked > answered:
            if training.rank == 0:
                save(training, folder, step)
            say(f"saved checkpoint at step {step}")
        if asked > answered:
            say(f"kfext.checkpoint {asked}")
            answered = asked
    if training.rank == 0:
        say(json.dumps({"steps": steps, "loss": round(training.loss(), 6)}))


def newest(folder: Path) -> int:
    """Return the step of the newest checkpoint, or 0 if there is no checkpoint."""
    return max((int(file.name.removeprefix("step-")) for file in folder.glob("step-*")), default=0)


def save(training: Training, folder: Path, step: int) -> None:
    """Save so that a complete checkpoint exists even if the process is killed at any moment."""
    before = list(folder.glob("step-*"))
    unfinished = folder / f"unfinished-{socket.gethostname()}"
    training.save(unfinished)
    unfinished.replace(_checkpoint(folder, step))
    for path in before:
        if path != _checkpoint(folder, step):
            path.unlink(missing_ok=True)


def _checkpoint(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08}"


def _say(journal: Path, text: str) -> None:
    print(text, flush=True)
    with journal.open("a") as file:
        file.write(f"{text}\n")


def _say_nothing(text: str) -> None:
    """Do nothing; rank 0 prints."""


def main() -> None:
    arguments = _arguments()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    training: Training = importlib.import_module("elastic_torch").make(
        *data(), arguments.rate, megabytes=arguments.message
    )
    train(
        training,
        steps=arguments.steps,
        batch=arguments.batch,
        folder=arguments.folder,
        requests=NoRequests() if arguments.deaf else Requests(),
        every=arguments.every,
        print_every=arguments.print_every,
        least=arguments.least,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=256, help="batch size of all workers together")
    parser.add_argument("--rate", type=float, default=0.005, help="learning rate")
    folder = Path(os.environ.get("CHECKPOINTS", "/checkpoints"))
    parser.add_argument("--folder", type=Path, default=folder, help="folder of checkpoints")
    parser.add_argument("--every", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--print-every", type=int, default=5, metavar="STEPS")
    parser.add_argument(
        "--least", type=float, default=0.0, metavar="SECONDS", help="minimum time of a step alone"
    )
    parser.add_argument(
        "--message", type=float, default=0.0, metavar="MB", help="message to all-reduce in a step"
    )
    parser.add_argument(
        "--deaf", action="store_true", help="ignore the checkpoint requests of kfext"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
