"""A training program that uses a card in part of each step, and loads data in the rest.

    python3 share.py --device cuda --layers 60 --width 2048 --batch 8192 --load-ms 20 --go FILE

It prints `ready` when it is set up, and begins once the file `--go` exists. It ends after
`--steps`, or when it is killed. For each step it prints the loss, and the time at which the step
ended. The loss is the same bit for bit in each run, whatever time loading takes.

The default model is small enough for a CPU, and for the card that a CPU simulates.
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

_POLL_SECONDS = 0.02
_VARIANTS = 7
"""The number of different factors that scale the batch, in turn."""
_CHANCE = random.Random(1)
"""The source of loading times; they are the same in each run."""
LOADS: dict[str, Callable[[float], float]] = {
    "steady": lambda mean: mean,
    "spread": lambda mean: max(mean * _CHANCE.gauss(1.0, 0.2), 0.0),
    "bursts": lambda mean: _CHANCE.expovariate(1.0 / mean) if mean else 0.0,
}
"""Distributions of loading times: constant; normal with a deviation of 20 %; exponential."""


class Block(nn.Module):
    """A residual layer, so that a deep model can learn."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the input plus a tenth of the layer's output."""
        return inputs + 0.1 * torch.tanh(self.layer(inputs))


def main() -> None:
    arguments = _arguments()
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("high")  # use tensor cores, as most jobs do
    if arguments.device == "cpu":
        torch.set_num_threads(1)
    device = torch.device(arguments.device)
    model = nn.Sequential(*(Block(arguments.width) for _ in range(arguments.layers))).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    data = torch.randn(arguments.batch, arguments.width).to(device)
    print("ready", flush=True)
    while not arguments.go.exists():
        time.sleep(_POLL_SECONDS)
    for step in count(1) if arguments.steps is None else range(1, arguments.steps + 1):
        time.sleep(LOADS[arguments.loads](arguments.load_ms / 1000))
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
