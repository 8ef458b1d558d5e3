"""A regression by gradient descent: the numbers behind the scripts which only print."""
# mypy: ignore-errors

from collections.abc import Iterator

import numpy as np

EPOCHS, STEPS, BATCH = 3, 60, 32


def descend(seed: int = 0) -> Iterator[tuple[int, int, float, float]]:
    """Yield epoch and step (both from 1), and the losses of the batch and of a held-out batch."""
    random = np.random.default_rng(seed)
    truth = random.normal(size=8)
    weights = np.zeros(8)
    held = random.normal(size=(200, 8))
    for epoch in range(1, EPOCHS + 1):
        for step in range(1, STEPS + 1):
            x = random.normal(size=(BATCH, 8))
            error = x @ weights - x @ truth + random.normal(scale=0.1, size=BATCH)
            weights -= 0.02 * x.T @ error / BATCH
            test = float(np.mean((held @ weights - held @ truth) ** 2))
            yield epoch, step, float(np.mean(error**2)), test
