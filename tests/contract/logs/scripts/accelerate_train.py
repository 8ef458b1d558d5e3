"""Accelerate with its logger and a tqdm bar that carries the loss, as in the examples' loops."""
# mypy: ignore-errors

import logging

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm.auto import tqdm

EPOCHS = 2
logging.basicConfig(
    format="%(asctime)s - %(levelname)s - %(name)s - %(message)s",
    datefmt="%m/%d/%Y %H:%M:%S",
    level=logging.INFO,
)
accelerator = Accelerator(cpu=True)
logger = get_logger("run_no_trainer")
logger.info(accelerator.state)
torch.manual_seed(0)
x = torch.randn(1600, 8)
data = DataLoader(TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long()), batch_size=32)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
logger.info("***** Running training *****")
logger.info(f"  Num examples = {len(x)}")
logger.info(f"  Total optimization steps = {EPOCHS * len(data)}")
bar = tqdm(range(EPOCHS * len(data)), desc="Steps", mininterval=0.02)
for epoch in range(EPOCHS):
    for inputs, targets in data:
        loss = nn.functional.cross_entropy(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        bar.update(1)
        bar.set_postfix(step_loss=loss.detach().item(), lr=0.01)
    bar.write("")
    logger.info(f"epoch {epoch} done")
