"""Models that a hook could break, and data for them. They need PyTorch 1.13 or later."""

from __future__ import annotations  # runs with Python 3.8 too

import hashlib

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import TensorDataset

BATCH = 8


class Block(nn.Module):
    """A residual block with an in-place ReLU, which full backward hooks of modules break."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the images after the block."""
        out = self.relu(self.norm(self.first(images)))
        return self.relu(self.second(out) + images)


def residual() -> nn.Module:
    torch.manual_seed(1)
    ends = [nn.Flatten(), nn.Linear(8 * 8 * 8, 10)]
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), Block(8), Block(8), *ends)


class Checkpointed(nn.Module):
    """A model that runs its layers again in backward, and returns tensors in nested containers."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = residual()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, images: torch.Tensor) -> dict[str, list[torch.Tensor]]:
        """Return the output, and an unchanged parameter."""
        out = images.requires_grad_()
        for part in self.parts:
            out = checkpoint(part, out)
        return {"outcomes": [out, self.scale]}


def data(batches: int) -> TensorDataset:
    """Return random images and classes."""
    count = BATCH * batches
    chance = torch.Generator().manual_seed(2)
    images = torch.randn(count, 3, 8, 8, generator=chance)
    return TensorDataset(images, torch.randint(0, 10, (count,), generator=chance))


def digest(model: nn.Module) -> str:
    sha256 = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        sha256.update(name.encode() + value.numpy().tobytes())
    return sha256.hexdigest()
