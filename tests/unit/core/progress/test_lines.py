"""Single lines of a training, each form once. Whole logs are read in tests/contract."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.progress.fields import Field, fields
from kfext.core.progress.lines import read_line
from kfext.core.progress.position import Position

BAR = "Epoch 3:  45%|####| 422/938 [00:05<00:06, 80.1it/s, v_num=0, train_loss=0.213]"
MMENGINE = "05/12 10:00:00 - mmengine - INFO - Epoch(train)  [1][ 50/196]  lr: 1e-02  loss: 2.3012"
MEGATRON = " iteration   100/  1000 | consumed samples: 1600 | lm loss: 6.5E+00 | loss scale: 1.0 |"
ESTIMATOR = "INFO:tensorflow:loss = 0.512, step = 100 (1.2 sec)"
RECIPES = "Epoch: [0]  [  10/1875]  eta: 0:01:00  lr: 0.1  loss: 2.3012 (2.5011)  acc1: 10.0 (11.0)"
FAIRSEQ = "| INFO | train_inner | epoch 001:    100 / 1000 loss=10.2, ppl=550.1, num_updates=100"

TRAINING: dict[str, tuple[str, dict[str, float], Position]] = {
    "sign and comma": (
        "Epoch [1/10], Step [100/600], Loss: 0.2345",
        {"Loss": 0.2345},
        Position(step=100, steps=600, epoch=1, epochs=10),
    ),
    "no signs": ("step 10 loss 0.5", {"loss": 0.5}, Position(step=10)),
    "two measures of several words": (
        "step 250: train loss 1.9, val loss 2.1",
        {"train loss": 1.9, "val loss": 2.1},
        Position(step=250),
    ),
    "decimal commas, and the epoch and the loss in German": (
        "Epoche 3 von 12, Schritt 20/200: Verlust 0,5108, Genauigkeit 0,81",
        {"Verlust": 0.5108, "Genauigkeit": 0.81},
        Position(step=20, steps=200, epoch=3, epochs=12),
    ),
    "the epoch before its unit": (
        "第 4/20 轮 批次 100/1200 损失=0.26",
        {"损失": 0.26},
        Position(step=100, steps=1200, whole=False, epoch=4, epochs=20),
    ),
    "two epochs of a client": (
        "[Client 2] local epoch 1/2 loss=0.7 | local epoch 2/2 loss=0.5",
        {"loss": 0.5},
        Position(),
    ),
    "JSON": ('{"step": 10, "loss": 0.5, "time": 1.2}', {"loss": 0.5}, Position(step=10)),
    "numbers in quotes": ("{'loss': '0.41', 'epoch': '1.5'}", {"loss": 0.41}, Position(epoch=1.5)),
    "a bar": (BAR, {"train_loss": 0.213}, Position(step=422, steps=938, whole=False, epoch=3)),
    "a bar without a measure": (
        "  5%|#  | 50/1000 [00:05<01:40,  9.5it/s]",
        {},
        Position(step=50, steps=1000),
    ),
    "the bar of an evaluation over the bar of the run": (
        " 21%|##  | 400/1911 [1:18:37<4:41:09, 11.16s/it]\r100%|####| 63/63 [06:36<00:00, 5.9s/it]",
        {},
        Position(step=400, steps=1911),
    ),
    "a heading": ("Epoch 3/10", {}, Position(epoch=3, epochs=10)),
    "a bar of Keras": (
        "1875/1875 - 3s - 2ms/step - accuracy: 0.92 - loss: 0.27",
        {"accuracy": 0.92, "loss": 0.27},
        Position(step=1875, steps=1875, whole=False),
    ),
    "brackets after the epoch": (
        MMENGINE,
        {"loss": 2.3012},
        Position(step=50, steps=196, whole=False, epoch=1),
    ),
    "a value and its average": (
        RECIPES,
        {"loss": 2.3012, "acc1": 10.0},
        Position(step=10, steps=1875, whole=False, epoch=0),
    ),
    "samples in brackets": (
        "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.301234",
        {"Loss": 2.301234},
        Position(step=640, steps=60000, whole=False, epoch=1),
    ),
    "samples after the measure": (
        "loss: 2.301234  [   64/60000]",
        {"loss": 2.301234},
        Position(step=64, steps=60000),
    ),
    "an epoch that is called by its phase": (
        "Train: 2 [  50/1251 (  4%)]  Loss: 6.91 (6.95)",
        {"Loss": 6.91},
        Position(step=50, steps=1251, whole=False, epoch=2),
    ),
    "epoch and step in one bracket": (
        "[1,  2000] loss: 2.215",
        {"loss": 2.215},
        Position(step=2000, whole=False, epoch=1),
    ),
    "a round in brackets": (
        "[10]\ttrain-rmse:0.51234\teval-rmse:0.6",
        {"train-rmse": 0.51234, "eval-rmse": 0.6},
        Position(step=10),
    ),
    "a column of settings in between": (MEGATRON, {"lm loss": 6.5}, Position(step=100, steps=1000)),
    "spaces around the sign": (ESTIMATOR, {"loss": 0.512}, Position(step=100)),
    "a count of all updates": (
        FAIRSEQ,
        {"loss": 10.2, "ppl": 550.1},
        Position(step=100, whole=True, epoch=1),
    ),
    "a fraction as accuracy": (
        "Test set: Average loss: 0.05, Accuracy: 9850/10000 (98%)",
        {"Test Average loss": 0.05, "Test Accuracy": 0.985},
        Position(),
    ),
    "an evaluation that names itself ahead": (
        "Test: [ 5/19]  Loss: 2.4 (2.3)  Acc@1: 10.0 (11.0)",
        {"Test Loss": 2.4, "Test Acc@1": 10.0},
        Position(),
    ),
    "a tensor": ("loss=tensor(0.51, grad_fn=<NllLoss>)", {"loss": 0.51}, Position()),
    "a row of a table": ("|    ep_rew_mean      | 20.1     |", {"ep_rew_mean": 20.1}, Position()),
}


@pytest.mark.parametrize(("raw", "measures", "position"), TRAINING.values(), ids=TRAINING)
def test_the_content_of_a_line(raw: str, measures: dict[str, float], position: Position) -> None:
    result = read_line(raw)
    assert result is not None
    position_read = result.position
    compared = Position(
        position_read.step,
        position_read.steps,
        position_read.whole,
        position_read.epoch,
        position_read.epochs,
    )
    assert (dict(result.measures), compared) == (measures, position)


NOTHING = {
    "a download": "100%|####| 170M/170M [00:05<00:00, 30.1MB/s]",
    "data being prepared": "Map:  45%|####  | 450/1000 [00:01<00:01, 400.12 examples/s]",
    "settings": "lr: 0.1 loss: mse batch_size: 32 loss_weight=0.5, loss_scale=65536",
    "a package": "Downloading torch-2.1.0-cp311-none-linux_x86_64.whl (670.2 MB) 12/40",
    "communication": "NCCL INFO Channel 00/02 :    0   1",
    "a request": '127.0.0.1 - - [22/Nov/2026:10:00:00 +0000] "GET /loss HTTP/1.1" 200 1234',
    "a failed request": "Error: 404",
    "a speed": "INFO:tensorflow:global_step/sec: 80.12",
    "nothing": "",
}


@pytest.mark.parametrize("raw", NOTHING.values(), ids=NOTHING)
def test_a_line_of_something_else_is_not_read(raw: str) -> None:
    assert read_line(raw) is None


@given(st.text(max_size=300))
def test_any_line_is_read_without_an_error(raw: str) -> None:
    result = read_line(raw)
    assert result is None or result.measures or result.position.known or result.evaluation


@pytest.mark.parametrize("back", ["\r", "\x08"])
def test_few_states_of_a_line_that_overwrites_itself_are_read(
    back: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []

    def count_and_read(line: str) -> list[Field]:
        lines.append(line)
        return fields(line)

    monkeypatch.setattr("kfext.core.progress.lines.texts.fields", count_and_read)
    assert read_line(f"1{back}" * 2000 + "loss: 1.5") is not None
    assert len(lines) < 10


@pytest.mark.parametrize(
    "piece", ["loss=", "loss 1 ", "1/", "[1/2]", "epoch ", "\r1", "a.b/", "|1"]
)
def test_only_the_end_of_a_line_of_a_hundred_megabytes_is_read(piece: str) -> None:
    result = read_line(piece * (10**8 // len(piece)) + " loss=0.5")
    assert result is not None
    assert any(name.endswith("loss") for name, _ in result.measures)
