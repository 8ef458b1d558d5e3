"""A GradScaler that works on the CPU. It needs PyTorch 1.13 or later."""

from __future__ import annotations  # runs with Python 3.8 too

from typing import Any
from unittest.mock import patch

import torch
from torch.cuda.amp import grad_scaler

_OPTIONS = {"growth_interval": 4}
"""It doubles the scale after 4 steps in a row that were not skipped."""


def on_cpu(scale: float) -> Any:
    """Return a scaler with the initial scale `scale`."""
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler("cpu", init_scale=scale, **_OPTIONS)
    with patch.object(grad_scaler, "amp_definitely_not_available", return_value=False):
        return _OnCpu(init_scale=scale, **_OPTIONS)


class _OnCpu(grad_scaler.GradScaler):
    """The scaler of PyTorch before 2.3, with CPU versions of its three operations on GPUs.

    PyTorch's code still decides which steps are skipped.
    """

    def scale(self, outputs: torch.Tensor) -> torch.Tensor:
        if self._scale is None:
            self._lazy_init_scale_growth_tracker(outputs.device)
        return outputs * self._scale

    def _unscale_grads_(
        self,
        optimizer: torch.optim.Optimizer,
        inv_scale: torch.Tensor,
        found_inf: torch.Tensor,
        _: bool,
    ) -> dict[torch.device, torch.Tensor]:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                found_inf.logical_or_(~parameter.grad.isfinite().all())
                parameter.grad.mul_(inv_scale)
        return {found_inf.device: found_inf}

    def update(self, new_scale: float | None = None) -> None:
        with patch.object(torch, "_amp_update_scale_", _update_scale):
            super().update(new_scale)


def _update_scale(
    scale: torch.Tensor,
    grown: torch.Tensor,
    found_inf: torch.Tensor,
    up: float,
    down: float,
    interval: int,
) -> None:
    grown.copy_(torch.where(found_inf > 0, 0, grown + 1))
    grown_scale = scale * torch.where(found_inf > 0, down, torch.where(grown == interval, up, 1.0))
    scale.copy_(torch.where(grown_scale.isfinite(), grown_scale, scale))
    grown.remainder_(interval)
