"""The model of `elastic_ddp.py`: a classifier in DistributedDataParallel on gloo."""

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

_WIDTH = 128
_SEED = 1
_BUCKET = 25 * 2**20 // 4
"""The float32 numbers in a bucket of DistributedDataParallel: 25 MiB, its default."""
_FORWARD = 1 / 3
"""The fraction of a step's computation before the first gradient is ready."""
_TIMEOUT = timedelta(seconds=120)
"""How long a rank waits for a rank that has vanished without closing its connections."""
Array = np.ndarray[Any, Any]


class _Training:
    """One rank of the team that torchrun or the operator has started.

    `megabytes`: the size of an additional message in each step.
    """

    def __init__(self, inputs: Array, targets: Array, rate: float, megabytes: float) -> None:
        dist.init_process_group("gloo", timeout=_TIMEOUT)
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self._inputs, self._targets = torch.from_numpy(inputs), torch.from_numpy(targets)
        width, classes = inputs.shape[1], int(targets.max()) + 1
        self._model = nn.Sequential(
            nn.Linear(width, _WIDTH), nn.Tanh(), nn.Linear(_WIDTH, _WIDTH), nn.Tanh(),
            nn.Linear(_WIDTH, classes),
        )  # fmt: skip
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=rate, momentum=0.9)
        self._team = nn.parallel.DistributedDataParallel(self._model)
        message = torch.zeros(round(megabytes * 1e6 / 4))
        self._buckets = message.split(_BUCKET) if megabytes else ()

    def agreed(self, step: int) -> int:
        number = torch.tensor(step)
        dist.broadcast(number, src=0)
        return int(number)

    def wait(self, seconds: float) -> None:
        # As in a backward pass, a bucket is sent as soon as its gradients would be ready.
        time.sleep(seconds * _FORWARD if self._buckets else seconds)
        sent = []
        for bucket in self._buckets:
            time.sleep(seconds * (1 - _FORWARD) / len(self._buckets))
            sent.append(dist.all_reduce(bucket, async_op=True))
        for work in sent:
            work.wait()

    def step(self, own: Array, batch: int, asked: int) -> tuple[float, int]:
        self._optimizer.zero_grad()
        loss = self._summed(self._team, own) / batch
        # DistributedDataParallel averages over the ranks, but the sum over the ranks is needed.
        (loss * self.world).backward()
        self._optimizer.step()
        own_values = [float(loss.item()), float(asked if self.rank == 0 else 0)]
        sums = torch.tensor(own_values, dtype=torch.float64)
        dist.all_reduce(sums)
        return float(sums[0]), int(sums[1])

    def loss(self) -> float:
        with torch.no_grad():
            count = len(self._targets)
            return float(self._summed(self._model, np.arange(count))) / count

    def save(self, path: Path) -> None:
        torch.save((self._model.state_dict(), self._optimizer.state_dict()), path)

    def load(self, path: Path) -> None:
        model, optimizer = torch.load(path)
        self._model.load_state_dict(model)
        self._optimizer.load_state_dict(optimizer)

    def _summed(self, model: nn.Module, chosen: Array) -> Tensor:
        picked = torch.from_numpy(chosen)
        scores = model(self._inputs[picked])
        return nn.functional.cross_entropy(scores, self._targets[picked], reduction="sum")


def make(inputs: Array, targets: Array, rate: float, *, megabytes: float) -> _Training:
    """Join the team with an untrained model; its weights are always the same."""
    torch.set_num_threads(1)
    torch.manual_seed(_SEED)
    return _Training(inputs, targets, rate, megabytes)
