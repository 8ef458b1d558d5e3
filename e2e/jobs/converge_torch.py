"""The models of `converge.py` in PyTorch: a small CNN, a GRU and a variational autoencoder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_CLASSES, _WIDTH, _LATENT, _HIDDEN = 10, 64, 8, 48
_KL_WEIGHT = 0.002
Array = np.ndarray[Any, Any]


class _Cnn(nn.Module):
    """A classifier of images of 16 x 16 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(512, _CLASSES),
        )  # fmt: skip

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.body(inputs), targets)


class _Gru(nn.Module):
    """Predicts the next point of a wave at each of its points."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = nn.GRU(1, _HIDDEN, batch_first=True)
        self.out = nn.Linear(_HIDDEN, 1)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.mse_loss(self.out(self.memory(inputs)[0]), targets)


class _Vae(nn.Module):
    """A variational autoencoder of vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(_WIDTH, 512), nn.ReLU(), nn.Linear(512, 2 * _LATENT))
        self.decode = nn.Sequential(nn.Linear(_LATENT, 512), nn.ReLU(), nn.Linear(512, _WIDTH))

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        mean, log_variance = self.encode(inputs).chunk(2, dim=1)
        sample = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        error = nn.functional.mse_loss(self.decode(sample), targets)
        divergence = 0.5 * (mean**2 + log_variance.exp() - log_variance - 1).sum(1).mean()
        return error + _KL_WEIGHT * divergence


_MODELS: dict[str, Callable[[], nn.Module]] = {"cnn": _Cnn, "gru": _Gru, "vae": _Vae}


class _Training:
    """A model that returns its loss, and its optimizer Adam."""

    def __init__(self, model: nn.Module, rate: float) -> None:
        self._model = model
        self._optimizer = torch.optim.Adam(model.parameters(), lr=rate)

    def step(self, inputs: Array, targets: Array) -> float:
        self._optimizer.zero_grad()
        loss = self._model(torch.from_numpy(inputs), torch.from_numpy(targets))
        loss.backward()
        self._optimizer.step()
        return float(loss.item())

    def save(self, path: Path) -> None:
        state = (self._model.state_dict(), self._optimizer.state_dict(), torch.get_rng_state())
        torch.save(state, path)

    def load(self, path: Path) -> None:
        model, optimizer, chance = torch.load(path)
        self._model.load_state_dict(model)
        self._optimizer.load_state_dict(optimizer)
        torch.set_rng_state(chance)


def make(model: str, rate: float) -> _Training:
    """Return an untrained model; its weights are always the same."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    return _Training(_MODELS[model](), rate)
