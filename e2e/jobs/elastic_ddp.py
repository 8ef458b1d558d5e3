"""Elastic data-parallel training with PyTorch: its loss does not depend on its number of workers.

    torchrun /jobs/elastic_ddp.py --steps 2000 --folder /checkpoints

The samples of a step depend on the step alone. Each rank trains on its slice of them, and with any
number of ranks the gradient is the mean over all samples, up to rounding. The training resumes from
the newest checkpoint in the folder, and saves one at regular steps and when kfext requests it.

The output of rank 0, whichever pod it is in, is also appended to the file `journal` of the folder:

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
        """Return rank 0's number on every rank."""

    def wait(self, seconds: float) -> None:
        """Sleep for the time of a computation, and all-reduce a message of its gradient's size."""

    def step(self, own: Array, batch: int, asked: int) -> tuple[float, int]:
        """Train on this rank's samples of a batch.

        Return the loss of the batch and the number of rank 0's last checkpoint request.
        """

    def loss(self) -> float:
        """Return the mean loss of all samples."""

    def save(self, path: Path) -> None:
        """Write the complete state of the training."""

    def load(self, path: Path) -> None:
        """Restore a saved state."""


class Requests:
    """Checkpoint requests of kfext, which writes the number of the last into a file."""

    def __init__(self, path: Path = Path("/etc/kfext/control")) -> None:
        self._path, self._told = path, float("-inf")

    def asked(self) -> int:
        """Return the number of the last request, 0 before the first."""
        try:
            text = self._path.read_text().strip()
        except OSError:
            return 0
        return int(text) if text.isdecimal() else 0

    def announce(self, say: Callable[[str], None]) -> None:
        """Print once a minute that requests are answered."""
        if time.monotonic() - self._told >= _MINUTE:
            say("kfext.checkpoint 0")
            self._told = time.monotonic()


class NoRequests(Requests):
    """The checkpoint requests of a program that does not know kfext: none."""

    def asked(self) -> int:
        return 0

    def announce(self, say: Callable[[str], None]) -> None:
        """Do nothing."""


def samples(step: int, batch: int) -> Array:
    """Return the samples of a step, counted from 1; no sample repeats before all were used."""
    places = np.arange((step - 1) * batch, step * batch)
    rounds = places // SAMPLES
    parts = [
        _order(int(number))[places[rounds == number] % SAMPLES] for number in np.unique(rounds)
    ]
    return np.concatenate(parts)


@lru_cache(maxsize=4)
def _order(number: int) -> Array:
    return np.random.default_rng((_SEED, number)).permutation(SAMPLES)


def share(batch: int, *, rank: int, world: int) -> slice:
    """Return a rank's part of a batch; the parts differ by one sample at most."""
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
    """Train up to `steps`. `least`: the least seconds of a batch on a single worker."""
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
        loss, asked = training.step(samples(step, batch)[part], batch, requests.asked())
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
    """Return the step of the newest checkpoint, 0 without one."""
    return max((int(file.name.removeprefix("step-")) for file in folder.glob("step-*")), default=0)


def save(training: Training, folder: Path, step: int) -> None:
    """Save such that a process killed at any moment leaves a whole checkpoint."""
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
    parser.add_argument("--batch", type=int, default=256, help="of all workers together")
    parser.add_argument("--rate", type=float, default=0.005, help="of learning")
    folder = Path(os.environ.get("CHECKPOINTS", "/checkpoints"))
    parser.add_argument("--folder", type=Path, default=folder, help="of checkpoints")
    parser.add_argument("--every", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--print-every", type=int, default=5, metavar="STEPS")
    parser.add_argument(
        "--least", type=float, default=0.0, metavar="SECONDS", help="least time of a batch alone"
    )
    parser.add_argument(
        "--message", type=float, default=0.0, metavar="MB", help="summed over all ranks in a step"
    )
    parser.add_argument(
        "--deaf", action="store_true", help="ignore the checkpoint requests of kfext"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
