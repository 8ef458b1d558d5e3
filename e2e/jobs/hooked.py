"""Trainings on the CPU whose result must not depend on a hook: PyTorch 1.13 or later, no cluster.

    python3 hooked.py [NAME...]

Prints a line of JSON: by name, a digest of all that was trained, and what else is to be compared.
"""

from __future__ import annotations  # runs with Python 3.8 too

import copy
import hashlib
import importlib
import io
import json
import sys
from collections.abc import Callable

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

_STEPS = 12
_MODELS = importlib.import_module("hooked_models")  # beside this file


def data(count: int = 8 * _STEPS) -> TensorDataset:
    """Return images and their classes, at random."""
    chance = torch.Generator().manual_seed(2)
    images = torch.randn(count, 3, 8, 8, generator=chance)
    return TensorDataset(images, torch.randint(0, 10, (count,), generator=chance))


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, *, workers: int = 0, every: int = 1
) -> nn.Module:
    """Train for some steps, with an optimizer's step after each `every` batches."""
    criterion = nn.CrossEntropyLoss()
    for number, (images, classes) in enumerate(DataLoader(data(), 8, num_workers=workers)):
        criterion(model(images), classes).backward()
        if (number + 1) % every == 0:
            optimizer.step()
            optimizer.zero_grad()
    return model


def digest(model: nn.Module) -> str:
    """Return what tells one set of parameters from any other."""
    found = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        found.update(name.encode() + value.numpy().tobytes())
    return found.hexdigest()


def in_place() -> str:
    """Train with ReLU in place."""
    model = _MODELS.residual()
    return digest(train(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)))


def scheduled() -> str:
    """Train under a scheduler of learning rates, which wraps the optimizer's step itself."""
    model = _MODELS.residual()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for _ in range(3):
        train(model, optimizer)
        scheduler.step()
    return f"{digest(model)} {scheduler.get_last_lr()}"


def accumulated() -> str:
    """Train with one step of the optimizer for each three batches."""
    model = _MODELS.residual()
    return digest(train(model, torch.optim.SGD(model.parameters(), 0.1), every=3))


def skipped() -> str:
    """Leave some steps out, as mixed precision does where a gradient is infinite."""
    model = _MODELS.residual()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for number in range(_STEPS):
        model(torch.full((1, 3, 8, 8), float(number))).sum().backward()
        if number % 4:
            optimizer.step()
        optimizer.zero_grad()
    return digest(model)


def evaluated() -> str:
    """Train, evaluate without gradients, fail once in the middle of a forward, and train on."""
    model = _MODELS.residual()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer)
    with torch.no_grad():
        model.eval()
        shown = [float(model(images).sum()) for images, _ in DataLoader(data(), 16)]
        model.train()
    try:
        model(torch.zeros(1, 4, 8, 8))
    except RuntimeError:
        shown.append(-1.0)
    return f"{digest(train(model, optimizer))} {shown}"


def several() -> str:
    """Train one model and then another."""
    found = []
    for _ in range(2):
        model = _MODELS.residual()
        for _ in range(2):
            train(model, torch.optim.SGD(model.parameters(), 0.1))
        found.append(digest(model))
    return " ".join(found)


def checkpointed() -> str:
    """Train with activation checkpointing, and an optimizer for each part of the model."""
    model = _MODELS.Checkpointed()
    optimizers = [torch.optim.SGD(part.parameters(), 0.1) for part in (model.parts, model.parts[1])]
    for images, classes in DataLoader(data(), 8):
        out, scale = model(images)["outcomes"]
        nn.functional.cross_entropy(out * scale, classes).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return f"{digest(model)} {len(model.scale._backward_hooks or ())}"


def scripted() -> str:
    """Train a model that TorchScript has compiled, which takes no hooks."""
    model = torch.jit.script(_MODELS.residual())
    return digest(train(model, torch.optim.SGD(model.parameters(), 0.1)))


def loaded(context: str) -> str:
    """Train on what two workers load, which are started in such a way."""
    torch.multiprocessing.set_start_method(context, force=True)
    model = _MODELS.residual()
    return digest(train(model, torch.optim.SGD(model.parameters(), 0.1), workers=2))


def kept() -> str:
    """Train; then copy the model, save and load it whole, and compile it to a script."""
    model = _MODELS.residual()
    train(model, torch.optim.SGD(model.parameters(), 0.1))
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    again = {"weights_only": False} if torch.__version__ >= "2" else {}
    copies = [copy.deepcopy(model), torch.load(file, **again), torch.jit.script(model)]
    copies.append(torch.jit.script(copy.deepcopy(model)))
    images = torch.ones(2, 3, 8, 8)
    outcomes = [float(one.eval()(images).sum()) for one in copies]
    return f"{[digest(one) for one in copies]} {outcomes}"


TRAININGS: dict[str, Callable[[], str]] = {
    "in place": in_place,
    "scheduled": scheduled,
    "accumulated": accumulated,
    "skipped": skipped,
    "evaluated": evaluated,
    "several": several,
    "checkpointed": checkpointed,
    "scripted": scripted,
    "fork": lambda: loaded("fork"),
    "spawn": lambda: loaded("spawn"),
    "kept": kept,
}


def main() -> None:
    """Run the trainings that are asked for, or all."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    asked = sys.argv[1:] or list(TRAININGS)
    print(json.dumps({name: TRAININGS[name]() for name in asked}), flush=True)


if __name__ == "__main__":
    main()
