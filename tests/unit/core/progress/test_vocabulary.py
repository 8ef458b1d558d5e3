"""The meaning of names: counts, ends and measures, and which measure is followed."""

import pytest

from kfext.core.progress.vocabulary import Better, Role, better, may_measure, meaning, order

DIRECTIONS: dict[str, Better | None] = {
    **dict.fromkeys(
        ("loss", "Loss", "train_loss", "trainLoss", "train/loss", "lm loss", "Epoch loss"),
        Better.LOWER,
    ),
    **dict.fromkeys(("nll_loss", "logloss", "ppl", "train-rmse", "val error", "WER"), Better.LOWER),
    **dict.fromkeys(("acc", "Acc@1", "acc1", "val_accuracy", "f1", "AUC", "bleu"), Better.HIGHER),
    **dict.fromkeys(("Verlust", "训练损失", "pérdida", "потери", "L", "cost"), Better.LOWER),
    **dict.fromkeys(("critic/rewards/mean", "AverageEpRet", "Testgenauigkeit"), Better.HIGHER),
    **dict.fromkeys(("objective/kl", "SILog", "Lernrate", "reward_std"), None),
    **dict.fromkeys(("hits@10", "mIoU", "ep_rew_mean", "return"), Better.HIGHER),
    **dict.fromkeys(("lr", "grad_norm", "time", "gloss_level", "", "glossary"), None),
    **dict.fromkeys(("loss_scale", "loss scale", "loss_weight", "best_acc", "min_loss"), None),
    **dict.fromkeys(("loss_steps", "loss_fn", "error code", "loss" + "x" * 80), None),
    **dict.fromkeys(("loss_step", "train_loss_epoch", "val/loss_step"), Better.LOWER),
    **dict.fromkeys(("CrossEntropy", "cross_entropy", "word_error_rate"), Better.LOWER),
    **dict.fromkeys(("grad_acc", "acc_steps", "top_p", "lr_schedule", "from score"), None),
}


@pytest.mark.parametrize(("name", "want"), DIRECTIONS.items(), ids=DIRECTIONS)
def test_the_better_direction_of_a_measure(name: str, want: Better | None) -> None:
    assert better(name) is want


@pytest.mark.parametrize("name", ["RunningAvgSamplesPerSec", "samplespersec", "tokensPerGpu"])
def test_a_rate_is_no_measure_in_any_spelling(name: str) -> None:
    assert not may_measure(name)


BEST = {
    "the whole loss before its parts": ["loss", "loss_cls", "loss_bbox"],
    "a whole loss by another word": ["total_loss", "loss_box_reg"],
    "training before validation": ["train_loss", "val_loss"],
    "an accuracy of training before a loss of validation": ["accuracy", "val_loss"],
    "a loss before an accuracy": ["loss", "accuracy"],
    "the whole among parts in a folder": ["Loss/total_loss", "Loss/box_loss"],
    "a bare loss before one over the epoch": ["loss_step", "loss_epoch"],
    "a perplexity before an accuracy": ["ppl", "accuracy"],
    "a reward before a loss": ["rollout/ep_rew_mean", "train/loss", "train/value_loss"],
    "a score of a critic as its reward": ["critic/score/mean", "actor/pg_loss"],
    "a loss before the rewards of its parts": ["loss", "rewards/chosen", "rewards/margins"],
    "the loss of a generator before its critic": ["loss_G", "loss_D"],
    "the whole by one letter": ["L", "L_pde"],
    "an unknown name before an evaluation": ["SILog", "val_loss"],
    "an unknown name with a word for the whole": ["all total", "rec"],
}


@pytest.mark.parametrize("names", BEST.values(), ids=BEST)
def test_which_measure_is_followed(names: list[str]) -> None:
    assert min(reversed(names), key=order) == names[0]


@pytest.mark.parametrize(
    ("name", "want"),
    {"loss": False, "train_error": False, "error": True, "precision": True}.items(),
)
def test_whether_a_whole_number_under_a_name_may_be_a_count(name: str, want: bool) -> None:
    result = meaning(name)
    assert result is not None
    assert result.counts is want


ROLES: dict[str, Role | None] = {
    **dict.fromkeys(("step", "Iter", "train step", "training_step", "current_steps"), Role.STEP),
    **dict.fromkeys(("Schritt", "步数"), Role.STEP),
    **dict.fromkeys(("Epoche", "轮次", "エポック"), Role.EPOCH),
    **dict.fromkeys(("update epoch", "episode steps", "local epoch"), None),
    **dict.fromkeys(("steps", "iterations", "train_steps"), Role.STEPS),
    **dict.fromkeys(("global_step", "train/global_step", "num_updates"), Role.RUN_STEP),
    **dict.fromkeys(("total_timesteps", "timesteps_total"), Role.RUN_STEP),
    **dict.fromkeys(("batch", "minibatch"), Role.BATCH),
    **dict.fromkeys(("total_steps", "num_steps", "Total iterations"), Role.END),
    **dict.fromkeys(("max_steps", "num_train_steps", "Total optimization steps"), Role.LAST),
    **dict.fromkeys(("steps_per_epoch", "num_batches"), Role.EPOCH_END),
    **dict.fromkeys(("epoch", "Train Epoch", "EPOCH"), Role.EPOCH),
    **dict.fromkeys(("num_epochs", "epochs", "Num Epochs"), Role.EPOCHS),
    **dict.fromkeys(("warmup_steps", "eval_steps", "gradient accumulation steps"), None),
    **dict.fromkeys(("time per iteration", "batch_size", "epoch_time", "stepper", "lr_step"), None),
    **dict.fromkeys(("best epoch", "resumed from step", "early_stopping_epochs", "rank", ""), None),
}


@pytest.mark.parametrize(("name", "want"), ROLES.items(), ids=ROLES)
def test_the_role_of_a_count(name: str, want: Role | None) -> None:
    result = meaning(name)
    assert (result.role if result else None) is want
