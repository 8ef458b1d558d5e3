"""loguru's default format with colours."""
# mypy: ignore-errors

import sys

from descent import EPOCHS, STEPS, descend
from loguru import logger

logger.remove()
logger.add(sys.stderr, colorize=True)
logger.debug("settings: lr=0.02 batch_size=32 loss=mse")
logger.info("Start training for {} epochs", EPOCHS)
for epoch, step, loss, test in descend():
    if step % 20 == 0:
        logger.info(
            f"Epoch {epoch}/{EPOCHS} | Step {step}/{STEPS} | loss: {loss:.4f} | lr: 2.00e-02"
        )
    if step == STEPS:
        logger.success(f"Epoch {epoch} done, test error {test:.2%} of 200 samples")
logger.warning("No patience set: early stopping is off")
