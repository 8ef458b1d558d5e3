"""The step of the whole training, from lines that each state only part of it."""

import pytest

from kfext.core.progress.lines import read_line
from kfext.core.progress.position import Position
from kfext.core.progress.step_count import Step, Steps


def steps_of(*lines: str) -> list[Step | None]:
    """The step after each line that has a measure."""
    follower, results = Steps(), []
    for raw in lines:
        line = read_line(raw)
        assert line is not None, raw
        if line.measures:
            results.append(follower.step_at(line.position))
        else:
            follower.add_position(line.position)
    return results


CASES: dict[str, tuple[list[str], list[Step | None]]] = {
    "the step of the training": (["step 10 loss 1", "step 20 loss 1"], [Step(10), Step(20)]),
    "with a total": (["Step 10/100, loss: 1"], [Step(10, 100)]),
    "a summary that repeats the last step": (
        ["step 99/100 loss 2", "step 100/100 loss 1", '{"loss": 1, "step": 100}'],
        [Step(99, 100), Step(100, 100), Step(100, 100)],
    ),
    "with a total that is no longer printed": (
        ["step 10/100 loss 1", "step 11 loss 1", "step 5 loss 1"],
        [Step(10, 100), Step(11), Step(5)],
    ),
    "none": (["loss: 1"], [None]),
    "only epochs": (["[Epoch 3/10] loss: 1"], [Step(3, 10)]),
    "epochs from zero": (["Epoch 0 loss 1", "Epoch 1 loss 1"], [Step(1), Step(2)]),
    "in an epoch of a known length": (
        ["Epoch [1/5], Step [100/600], Loss: 1", "Epoch [3/5], Step [100/600], Loss: 1"],
        [Step(100, 3000), Step(1300, 3000)],
    ),
    "in an epoch, and the first is 0": (
        ["Epoch: [0]  [ 10/100]  loss: 1", "Epoch: [2]  [ 10/100]  loss: 1"],
        [Step(10), Step(210)],
    ),
    "in an epoch of unknown length": (
        [f"epoch {e} step {s} loss 1" for e in (1, 2, 3) for s in (50, 100)],
        [Step(50), Step(100), *[Step(e, coarse=True) for e in (2, 2, 3, 3)]],
    ),
    "the step of the training, though the epoch is stated": (
        [f"epoch {e} step {s} loss 1" for e, s in ((1, 100), (2, 200), (2, 300))],
        [Step(100), Step(200), Step(300)],
    ),
    "below a heading": (
        ["Epoch 2/10", " 45/200 [=>...] - loss: 1", "200/200 [====] - loss: 1", "Epoch 3/10",
         "  1/200 [>...] - loss: 1"],
        [Step(245, 2000), Step(400, 2000), Step(401, 2000)],
    ),
    "on the bar above": (
        ["  5%|#   | 50/1000 [00:05<01:40,  9.5it/s]", "{'loss': 0.4, 'epoch': 1.5}"],
        [Step(50, 1000)],
    ),
    "on the bar above, at the end of an epoch too": (
        [" 50%|#   | 60/120 [00:05<00:05,  9.5it/s]", "{'loss': 0.4, 'epoch': '1.5'}",
         " 66%|##  | 80/120 [00:07<00:04,  9.5it/s]", "{'loss': 0.3, 'epoch': '2'}",
         " 83%|### | 100/120 [00:09<00:02,  9.5it/s]", "{'loss': 0.2, 'epoch': '2.5'}"],
        [Step(60, 120), Step(80, 120), Step(100, 120)],
    ),
    "on a bar over all epochs, and only whole epochs are stated": (
        ["125/375 [00:05<00:10,  25it/s]", "{'loss': 0.4, 'epoch': 1.0}",
         "250/375 [00:10<00:05,  25it/s]", "{'loss': 0.3, 'epoch': 2.0}",
         "375/375 [00:15<00:00,  25it/s]", "{'loss': 0.2, 'epoch': 3.0}"],
        [Step(125, 375), Step(250, 375), Step(375, 375)],
    ),
    "on a bar of each epoch": (
        ["125/125 [00:05<00:00,  25it/s]", "epoch 1 loss 1",
         "125/125 [00:05<00:00,  25it/s]", "epoch 2 loss 1",
         "125/125 [00:05<00:00,  25it/s]", "epoch 3 loss 1"],
        [Step(epoch, coarse=True) for epoch in (1, 2, 3)],
    ),
    "in an epoch with only its first line printed": (
        [f"Epoch: [{epoch}]  [  0/100]  loss: 1" for epoch in (0, 1, 2)],
        [Step(0), Step(100), Step(200)],
    ),
    "in a later epoch of a known length, after lines that were not read": (
        ["Epoch: [0]  [ 10/100]  loss: 1", "Epoch: [2]  [ 40/100]  loss: 1"],
        [Step(10), Step(240)],
    ),
    "a count over the run beside a count within the epoch": (
        ["epoch 002:    10 / 100 loss=1, num_updates=110"],
        [Step(110)],
    ),
    "over the run, as it continues in the next epoch": (
        ["epoch: 1, iter: 40/100, loss: 1", "epoch: 2, iter: 60/100, loss: 1"],
        [Step(40), Step(60, 100)],
    ),
    "an unknown range, in the middle of a log": (
        ["epoch: 3, iter: 40/100, loss: 1", "epoch: 3, iter: 50/100, loss: 1",
         "epoch: 4, iter: 10/100, loss: 1"],
        [Step(epoch, coarse=True) for epoch in (3, 3, 4)],
    ),
    "within an epoch after all, though lines of it were not read": (
        ["epoch: 1, iter: 10/100, loss: 1", "epoch: 2, iter: 50/100, loss: 1",
         "epoch: 3, iter: 20/100, loss: 1"],
        [Step(10), Step(50, 100), Step(220)],
    ),
    "a bar that ends before the training": (
        ["100%|####| 9/9 [00:03<00:00,  2.9it/s]", "loss: 1", "loss: 1"],
        [None, None],
    ),
    "without a total, because the total grows": (
        ["step 10, total_steps 100, loss 1", "step 20, total_steps 200, loss 1"],
        [Step(10, 100), Step(20)],
    ),
    "below a total that the step has passed": (["step 120/100 loss 1"], [Step(120)]),
    "epoch 0 of 2, the first of three epochs": (
        [f"Epoch {e}/2, step 10/10, loss 1" for e in (0, 1, 2)],
        [Step(10), Step(20), Step(30, 30)],
    ),
    "within a fold": (["Fold 1/5", "step 10/100 loss 1", "Fold 2/5", "step 10/100 loss 1"],
        [Step(fold, 5, coarse=True) for fold in (1, 2)]),
    "by a fraction of the epochs": (
        ["Num Epochs = 4", "Total optimization steps = 2,000", "{'loss': 1.0, 'epoch': 2.6}"],
        [Step(1300, 2000)]),
    "in an epoch that was entered midway": (
        ["Epoch: [17]  [ 500/5004]  loss: 1", "Epoch: [17]  [ 600/5004]  loss: 1"],
        [Step(17, coarse=True)] * 2),
    "in epochs that end in nine, which count from zero": (
        ["epoch 8/299 loss 1", "epoch 9/299 loss 1"], [Step(9), Step(10)]),
    "by its epoch, though a number that is no step stands beside": (
        ["21epoch:train:1-100batch: loss=1", "21epoch:train:101-200batch: loss=1"],
        [Step(21, coarse=True)] * 2),
    "in a loop within another": (
        ["== iteration 1/9 ==", "rollout 4/4 loss=1", "== iteration 2/9 ==", "rollout 4/4 loss=1",
         "== iteration 3/9 ==", "rollout 4/4 loss=1"],
        [Step(4, 4), Step(2, 9, coarse=True), Step(3, 9, coarse=True)]),
    "in epochs of clients within a round": (
        [line for n in (1, 2, 3) for line in
         (*["client 4 epoch 1/2 loss=1"] * 2, f"== round {n}/9 ==")] + ["epoch 1/2 loss=1"],
        [*[Step(1, 2)] * 4, *[Step(2, 9, coarse=True)] * 2, Step(3, 9, coarse=True)]),
    "in brackets after its epoch": (["[31/90] it 50/500 loss 1"], [Step(31, coarse=True)]),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "want"), CASES.values(), ids=CASES)
