"""JSON lines of python-json-logger."""
# mypy: ignore-errors

import logging
import sys
import time

from descent import EPOCHS, STEPS, descend
from pythonjsonlogger.json import JsonFormatter

handler = logging.StreamHandler(sys.stdout)
handler.setFormatter(JsonFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
logging.basicConfig(handlers=[handler], level=logging.INFO)
log = logging.getLogger("trainer")
began = time.monotonic()

log.info("training starts", extra={"epochs": EPOCHS, "batch_size": 32, "lr": 0.02, "loss": "mse"})
for epoch, step, loss, test in descend():
    if step % 20 == 0:
        done = (epoch - 1) * STEPS + step
        log.info("progress", extra={"epoch": epoch, "step": done, "loss": loss, "lr": 0.02})
    if step == STEPS:
        log.info("evaluated", extra={"epoch": epoch, "eval_loss": test, "samples": 200})
        log.info("checkpoint saved", extra={"path": f"/checkpoints/epoch-{epoch}.npz"})
log.info("training ends", extra={"seconds": round(time.monotonic() - began, 3)})
