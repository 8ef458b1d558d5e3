"""Which lines of a log show that a job is alive."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.progress.fields import Table, visible
from kfext.core.progress.life import Life
from kfext.core.progress.lines import read_line
from tests.contract.test_logs import BY_EXPRESSION, SETS, TRAINING, lines_of


def moved(lines: Sequence[str], expression: str = "") -> list[bool]:
    """For each line of a log, whether a counter has moved in it."""
    life, table, results = Life(), Table(), []
    for raw in lines:
        text = raw if expression else table.label(raw)
        results.append(life.read_line(text, read_line(text, expression)))
    return results


EVALUATIONS: dict[str, tuple[str, str]] = {
    "Transformers": (
        " 35%|███▌      | 35/100 [00:05<00:10,  6.50it/s]",
        " 36%|███▌      | 36/100 [00:05<00:10,  6.50it/s]",
    ),
    "Transformers, with a title": (
        "Evaluating:  40%|████      | 40/100 [00:20<00:30,  2.0it/s]",
        "Evaluating:  41%|████      | 41/100 [00:20<00:30,  2.0it/s]",
    ),
    "Lightning": (
        "Validation DataLoader 0:  52%|█████▏    | 26/50 [00:03<00:02,  8.5it/s]",
        "Validation DataLoader 0:  54%|█████▏    | 27/50 [00:03<00:02,  8.5it/s]",
    ),
    "Lightning with rich": (
        "Validation ━━━━━━━━━╸━━━━━━━ 12/25 0:00:01 • 0:00:02 8.12it/s",
        "Validation ━━━━━━━━━━╸━━━━━━ 13/25 0:00:01 • 0:00:02 8.12it/s",
    ),
    "Keras": (
        "12/25 ━━━━━━━━━━━━━━━━━━━━ 0s 3ms/step",
        "13/25 ━━━━━━━━━━━━━━━━━━━━ 0s 3ms/step",
    ),
    "Keras 2": ("12/25 [======>.......] - ETA: 0s", "13/25 [======>.......] - ETA: 0s"),
    "MMEngine": (
        "2026/08/04 16:48:00 - mmengine - INFO - Epoch(val) [1][ 50/157]    eta: 0:00:10",
        "2026/08/04 16:48:09 - mmengine - INFO - Epoch(val) [1][100/157]    eta: 0:00:05",
    ),
    "Megatron-LM": ("Evaluating iter 10/100", "Evaluating iter 20/100"),
    "detectron2": (
        "[08/04 16:48:00 d2.evaluation.evaluator]: Inference done 11/100. Dataloading: 0.0013 s",
        "[08/04 16:48:05 d2.evaluation.evaluator]: Inference done 21/100. Dataloading: 0.0013 s",
    ),
    "fairseq": ("| valid on 'valid' subset |  30 / 99", "| valid on 'valid' subset |  40 / 99"),
    "a program without a bar": ("eval step 30 of 200", "eval step 40 of 200"),
    "a bar without an end": ("Progress on:train 189it", "Progress on:train 190it"),
    "a percentage": ("validated 40.5 %", "validated 41.0 %"),
    "TensorFlow": ("Evaluation [10/100]", "Evaluation [20/100]"),
    "a count with thousands": ("Scored samples: 2,400", "Scored samples: 2,440"),
    "a count before its noun": ("processed 40 images", "processed 80 images"),
    "samples that are done": ("Validation: 2,400 samples done", "Validation: 2,440 samples done"),
    "sections": ("chunk 40/100 sections", "chunk 41/100 sections"),
    "a number before a step": ("took 0.1 step 40", "took 0.1 step 41"),
}


@pytest.mark.parametrize(("before", "after"), EVALUATIONS.values(), ids=EVALUATIONS)
def test_the_bar_of_an_evaluation_shows_life_while_it_moves(before: str, after: str) -> None:
    assert moved([before, before, after, after]) == [True, False, True, False]


SAME: dict[str, tuple[str, str]] = {
    "a heartbeat": ("2026-08-04 16:48:00 heartbeat ok", "2026-08-04 16:49:00 heartbeat ok"),
    "a repeated step": (
        "2026-08-04 16:48:00 step 189/500 loss=2.31",
        "2026-08-04 16:49:00 step 189/500 loss=2.31",
    ),
    "a step with the time that has passed": ("step 189 after 60 s", "step 189 after 120 s"),
    "a bar that its monitor draws again": (
        " 40%|████      | 40/100 [10:20<15:30, 15.5s/it]",
        " 40%|████      | 40/100 [11:20<17:01, 17.0s/it]",
    ),
    "a timeout that runs": ("waited 60/1800 s for rank 3", "waited 120/1800 s for rank 3"),
    "a sequence number that waits": (
        "[rank0]: waiting for allreduce seq 120049, 60000 milliseconds",
        "[rank0]: waiting for allreduce seq 120049, 90000 milliseconds",
    ),
    "the load of the machine": ("GPU 97% mem 41.5%", "GPU 99% mem 41.7%"),
    "the memory in use": ("using 8123/16384 MiB", "using 8127/16384 MiB"),
    "a rate": ("0.5it/s, 3 ms", "0.6it/s, 4 ms"),
    "a rate of samples": ("512.3 samples/s", "0.1 samples/s"),
    "a rate in words": ("480 tokens per second", "2 tokens per second"),
    "a measure without a counter": ("loss: 0.5", "loss: 0.5"),
    "a step with an identifier": ("request a1f at step 189/500", "request b2e at step 189/500"),
}


@pytest.mark.parametrize(("before", "after"), SAME.values(), ids=SAME)
def test_a_line_with_the_same_counters_shows_no_life(before: str, after: str) -> None:
    assert moved([before, after])[-1] is False


MEASURES = {
    "without a counter": ["loss: 0.5", "loss: 0.4", "loss: 0.4"],
    "beside an epoch of many steps": [
        "{'loss': 0.51, 'learning_rate': 5e-05, 'epoch': 0.4}",
        "{'loss': 0.49, 'learning_rate': 5e-05, 'epoch': 0.4}",
        "{'loss': 0.49, 'learning_rate': 5e-05, 'epoch': 0.4}",
    ],
}


@pytest.mark.parametrize("lines", MEASURES.values(), ids=MEASURES)
def test_a_measure_that_changes_shows_life(lines: list[str]) -> None:
    assert moved(lines) == [True, True, False]


RANKS: dict[str, tuple[list[str], int]] = {
    "four ranks at two steps": ([f"[rank{n}] step {189 + n % 2}/500" for n in range(4)], 2),
    "eight ranks, each with its own counter": (
        [f"[rank{n}] waits, shard {n}/8, at step 189/90000" for n in range(8)], 8,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "new"), RANKS.values(), ids=RANKS)
def test_ranks_that_repeat_different_lines_show_no_life(lines: list[str], new: int) -> None:
    assert sum(moved(lines * 5)) == new


def test_short_epochs_that_print_the_same_bars_show_life() -> None:
    bars = [f"Training: {33 * n}%|##  | {n}/3 [0{n}:00<00:00, 60.0s/it]" for n in (1, 2, 3)]
    assert moved(bars * 5) == [True] * 15


def test_the_same_evaluation_in_the_next_epoch_shows_life() -> None:
    epoch = [f"train {step}/20" for step in range(1, 21)] + [f"eval {n}/4" for n in range(1, 5)]
    assert moved([*epoch, *epoch])[-4:] == [True] * 4


def test_a_bar_on_one_line_counts_by_its_last_state() -> None:
    bar = "\r".join(f"{n}%|##  | {n}/100 [00:01<00:02]" for n in range(1, 41))
    further = f"{bar}\r41%|##  | 41/100 [00:01<00:02]"
    assert moved([bar, bar, further]) == [True, False, True]


SAVES: dict[str, tuple[list[str], bool]] = {
    "Transformers": (["Saving model checkpoint to out/checkpoint-500"], True),
    "Megatron-LM": (["saving checkpoint at iteration    1000 to /ckpt in torch_dist format"], True),
    "torchtitan": (["Saving the checkpoint."], True),
    "DeepSpeed": (["[Torch] Checkpoint global_step10 is about to be saved!"], True),
    "fairseq2": (["Preparing checkpoint at step 100."], True),
    "Keras": (["Epoch 3: saving model to out/3.keras"], True),
    "a bar of the save": (["Saving checkpoint shards:  50%|##  | 2/4 [00:10<00:10]"], True),
    "the training continues": (["Saving model checkpoint to out/500", "step 501 loss 0.5"], False),
    "a line that repeats": (["step 5", "Saving model checkpoint to out/500", "step 5"], True),
    "a save is over": (["Saved checkpoint to /ckpt/500"], False),
    "a setting": (["save_steps=500, save_total_limit=3"], False),
}


@pytest.mark.parametrize(("lines", "want"), SAVES.values(), ids=SAVES)
def test_a_save_is_announced_until_a_counter_moves(lines: list[str], want: bool) -> None:
    life = Life()
    for line in lines:
        life.read_line(line, read_line(line))
    assert life.saving is want


@pytest.mark.parametrize("name", TRAINING)
def test_each_new_line_of_a_recorded_log_with_a_measure_shows_life(name: str) -> None:
    lines = lines_of(name)
    wanted = {want["line"] - 1 for want in TRAINING[name]["expect"]}
    result = moved(lines, BY_EXPRESSION.get(name, ""))
    shown = [visible(line) for line in lines]
    last = wanted and max(wanted)  # some logs repeat the last line with a different rate
    new = (number for number in wanted if number != last and shown[number] not in shown[:number])
    assert [shown[number] for number in new if not result[number]] == []


@given(line=st.text(max_size=300), times=st.integers(2, 5))
def test_no_text_that_repeats_shows_life(line: str, times: int) -> None:
    assert not any(moved([line] * times)[1:])


@pytest.mark.parametrize(
    "hard", ["1" * 4096, "1/" * 2048, "step " * 800, "step" + " " * 4000, "1 of " * 800]
)
def test_at_most_eight_counters_of_a_line_are_stored(hard: str) -> None:
    life = Life()
    life.read_line(hard, None)
    assert sum(map(len, life._last.values())) <= 8


def test_the_memory_of_a_log_is_bounded() -> None:
    life = Life()
    for number in range(200):
        life.read_line(f"{chr(0x4E00 + number) * 4000} a b c d e f g {number}/200", None)
    assert len(life._last) == 64
    assert max(len("".join(kind)) for kind in life._last) <= 6 * 41


def test_all_sets_of_logs_are_tried() -> None:
    assert len(SETS) > len(TRAINING) > 50
