"""The hook does not change the results of real trainings, and counts their steps."""

from collections.abc import Callable, Mapping
from functools import cache

import pytest

from e2e.bench.gpu_share.cards import (
    Python,
    of_later_pytorch,
    of_tensorflow_image,
    of_training_image,
)
from e2e.bench.gpu_share.run import HIGH, LOW, gated, native
from e2e.harness.hooked import HOOKS, NONE, Trainings, count_waits, run_trainings
from kfext.gpu.hook import words

pytestmark = pytest.mark.real_nodes
HOOKED = {
    "a network with in-place ReLU": "in place",
    "a learning-rate scheduler": "scheduled",
    "gradient accumulation": "accumulated",
    "mixed precision, which skips steps": "mixed",
    "evaluation, and a forward pass that fails": "evaluated",
    "two models, one after the other": "several",
    "activation checkpointing, two optimizers": "checkpointed",
    "a DataLoader with a forked worker": "fork",
    "a DataLoader with a spawned worker": "spawn",
    "copies of the model": "kept",
}
WITHOUT_LAYERS = {"a model that TorchScript has compiled": "scripted"}
"""Models with layers that a hook cannot reach."""
TRACED = {"a model that torch.compile traces": "compiled"}
EARLY, LATER = "torch 1.13", "torch 2.6"
PYTHONS: Mapping[str, Callable[[], Python]] = {EARLY: of_training_image, LATER: of_later_pytorch}
VERSIONS = [EARLY, pytest.param(LATER, marks=pytest.mark.long)]
CASES = [
    pytest.param(version, name, id=f"{version}: {case}", marks=marks)
    for version, more, marks in ((EARLY, {}, ()), (LATER, TRACED, pytest.mark.long))
    for case, name in {**HOOKED, **WITHOUT_LAYERS, **more}.items()
]


@cache
def run(version: str) -> Mapping[str, Trainings]:
    """Return the results of all trainings, without a hook and with each hook."""
    return run_trainings(PYTHONS[version]())


@pytest.mark.parametrize(("version", "name"), CASES)
def test_a_training_has_the_same_result_with_and_without_a_hook(version: str, name: str) -> None:
    outcomes = {hook: run(version)[hook].by_name[name].found for hook in HOOKS}
    assert outcomes == dict.fromkeys(HOOKS, outcomes[NONE])


@pytest.mark.parametrize(("version", "name"), CASES)
def test_a_hook_counts_each_step_that_an_optimizer_makes(version: str, name: str) -> None:
    for hook in (HIGH, LOW):
        training = run(version)[hook].by_name[name]
        assert training.page[words.STEPS] == training.steps > 0


@pytest.mark.parametrize(("version", "name"), CASES)
def test_the_low_priority_hook_has_a_gate_in_each_step_and_more_in_models_with_layers(
    version: str, name: str
) -> None:
    training = run(version)[LOW].by_name[name]
    assert training.page[words.HOOKED] in {words.READY, words.COARSE}
    least = 3 if name in HOOKED.values() else 1
    assert training.page[words.MICRO_STEPS] >= least * training.steps


@pytest.mark.parametrize("version", VERSIONS)
def test_no_hook_has_an_error(version: str) -> None:
    for hook in HOOKS:
        done = run(version)[hook]
        assert not [line for line in done.errors if line.startswith("kfext")]
        assert not any(
            training.page[words.UNHOOKED] for training in done.by_name.values() if training.page
        )


@pytest.mark.long
def test_a_keras_fit_has_the_same_result_with_a_hook_that_counts_each_batch() -> None:
    results = run_trainings(of_tensorflow_image(), "hooked_keras.py", (NONE, HIGH))
    without, hooked = (results[hook].by_name["fit"] for hook in (NONE, HIGH))
    assert hooked.found == without.found
    assert hooked.page[words.STEPS] == hooked.steps == without.steps > 0
    assert not hooked.page[words.UNHOOKED]
    assert not [line for line in results[HIGH].errors if line.startswith("kfext")]


def test_the_training_with_mixed_precision_skips_some_steps() -> None:
    batches = 24
    assert 0 < run(EARLY)[NONE].by_name["mixed"].steps < batches


@pytest.mark.long
def test_torch_compile_makes_one_graph_and_does_not_break_it() -> None:
    for hook in HOOKS:
        outcome = run(LATER)[hook].by_name["compiled"].found
        assert outcome.endswith(" graphs: 1, breaks: {}")


def test_a_gate_reduces_the_waits_of_the_high_priority_job_by_more_than_4() -> None:
    without, gate = count_waits(of_training_image(), [native(0.5), gated(0.5)]).values()
    assert without > 4 * gate
