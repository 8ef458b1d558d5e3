"""MMEngine: a small classifier; the argument is the loop, epoch or iter."""
# mypy: ignore-errors

import sys

import torch
from mmengine.model import BaseModel
from mmengine.runner import Runner
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(BaseModel):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, x, y, mode="tensor"):
        return {"loss": nn.functional.cross_entropy(self.net(x), y)}


torch.manual_seed(0)
x = torch.randn(2400, 8)
data = DataLoader(TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long()), batch_size=32, shuffle=True)
by_epoch = sys.argv[1] == "epoch"
length = {"by_epoch": True, "max_epochs": 3} if by_epoch else {"by_epoch": False, "max_iters": 150}
Runner(
    Classifier(),
    work_dir="work_dirs",
    train_dataloader=data,
    train_cfg=length,
    optim_wrapper={"optimizer": {"type": "Adam", "lr": 0.01}},
    default_hooks={
        "logger": {"type": "LoggerHook", "interval": 15, "log_metric_by_epoch": by_epoch},
        "checkpoint": {"type": "CheckpointHook", "interval": -1},
    },
    log_processor={"by_epoch": by_epoch, "window_size": 10},
    env_cfg={"mp_cfg": {"mp_start_method": "fork", "opencv_num_threads": 0}},
    randomness={"seed": 0},
).train()
