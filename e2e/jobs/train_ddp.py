"""Data-parallel training with PyTorch on synthetic data, for a PyTorchJob.

The operator or torchrun sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; without them one
process trains alone. The work is the same in every run: fixed seeds, one thread, no files.
"""

import argparse
import json
import os
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

_CLASSES = 10
_VOCABULARY = 20_000
Batch = Callable[[int, torch.Generator], Tensor]


class _Residual(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.relu(inputs + self.body(inputs))


def _images(count: int, generator: torch.Generator) -> Tensor:
    return torch.randn(count, 3, 16, 16, generator=generator)


def _vectors(count: int, generator: torch.Generator) -> Tensor:
    return torch.randn(count, 1024, generator=generator)


def _words(count: int, generator: torch.Generator) -> Tensor:
    return torch.randint(_VOCABULARY, (count, 16), generator=generator)


def _cnn() -> nn.Module:
    """Return a model with much computation and few parameters (0.1 MB of gradients)."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Linear(128, _CLASSES),
    )  # fmt: skip


def _resnet() -> nn.Module:
    """Return a small residual network (1.2 MB of gradients)."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        *(_Residual(64) for _ in range(4)),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, _CLASSES),
    )  # fmt: skip


def _mlp() -> nn.Module:
    """Return a model of four wide linear layers (16.8 MB of gradients), limited by the network."""
    wide = [layer for _ in range(4) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    return nn.Sequential(*wide, nn.Linear(1024, _CLASSES))


def _embedding() -> nn.Module:
    """Return a model with a large table (5.1 MB of gradients) and little computation."""
    return nn.Sequential(
        nn.EmbeddingBag(_VOCABULARY, 64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, _CLASSES)
    )


# Name -> model, its data, and the steps that take about 20 s on 300 millicores.
MODELS: dict[str, tuple[Callable[[], nn.Module], Batch, int]] = {
    "cnn": (_cnn, _images, 1500),
    "resnet": (_resnet, _images, 180),
    "mlp": (_mlp, _vectors, 50),
    "embedding": (_embedding, _words, 500),
}


def main() -> None:
    arguments = _arguments()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1
    rank = int(os.environ.get("RANK", "0"))
    if distributed:
        dist.init_process_group("gloo")
    make, batch, steps = MODELS[arguments.model]
    arguments.steps = arguments.steps or steps
    model = DistributedDataParallel(make()) if distributed else make()
    train(model, batch, arguments, rank)
    if distributed:
        dist.destroy_process_group()


def train(model: nn.Module, batch: Batch, arguments: argparse.Namespace, rank: int) -> None:
    """Run the steps, and print their rate, then the totals as JSON."""
    generator = torch.Generator().manual_seed(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss = torch.zeros(())
    began = printed = time.monotonic()
    cpu_began = time.process_time()
    for step in range(1, arguments.steps + 1):
        if step == arguments.pause_at:
            pause(arguments.pause, arguments.says)
        inputs = batch(arguments.batch, generator)
        labels = torch.randint(_CLASSES, (arguments.batch,), generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        if step % arguments.print_every == 0:
            now = time.monotonic()
            rate = arguments.print_every / (now - printed)
            printed = now
            at = f"step={step}/{arguments.steps}"
            print(f"{at} loss={loss.item():.4f} steps_per_second={rate:.3f}", flush=True)
    seconds = time.monotonic() - began
    totals = {
        "steps": arguments.steps,
        "seconds": round(seconds, 3),
        "steps_per_second": round(arguments.steps / seconds, 3),
        "cpu_seconds": round(time.process_time() - cpu_began, 3),
        "loss": round(loss.item(), 4),
    }
    print(json.dumps(totals), flush=True)


def pause(seconds: float, says: str) -> None:
    """Pause the training, and print `says` once, or each second if it has `{}` for the second."""
    for second in range(round(seconds)):
        if says and ("{}" in says or not second):
            print(says.format(second), flush=True)
        time.sleep(1.0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="cnn")
    parser.add_argument("--steps", type=int, help="default: about 20 seconds of work")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--print-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--pause-at", type=int, metavar="STEP", help="pause before this step")
    parser.add_argument("--pause", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--says", default="", help="text to print in the pause")
    return parser.parse_args()


if __name__ == "__main__":
    main()
