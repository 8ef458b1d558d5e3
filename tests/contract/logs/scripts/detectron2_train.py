"""Detectron2: its trainer, hooks and printer of metrics around a model of two losses."""
# mypy: ignore-errors

import torch
from detectron2.engine import SimpleTrainer, hooks
from detectron2.utils.events import CommonMetricPrinter
from detectron2.utils.logger import setup_logger
from torch import nn

ITERATIONS = 200


class Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.kind, self.place = nn.Linear(32, 2), nn.Linear(32, 4)

    def forward(self, x):
        found = self.net(x)
        kinds = nn.functional.cross_entropy(self.kind(found), (x[:, 0] > 0).long())
        return {"loss_cls": kinds, "loss_box_reg": self.place(found).sub(x[:, :4]).abs().mean()}


setup_logger(name="fvcore")
setup_logger()
torch.manual_seed(0)
model = Detector()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
data = [torch.randn(32, 8) for _ in range(50)] * 5
trainer = SimpleTrainer(model, data, optimizer)
trainer.register_hooks(
    [
        hooks.IterationTimer(),
        hooks.LRScheduler(optimizer, torch.optim.lr_scheduler.LinearLR(optimizer)),
        hooks.PeriodicWriter([CommonMetricPrinter(ITERATIONS)], period=20),
    ]
)
trainer.train(0, ITERATIONS)
