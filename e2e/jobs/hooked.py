"""Trainings on the CPU with results that a hook must not change. They need PyTorch 1.13 or later.

    python3 hooked.py [NAME...]

For each training it prints a line of JSON: its name, a digest of the trained parameters with other
results to compare, and the number of optimizer steps. Each runs in a process of its own, so that a
hook treats it as a new job. This is a fork, because importing PyTorch takes longer than training.
"""

from __future__ import annotations  # runs with Python 3.8 too

import copy
import importlib
import io
import json
import os
import sys
from collections.abc import Callable

import torch
from torch import nn
from torch.utils.data import DataLoader

_STEPS = 12
_FIRST_SCALE = 2.0**127
"""The first scale of the GradScaler; with it the loss is infinite."""
_MODELS = importlib.import_module("hooked_models")  # beside this file
_SCALER = importlib.import_module("hooked_scaler")
digest: Callable[[nn.Module], str] = _MODELS.digest


class Counter:
    """The training's own count of its optimizer steps."""

    steps = 0


def step(*optimizers: torch.optim.Optimizer) -> None:
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    Counter.steps += len(optimizers)


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    workers: int = 0,
    every: int = 1,
    count: int = _STEPS,
) -> nn.Module:
    """Train on `count` batches, with an optimizer step after every `every` batches."""
    criterion = nn.CrossEntropyLoss()
    loader = DataLoader(_MODELS.data(count), 8, num_workers=workers)
    for number, (images, classes) in enumerate(loader):
        criterion(model(images), classes).backward()
        if (number + 1) % every == 0:
            step(optimizer)
    return model


def in_place() -> str:
    """Train with ReLU in place."""
    model = _MODELS.residual()
    return digest(train(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)))


def scheduled() -> str:
    """Train with a learning-rate scheduler, which also wraps the optimizer's step."""
    model = _MODELS.residual()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for _ in range(3):
        train(model, optimizer)
        scheduler.step()
    return f"{digest(model)} {scheduler.get_last_lr()}"


def accumulated() -> str:
    """Train with one optimizer step for every three batches."""
    model = _MODELS.residual()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return digest(train(model, optimizer, every=3, count=3 * _STEPS))


def mixed() -> str:
    """Train with mixed precision, where the scaler skips steps with an infinite gradient."""
    model, scaler = _MODELS.residual(), _SCALER.on_cpu(_FIRST_SCALE)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scales = []
    for images, classes in DataLoader(_MODELS.data(2 * _STEPS), 8):
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), classes, reduction="sum")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        before = scaler.get_scale()
        scaler.update()
        optimizer.zero_grad()
        scales.append(scaler.get_scale())
        Counter.steps += scales[-1] >= before  # the scale falls only after a skipped step
    return f"{digest(model)} {scales}"


def evaluated() -> str:
    """Train, evaluate without gradients, fail once within a forward pass, and continue training."""
    model = _MODELS.residual()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer)
    with torch.no_grad():
        model.eval()
        shown = [float(model(images).sum()) for images, _ in DataLoader(_MODELS.data(_STEPS), 16)]
        model.train()
    try:
        model(torch.zeros(1, 4, 8, 8))
    except RuntimeError:
        shown.append(-1.0)
    return f"{digest(train(model, optimizer))} {shown}"


def several() -> str:
    """Train one model and then another."""
    digests = []
    for _ in range(2):
        model = _MODELS.residual()
        for _ in range(2):
            train(model, torch.optim.SGD(model.parameters(), 0.1))
        digests.append(digest(model))
    return " ".join(digests)


def checkpointed() -> str:
    """Train with activation checkpointing, and a second optimizer for some of the layers."""
    model = _MODELS.Checkpointed()
    optimizers = [torch.optim.SGD(part.parameters(), 0.1) for part in (model.parts, model.parts[1])]
    for images, classes in DataLoader(_MODELS.data(_STEPS), 8):
        out, scale = model(images)["outcomes"]
        nn.functional.cross_entropy(out * scale, classes).backward()
        step(*optimizers)
    return f"{digest(model)} {len(model.scale._backward_hooks or ())}"


def scripted() -> str:
    """Train a model compiled by TorchScript, which accepts no hooks."""
    model = torch.jit.script(_MODELS.residual())
    return digest(train(model, torch.optim.SGD(model.parameters(), 0.1)))


def loaded(context: str) -> str:
    """Train with a DataLoader worker. `context`: how it is started, fork or spawn."""
    torch.multiprocessing.set_start_method(context, force=True)
    model = _MODELS.residual()
    return digest(train(model, torch.optim.SGD(model.parameters(), 0.1), workers=1))


def kept() -> str:
    """Train; then copy the whole model, save and load it, and compile it to TorchScript."""
    model = _MODELS.residual()
    train(model, torch.optim.SGD(model.parameters(), 0.1))
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    again = {"weights_only": False} if torch.__version__ >= "2" else {}
    copies = [copy.deepcopy(model), torch.load(file, **again), torch.jit.script(model)]
    copies.append(torch.jit.script(copy.deepcopy(model)))
    images = torch.ones(2, 3, 8, 8)
    outcomes = [float(copied.eval()(images).sum()) for copied in copies]
    return f"{[digest(copied) for copied in copies]} {outcomes}"


def compiled() -> str:
    """Train a model that torch.compile traces: it must stay a single graph without breaks."""
    model = _MODELS.residual()
    # The default backend would need a C++ compiler; the tracing before it is the same.
    traced = torch.compile(model, backend="aot_eager")
    for _ in range(2):  # a hook may inspect the model again for a new optimizer
        train(traced, torch.optim.SGD(model.parameters(), 0.1))
    counters = importlib.import_module("torch._dynamo.utils").counters
    graphs, breaks = counters["stats"]["unique_graphs"], counters["graph_break"]
    return f"{digest(model)} graphs: {graphs}, breaks: {dict(breaks)}"


TRAININGS: dict[str, Callable[[], str]] = {
    "in place": in_place,
    "scheduled": scheduled,
    "accumulated": accumulated,
    "mixed": mixed,
    "evaluated": evaluated,
    "several": several,
    "checkpointed": checkpointed,
    "scripted": scripted,
    "fork": lambda: loaded("fork"),
    "spawn": lambda: loaded("spawn"),
    "kept": kept,
}
if hasattr(torch, "compile"):
    TRAININGS["compiled"] = compiled


def main() -> None:
    """Run the trainings named on the command line, or all, one after the other."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in sys.argv[1:] or TRAININGS:
        child = os.fork()
        if child == 0:
            result = TRAININGS[name]()
            print(json.dumps({"name": name, "found": result, "steps": Counter.steps}), flush=True)
            return
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{name} has failed")


if __name__ == "__main__":
    main()
