"""Asynchronous training with a parameter server, and workers that may start and end at any time.

    python3 /jobs/elastic_ps.py --steps 2000 --folder /checkpoints

The operator sets TF_CONFIG. The parameter server holds the weights, and counts the steps of all
workers together. A worker draws the number of the next step, which decides the samples of its
batch, computes the gradient, and sends it to the server; workers do not know each other. Worker 0
also initializes the server, from the newest checkpoint in the folder if any, saves checkpoints at
regular steps and when kfext requests it, and prints:

    resumed at step 100
    step 105/2000 loss=0.4321
    saved checkpoint at step 107
    kfext.checkpoint 1

It also appends these lines to the file `journal` in the folder.
"""

import argparse
import importlib
import json
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # reads the numbers of threads when it is imported

Array = np.ndarray[Any, Any]
Weights = list[Array]
INPUTS, CLASSES = 64, 10
_SEED = 1
_MINUTE, _POLL_SECONDS = 60.0, 0.5


class Server(Protocol):
    """The parameter server, as a worker sees it."""

    def filled(self) -> bool:
        """Return whether it has weights."""

    def fill(self, weights: Weights, step: int) -> None:
        """Store the weights as they were at a step."""

    def take(self) -> int:
        """Draw the number of a step that no worker has drawn."""

    def done(self) -> int:
        """Return the number of finished steps."""

    def wait(self, seconds: float) -> None:
        """Sleep for the time of a computation.

        Before, receive a message, as for its weights; afterwards, send a message of the same size.
        """

    def weights(self) -> Weights:
        """Return the current weights."""

    def apply(self, gradients: Weights) -> int:
        """Apply gradients to the weights; return the number of finished steps."""


class Model(Protocol):
    """The model on a worker."""

    def fresh(self) -> Weights:
        """Return untrained weights, which are always the same."""

    def gradients(self, weights: Weights, inputs: Array, targets: Array) -> tuple[float, Weights]:
        """Return the loss of a batch and its gradients."""


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


def tasks(written: list[str] | Mapping[str, str]) -> dict[int, str]:
    """Return the addresses of a type in TF_CONFIG, by index; dynamic workers may omit some."""
    pairs = enumerate(written) if isinstance(written, list) else written.items()
    return {int(index): address for index, address in pairs}


def batch_of(step: int, size: int) -> tuple[Array, Array]:
    """Return a step's inputs and their classes, which depend on the inputs except for noise."""
    fixed, chance = np.random.default_rng(_SEED), np.random.default_rng((_SEED, step))
    bend, spread = fixed.standard_normal((INPUTS, 32)), fixed.standard_normal((32, CLASSES))
    inputs = chance.standard_normal((size, INPUTS))
    scores = np.tanh(inputs @ bend) @ spread
    noise = 0.5 * chance.standard_normal(scores.shape)
    return inputs.astype(np.float32), (scores + noise).argmax(axis=1)


class Work:
    """The work of one worker. `first`: whether it is worker 0."""

    def __init__(
        self, server: Server, model: Model, *, folder: Path, first: bool, requests: Requests
    ) -> None:
        self._server, self._model, self._folder, self._first = server, model, folder, first
        self._requests = requests
        self._say = partial(_say, folder / "journal") if first else _say_nothing
        self._saved = self._answered = 0

    def begin(self) -> int:
        """Initialize the server, or wait until it is; return the number of finished steps."""
        if self._first and not self._server.filled():
            step = newest(self._folder)
            self._server.fill(self._load(step) if step else self._model.fresh(), step)
        while not self._server.filled():
            time.sleep(_POLL_SECONDS)
        self._saved = self._server.done()
        self._say(f"resumed at step {self._saved}")
        return self._saved

    def train(self, steps: int, *, batch: int, every: int, print_every: int, least: float) -> None:
        """Train until all workers together did `steps` steps, each of at least `least` seconds."""
        done, printed = self.begin(), 0
        while done < steps:
            self._requests.announce(self._say)
            self._server.wait(least)
            number = self._server.take()
            loss, gradients = self._model.gradients(
                self._server.weights(), *batch_of(number, batch)
            )
            done = self._server.apply(gradients)
            if done - printed >= print_every or done >= steps:
                self._say(f"step {min(done, steps)}/{steps} loss={loss:.6f}")
                printed = done
            asked = self._requests.latest()
            if self._first and (done - self._saved >= every or asked > self._answered):
                self._save(asked)
        loss, _ = self._model.gradients(self._server.weights(), *batch_of(0, 16 * batch))
        self._say(json.dumps({"steps": steps, "loss": round(loss, 6)}))

    def _save(self, asked: int) -> None:
        """Save so that a complete checkpoint exists even if the process is killed at any moment."""
        before = list(self._folder.glob("step-*"))
        # Steps that finish during this read are in some of the weights, and will be repeated.
        step, weights = self._server.done(), self._server.weights()
        unfinished, finished = self._folder / "unfinished", _checkpoint(self._folder, step)
        with unfinished.open("wb") as file:
            np.savez(file, *weights)
        unfinished.replace(finished)
        for path in before:
            if path != finished:
                path.unlink()
        self._saved = step
        self._say(f"saved checkpoint at step {step}")
        if asked > self._answered:
            self._say(f"kfext.checkpoint {asked}")
            self._answered = asked

    def _load(self, step: int) -> Weights:
        with np.load(_checkpoint(self._folder, step)) as saved:
            return [saved[f"arr_{number}"] for number in range(len(saved.files))]


def newest(folder: Path) -> int:
    """Return the step of the newest checkpoint, or 0 if there is no checkpoint."""
    return max((int(file.name.removeprefix("step-")) for file in folder.glob("step-*")), default=0)


def _checkpoint(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08}"


def _say(journal: Path, text: str) -> None:
    print(text, flush=True)
    with journal.open("a") as file:
        file.write(f"{text}\n")


def _say_nothing(text: str) -> None:
    """Do nothing; worker 0 prints."""


def main() -> None:
    arguments = _arguments()
    config = json.loads(os.environ["TF_CONFIG"])
    task, servers = config["task"], tasks(config["cluster"]["ps"])
    framework = importlib.import_module("elastic_tf")
    if task["type"] == "ps":
        framework.serve(servers, task["index"])
        return
    arguments.folder.mkdir(parents=True, exist_ok=True)
    model = framework.Model(INPUTS, CLASSES)
    server = framework.Server(
        servers[0], like=model.fresh(), rate=arguments.rate, megabytes=arguments.message
    )
    first = task["index"] == 0
    work = Work(server, model, folder=arguments.folder, first=first, requests=Requests())
    work.train(
        arguments.steps,
        batch=arguments.batch,
        every=arguments.every,
        print_every=arguments.print_every,
        least=arguments.least,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000, help="steps of all workers together")
    parser.add_argument("--batch", type=int, default=64, help="batch size of each worker")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate")
    folder = Path(os.environ.get("CHECKPOINTS", "/checkpoints"))
    parser.add_argument("--folder", type=Path, default=folder, help="folder of checkpoints")
    parser.add_argument("--every", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--print-every", type=int, default=5, metavar="STEPS")
    parser.add_argument(
        "--least", type=float, default=0.0, metavar="SECONDS", help="minimum time of a step"
    )
    parser.add_argument(
        "--message", type=float, default=0.0, metavar="MB", help="size of the message in each step"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
