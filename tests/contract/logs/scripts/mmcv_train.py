"""mmcv 1: its runner by epochs, with the text logger of MMDetection 2 and others."""
# mypy: ignore-errors

import logging

import torch
from mmcv.runner import EpochBasedRunner
from mmcv.utils import get_logger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))

    def train_step(self, batch, optimizer):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        return {"loss": loss, "log_vars": {"loss": loss.item()}, "num_samples": len(batch[0])}


torch.manual_seed(0)
x = torch.randn(1600, 8)
data = DataLoader(TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long()), batch_size=32)
model = Classifier()
runner = EpochBasedRunner(
    model,
    optimizer=torch.optim.Adam(model.parameters(), lr=0.01),
    work_dir="work_dirs",
    logger=get_logger("mmcls", log_level=logging.INFO),
    max_epochs=3,
)
runner.register_training_hooks(
    lr_config={"policy": "step", "step": [2]},
    log_config={"interval": 10, "hooks": [{"type": "TextLoggerHook"}]},
)
runner.run([data], [("train", 1)])
