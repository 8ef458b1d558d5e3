"""Lightning: a small classifier; the argument is its progress bar, tqdm, rich or none."""
# mypy: ignore-errors
# ruff: noqa: T201

import sys

import lightning
import torch
from lightning.pytorch.callbacks import Callback, RichProgressBar, TQDMProgressBar
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))

    def training_step(self, batch, index):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


class Prints(Callback):
    def on_train_epoch_end(self, trainer, module) -> None:
        print({key: round(float(value), 4) for key, value in trainer.callback_metrics.items()})


bar = sys.argv[1]
torch.manual_seed(0)
x = torch.randn(1280, 8)
loader = DataLoader(TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long()), batch_size=32)
callbacks = {"tqdm": [TQDMProgressBar()], "rich": [RichProgressBar()], "none": [Prints()]}[bar]
trainer = lightning.Trainer(
    max_epochs=3,
    accelerator="cpu",
    logger=False,
    callbacks=callbacks,
    enable_progress_bar=bar != "none",
)
trainer.fit(Classifier(), loader, loader)
