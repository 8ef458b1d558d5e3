"""Which names are measures of training, which way they improve, and which is the best to follow."""

import pytest

from kfext.core.progress.metric_names import Better, better, may_be_whole, rank

WAYS: dict[str, Better | None] = {
    **dict.fromkeys(
        ("loss", "Loss", "train_loss", "trainLoss", "train/loss", "lm loss", "Epoch loss"),
        Better.LOWER,
    ),
    **dict.fromkeys(("nll_loss", "logloss", "ppl", "train-rmse", "val error", "WER"), Better.LOWER),
    **dict.fromkeys(("acc", "Acc@1", "acc1", "val_accuracy", "f1", "AUC", "bleu"), Better.HIGHER),
    **dict.fromkeys(("hits@10", "mIoU", "ep_rew_mean", "return"), Better.HIGHER),
    **dict.fromkeys(("lr", "grad_norm", "time", "gloss_level", "", "glossary"), None),
    **dict.fromkeys(("loss_scale", "loss scale", "loss_weight", "best_acc", "min_loss"), None),
    **dict.fromkeys(("loss_steps", "loss_fn", "error code", "loss" + "x" * 80), None),
}


@pytest.mark.parametrize(("name", "want"), WAYS.items(), ids=WAYS)
def test_which_way_a_measure_improves(name: str, want: Better | None) -> None:
    assert better(name) is want


BEST = {
    "the whole loss before its parts": ["loss", "loss_cls", "loss_bbox"],
    "a whole loss by another word": ["total_loss", "loss_box_reg"],
    "training before validation": ["train_loss", "val_loss"],
    "an accuracy of training before a loss of validation": ["accuracy", "val_loss"],
    "a loss before an accuracy": ["loss", "accuracy"],
    "a perplexity before an accuracy": ["ppl", "accuracy"],
}


@pytest.mark.parametrize("names", BEST.values(), ids=BEST)
def test_which_measure_is_followed(names: list[str]) -> None:
    assert min(reversed(names), key=rank) == names[0]


@pytest.mark.parametrize(
    ("name", "want"),
    {"loss": True, "train_error": True, "error": False, "precision": False}.items(),
)
def test_whether_a_whole_number_is_a_measure(name: str, want: bool) -> None:
    assert may_be_whole(name) is want
