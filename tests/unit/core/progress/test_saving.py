"""What one line says of a checkpoint."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.progress.lines import read_line
from kfext.core.progress.saving import LARGEST_ANSWER, Saving, answer_of, saving
from tests.contract.tables import quoted, table

BEGUN, COMPLETE = Saving.BEGUN, Saving.COMPLETE

ANSWERS: dict[str, tuple[str, int | None]] = {
    "it listens": ("kfext.checkpoint 0", 0),
    "a number": ("kfext.checkpoint 12", 12),
    "the largest": (f"kfext.checkpoint {LARGEST_ANSWER}", LARGEST_ANSWER),
    "after the prefix of a logger": ("2026-11-22 13:32:39,328 - INFO - kfext.checkpoint 3", 3),
    "after the prefix of torchrun": ("[default0]:kfext.checkpoint 3", 3),
    "in colour": ("\x1b[32mkfext.checkpoint 3\x1b[0m", 3),
    "after a bar that it overwrites": ("50%|### | 5/10\rkfext.checkpoint 3", 3),
    "leading zeros": ("kfext.checkpoint 007", 7),
    "too large": (f"kfext.checkpoint {LARGEST_ANSWER + 1}", None),
    "too many digits": ("kfext.checkpoint " + "0" * 11, None),
    "negative": ("kfext.checkpoint -1", None),
    "a fraction": ("kfext.checkpoint 1.5", None),
    "digits of another script": ("kfext.checkpoint \u0663", None),
    "no number": ("kfext.checkpoint", None),
    "more behind it": ("kfext.checkpoint 3 done", None),
    "a longer name": ("my.kfext.checkpoint 3", None),
    "other letters": ("kfextxcheckpoint 3", None),
    "overwritten": ("kfext.checkpoint 3\rloss 0.5", None),
    "nothing": ("", None),
}


@pytest.mark.parametrize(("line", "want"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_stands_alone_on_its_line(line: str, want: int | None) -> None:
    assert answer_of(line) == want


def test_an_answer_is_no_progress() -> None:
    assert read_line("kfext.checkpoint 3") is None


LINES: dict[str, tuple[str, Saving | None]] = {
    "Lightning": (
        "Epoch 0, global step 100: 'loss' reached 0.50000 (best 0.50000), saving model to "
        "'/ckpt/epoch=0-step=100.ckpt' as top 1",
        BEGUN,
    ),
    "Lightning, not among the best": (
        "Epoch 1, global step 200: 'loss' was not in top 1",
        None,
    ),
    "Keras": ("Epoch 1: saving model to /ckpt/1.keras", BEGUN),
    "Keras, the best": ("Epoch 3: val_loss improved from 0.6 to 0.5, saving model to m.h5", BEGUN),
    "Keras, not the best": ("Epoch 4: val_loss did not improve from 0.50000", None),
    "Keras, complete": ("Epoch 3: finished saving model to /ckpt/best.keras", COMPLETE),
    "Hugging Face begins": ("Saving model checkpoint to out/checkpoint-500", BEGUN),
    "Hugging Face, a part": ("Configuration saved in out/checkpoint-500/config.json", None),
    "Hugging Face, the weights": (
        "Model weights saved in out/checkpoint-5/model.safetensors",
        None,
    ),
    "Accelerate": ("Saving current state to checkpoints/epoch_0", BEGUN),
    "MMEngine": ("11/22 13:47:49 - mmengine - INFO - Saving checkpoint at 3 epochs", BEGUN),
    "MMEngine's heading": ("mmengine - INFO - Checkpoints will be saved to /work_dirs.", None),
    "fairseq": (
        "2026-01-01 | INFO | fairseq.checkpoint_utils | Saved checkpoint /ckpt/checkpoint1.pt "
        "(epoch 1 @ 100 updates, score 3) (writing took 2 seconds)",
        COMPLETE,
    ),
    "fairseq prepares": ("Preparing to save checkpoint for epoch 1 @ 100 updates", None),
    "TensorFlow's estimators": ("INFO:tensorflow:Saving checkpoints for 100 into /m.ckpt.", BEGUN),
    "before it": ("Calling checkpoint listeners before saving checkpoint 100...", None),
    "after it": ("Calling checkpoint listeners after saving checkpoint 100...", COMPLETE),
    "Megatron begins": ("saving checkpoint at iteration   1000 to /ckpt in torch format", BEGUN),
    "Megatron": ("  successfully saved checkpoint from iteration   1000 to /ckpt", COMPLETE),
    "DeepSpeed": ("[Torch] Checkpoint global_step100 is ready now!", COMPLETE),
    "timm": ("Current checkpoints:", COMPLETE),
    "an arrow": ("=> saving checkpoint", BEGUN),
    "nanoGPT": ("saving checkpoint to /workspace/out", BEGUN),
    "the best one": ("Saving the new best model checkpoint...", BEGUN),
    "plain": ("saved checkpoint /ckpt/last.pt", COMPLETE),
    "plain, the other way round": ("Checkpoint saved to /ckpt/last.pt", COMPLETE),
    "with the file between": ("checkpoint model-5.pt was successfully saved", COMPLETE),
    "JSON": ('{"level": "INFO", "message": "checkpoint saved", "path": "/c/1.npz"}', COMPLETE),
    "a path with any words": ("Saved checkpoint to /data/resume/last.pt", COMPLETE),
    "it will": ("The last checkpoint will be saved to /ckpt", None),
    "a setting": ("Saving checkpoint every 100 steps", None),
    "a directory": ("Saving checkpoints to /ckpt", None),
    "a field of a setting": ("save_checkpoint=True, checkpoint_dir='saved'", None),
    "a part of it": ("checkpoint config saved", None),
    "something for it": ("saved tokenizer beside the checkpoint", None),
    "failed": ("Saving checkpoint failed: no space left on device", None),
    "an error": ("Error: could not finish saving checkpoint to /ckpt", None),
    "skipped": ("skip saving checkpoint", None),
    "loading": ("Loading checkpoint shards: 100%|####| 4/4", None),
    "loading what was saved": ("Loaded checkpoint saved at step 100", None),
    "resuming": ("Resuming from checkpoint-500, 1500 steps to go", None),
    "resuming what was saved": ("Resuming training from the saved checkpoint", None),
    "none found": ("no checkpoint found at '/ckpt'", None),
    "none saved": ("No checkpoint saved yet", None),
    "deleting": ("Deleting older checkpoint [out/checkpoint-500] due to save_total_limit", None),
    "the model alone": ("Model saved to /out/final.pt", None),
    "a measure": ("step 10 loss 0.5", None),
    "nothing": ("", None),
}


@pytest.mark.parametrize(("line", "want"), LINES.values(), ids=LINES)
def test_what_a_line_says_of_a_checkpoint(line: str, want: Saving | None) -> None:
    assert saving(line) is want


PAGE = "docs/checkpoints.md"
HOW = {"begins": BEGUN, "is complete": COMPLETE}


@pytest.mark.parametrize("row", table(PAGE, "log"), ids=lambda row: row["log"])
def test_each_line_of_the_page_is_recognised_as_it_says(row: dict[str, str]) -> None:
    lines = quoted(row["line"])
    assert lines
    assert {saving(line) for line in lines} == {HOW[row["a save"]]}


@given(st.text(alphabet="savingedcheckpoint .:/0\r\x1b[", max_size=300))
def test_any_line_has_an_answer(line: str) -> None:
    assert saving(line) in {None, BEGUN, COMPLETE}
    answer = answer_of(line)
    assert answer is None or 0 <= answer <= LARGEST_ANSWER


@pytest.mark.parametrize(
    "piece",
    ["checkpoint 0", "checkpoint " + "1." * 50, "saved the ", "epoch 1, ", "saving model ", "0/"],
)
def test_of_a_long_line_only_the_end_is_looked_at(piece: str) -> None:
    assert saving("saved checkpoint " + piece * 100_000) is None
    assert saving(piece * 100_000 + " saved checkpoint 5") is COMPLETE
