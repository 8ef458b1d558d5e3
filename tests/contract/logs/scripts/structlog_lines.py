"""structlog's console renderer with colours, as in a container without a terminal."""
# mypy: ignore-errors

import structlog
from descent import EPOCHS, STEPS, descend

structlog.configure(
    processors=[
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso"),
        structlog.dev.ConsoleRenderer(colors=True),
    ]
)
log = structlog.get_logger()

log.info("start", epochs=EPOCHS, steps_per_epoch=STEPS, optimizer="sgd", loss="mse")
for epoch, step, loss, test in descend():
    if step % 20 == 0:
        log.info("train_step", epoch=epoch, step=step, train_loss=loss, lr=0.02)
    if step == STEPS:
        log.info("epoch_end", epoch=epoch, val_loss=test, samples=200)
log.warning("checkpoint_skipped", reason="no volume mounted", tries=3)
