"""MONAI: its supervised trainer with the handler which prints losses (over PyTorch Ignite)."""
# mypy: ignore-errors

import logging
import sys

import torch
from monai.engines import SupervisedTrainer
from monai.handlers import StatsHandler, from_engine
from torch import nn
from torch.utils.data import DataLoader

logging.basicConfig(stream=sys.stdout, level=logging.INFO)
torch.manual_seed(0)
rows = [{"image": row, "label": (row[0] > 0).long()} for row in torch.randn(320, 8)]
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
SupervisedTrainer(
    device=torch.device("cpu"),
    max_epochs=3,
    train_data_loader=DataLoader(rows, batch_size=64),
    network=model,
    optimizer=torch.optim.Adam(model.parameters(), 0.01),
    loss_function=nn.CrossEntropyLoss(),
    train_handlers=[
        StatsHandler(tag_name="train_loss", output_transform=from_engine("loss", first=True))
    ],
).run()
