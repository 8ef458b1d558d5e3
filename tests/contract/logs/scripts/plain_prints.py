"""Loops that print for themselves: the argument is one of FORMS."""
# mypy: ignore-errors

import logging
import math
import sys
import time

from descent import BATCH, EPOCHS, STEPS, descend

FORMS = {
    "words": "step {done} loss {loss:.4f}",
    "flowcon": "Loss: {loss:.6f} Time: {seconds:.3f}",
    "slashes": "Epoch: {epoch}/{epochs} Iter: {step}/{steps} Loss={loss:.3e} Time={seconds:.2f}s",
    "iterations": "Iteration {done:>6d} of {total} -- mse = {loss:.5f} (best so far {best:.5f})",
    "brackets": "[{epoch}, {step:5d}] loss: {loss:.3f}",
    "logging": "epoch={epoch} global_step={done} loss={loss:.6f} throughput={rate:.1f} samples/s",
}
name = sys.argv[1]
logging.basicConfig(format="%(asctime)s %(levelname)-8s [%(filename)s:%(lineno)d] %(message)s")
log = logging.getLogger()
log.setLevel(logging.INFO)
say = log.info if name == "logging" else print
began = time.monotonic()
best = math.inf

say("Using device: cpu")
say("number of parameters: 8")
for epoch, step, loss, test in descend(seed=len(name)):
    best = min(best, loss)
    done, seconds = (epoch - 1) * STEPS + step, time.monotonic() - began
    if step % 10 == 0:
        places = {"epoch": epoch, "epochs": EPOCHS, "step": step, "steps": STEPS, "loss": loss}
        places |= {"done": done, "total": EPOCHS * STEPS, "best": best}
        say(FORMS[name].format(**places, seconds=seconds, rate=done * BATCH / seconds))
    if step == STEPS and name not in ("flowcon", "words", "brackets"):
        say(f"validation: {test:.4f} on 200 samples after {seconds:.2f}s")
say("Finished Training")