def test_the_step_of_the_training(lines: list[str], want: list[Step | None]) -> None:
    assert steps_of(*lines) == want


def test_steps_that_go_back_are_a_restart() -> None:
    follower = Steps()
    for number in (10, 20, 5, 6):
        follower.step_at(Position(step=number))
    assert follower.restarts == 1


ASIDE = {
    "an evaluation that was announced": ["Evaluating...", "step 5/20 loss 2", "step 20/20 loss 2"],
    "a count to a different end": ["step 3/5 loss 2", "step 5/5 loss 2"],
}


@pytest.mark.parametrize("lines", ASIDE.values(), ids=ASIDE)
def test_similar_output_is_no_restart(lines: list[str]) -> None:
    follower = Steps()
    for raw in ["step 20/20 loss 1" if "..." in lines[0] else "step 10/20 loss 1", *lines]:
        line = read_line(raw)
        assert line is not None
        if line.measures:
            follower.step_at(line.position)
        else:
            follower.evaluating = True
    assert (follower.restarts, follower.unrelated) == (0, True)


def test_a_new_end_that_stays_is_the_end_of_the_training() -> None:
    follower = Steps()
    follower.step_at(Position(step=50, steps=100))
    for step in range(1, 8):
        follower.step_at(Position(step=step, steps=80))
    assert (follower.last, follower.restarts) == (Step(7, 80), 1)


def test_a_bar_over_all_epochs_that_appears_midway_is_no_restart() -> None:
    follower = Steps()
    for epoch in (2, 3, 4):
        step = follower.step_at(Position(step=100 * epoch, steps=500, epoch=float(epoch)))
    assert (step, follower.restarts) == (Step(400, 500), 0)


def test_a_bar_continues_after_a_measure_behind_it() -> None:
    follower = Steps()
    follower.step_at(Position(step=1158, steps=1737, bar=True))
    follower.add_position(Position(step=1179, steps=1737, bar=True))
    assert follower.last == Step(1179, 1737)
