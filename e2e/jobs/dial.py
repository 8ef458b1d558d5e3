"""A training program that uses the card in part of each step, and loads data in the rest.

    python3 dial.py --layers 20 --load-ms 60 --steps 100

A worker of its DataLoader loads batches; the main process then sleeps for `--load-ms` in each step.
If the worker slept, this time would overlap with the use of the card. With `--spread` 0.5 the time
of a step is between half and one and a half of it. The program prints each step with the time at
which it ended.
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

_WIDTH = 8


class Batches(Dataset):
    """Batches of ones."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, _: int) -> torch.Tensor:
        return torch.ones(_WIDTH)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=20)
    parser.add_argument("--load-ms", type=float, default=0.0)
    parser.add_argument("--spread", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--queue", type=int, default=0)
    arguments = parser.parse_args()
    spread = arguments.spread
    torch.set_num_threads(1)
    model = nn.Sequential(*(nn.Linear(_WIDTH, _WIDTH) for _ in range(arguments.layers)))
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    for step, batch in enumerate(DataLoader(Batches(arguments.steps), num_workers=1)):
        time.sleep(arguments.load_ms / 1000 * random.uniform(1 - spread, 1 + spread))
        loss = model(batch).square().mean()
        for _ in range(1 + arguments.queue):  # each call launches a kernel without waiting
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step={step} loss={loss.item():.6f} at={time.monotonic():.4f}", flush=True)


if __name__ == "__main__":
    main()
