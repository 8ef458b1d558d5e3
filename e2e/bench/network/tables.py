"""The table of one speed of the links."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from e2e.bench.network.placements import (
    CHOSEN,
    HOPED,
    MODELS,
    PLACEMENTS,
    REFERENCE,
    STEPS,
    UNLIMITED,
    Model,
    Placement,
)
from e2e.bench.report import spread, table
from e2e.bench.targets import NETWORK_GAIN, UNLIMITED_SPEED


@dataclass(frozen=True, slots=True)
class Run:
    """One job in one placement: steps a second, CPU seconds and bytes per step, the last loss."""

    rate: float
    cpu: float
    wire: float
    loss: float


Runs = Mapping[tuple[Model, Placement], list[Run]]


def table_of(runs: Runs, title: str) -> str:
    """Return what each job did in each placement, beside the first of them."""
    header = (
        "job", "placement", "steps/s", "ratio", "CPU s/step of the first process",
        "MB between nodes/step, start-up included", "loss",
    )  # fmt: skip
    return table(title, header, [_row(runs, model, where) for model, where in runs])


def _row(runs: Runs, model: Model, where: Placement) -> tuple[str, ...]:
    found = runs[model, where]
    losses = sorted({one.loss for one in found})
    return (
        model.title if where is REFERENCE else "",
        where.name,
        spread([one.rate for one in found]),
        "1" if where is REFERENCE else spread(_ratios(runs, model, where)),
        f"{median(one.cpu for one in found):.4f}",
        f"{median(one.wire for one in found) / 1e6:.2f}",
        " ".join(f"{loss:g}" for loss in losses),
    )


def _ratios(runs: Runs, model: Model, where: Placement) -> list[float]:
    """Return the speeds of a job in a placement as parts of that in the first, by repeat."""
    pairs = zip(runs[model, where], runs[model, REFERENCE], strict=True)
    return [one.rate / reference.rate for one, reference in pairs]


def parts_of(runs: Runs, title: str) -> str:
    """Return how much training time each step from the first placement to the hoped-for saves."""
    rows = [
        (model.title, *(_saved(runs, model, of, by) for _, of, by in STEPS)) for model in MODELS
    ]
    return table(f"Training time, {title}", ("job", *(name for name, _, _ in STEPS)), rows)


def _saved(runs: Runs, model: Model, of: Placement, by: Placement) -> str:
    """Return the change of the time of a step in percent, over pairs of one repeat."""
    pairs = zip(runs[model, of], runs[model, by], strict=True)
    changes = [100 * (before.rate / after.rate - 1) for before, after in pairs]
    return f"{median(changes):+.1f} % ({min(changes):+.1f} to {max(changes):+.1f})"


def verdict(runs: Runs) -> str:
    """Return whether together on the host network is the fastest way, and the largest gain."""
    times = {
        model: 1 - _rate(runs, model, REFERENCE) / _rate(runs, model, HOPED) for model in MODELS
    }
    best = max(MODELS, key=lambda model: times[model])
    beaten = [said for model in MODELS if (said := _beaten(runs, model))]
    differ = ", ".join(model.title for model in MODELS if not _same_loss(runs, model))
    lines = [
        f"- Training time of {HOPED.name} against {REFERENCE.name}, largest gain: "
        f"-{100 * times[best]:.1f} % ({best.title}), {NETWORK_GAIN.judge(100 * times[best])}.",
        f"- {HOPED.name} is the fastest placement"
        + (f", but not of {'; '.join(beaten)}." if beaten else " of every job: PASS."),
        f"- The losses of the four placements {f'DIFFER: {differ}' if differ else 'are the same'}.",
    ]
    return "\n".join(lines)


def choice(runs: Runs) -> str:
    """Return whether a job without a CPU limit is as fast where kfext puts it as apart."""
    speed = median(_ratios(runs, UNLIMITED, CHOSEN))
    return f"- {UNLIMITED.title}, {CHOSEN.name}: {UNLIMITED_SPEED.judge(speed)}."


def _shared(runs: Runs, model: Model) -> list[Placement]:
    return [where for where in PLACEMENTS if not where.alone and (model, where) in runs]


def _beaten(runs: Runs, model: Model) -> str:
    """Return by which other placement the hoped-for one is beaten, empty if by none."""
    best = max(_shared(runs, model), key=lambda where: _rate(runs, model, where))
    ratio = _rate(runs, model, HOPED) / _rate(runs, model, best)
    return "" if best is HOPED else f"{model.title} ({ratio:.2f} of {best.name})"


def _same_loss(runs: Runs, model: Model) -> bool:
    """Return whether all runs came to one loss; a parameter server's steps have no fixed order."""
    losses = {one.loss for where in _shared(runs, model) for one in runs[model, where]}
    return model.kind == "TFJob" or len(losses) == 1


def _rate(runs: Runs, model: Model, where: Placement) -> float:
    return median(one.rate for one in runs[model, where])
