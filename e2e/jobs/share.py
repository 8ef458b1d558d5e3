"""A training that needs a card for a part of each step, and loads data for the rest.

    python3 share.py --device cuda --layers 60 --width 2048 --batch 8192 --load-ms 20 --go FILE

With everything in place it prints `ready`, and begins once the file `--go` exists. It ends after
`--steps`, or when it is killed. Each step is a line with the time at which it ended and with its
loss. The bits of the loss are the same in each run: the time that data takes to load changes only
times.

The default model is one for a CPU, and for the card that it plays.
"""

import argparse
import os
import random
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else cuBLAS is not deterministic

import torch
from torch import nn

_LOOK_SECONDS = 0.02
_VARIANTS = 7
"""Batches differ by a factor of that many."""
_CHANCE = random.Random(1)
"""Draws the same times to load data in each run."""
LOADS: dict[str, Callable[[float], float]] = {
    "steady": lambda mean: mean,
    "spread": lambda mean: max(mean * _CHANCE.gauss(1.0, 0.2), 0.0),
    "bursts": lambda mean: _CHANCE.expovariate(1.0 / mean) if mean else 0.0,
}
"""The time that data takes to load: always the same; spread by 20 %; exponential, as between bursts
of inference."""


class Block(nn.Module):
    """A layer beside which its input passes, so that a deep model learns too."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the sum of both."""
        return inputs + 0.1 * torch.tanh(self.layer(inputs))


def main() -> None:
    """Train, and print each step."""
    asked = _arguments()
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("high")  # tensor cores, as most trainings
    if asked.device == "cpu":
        torch.set_num_threads(1)
    device = torch.device(asked.device)
    model = nn.Sequential(*(Block(asked.width) for _ in range(asked.layers))).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    data = torch.randn(asked.batch, asked.width).to(device)
    print("ready", flush=True)
    while not asked.go.exists():
        time.sleep(_LOOK_SECONDS)
    for step in count(1) if asked.steps is None else range(1, asked.steps + 1):
        time.sleep(LOADS[asked.loads](asked.load_ms / 1000))
        loss = model(data * (1 + step % _VARIANTS / 10)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        bits = float(loss.item()).hex()
        print(f"step={step} loss={bits} at={time.monotonic():.6f}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--layers", type=int, default=20)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--load-ms", type=float, default=0.0)
    parser.add_argument("--loads", choices=LOADS, default="steady")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--go", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
