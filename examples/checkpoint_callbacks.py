"""How a program answers kfext's requests for checkpoints (docs/checkpoints.md): copy what it needs.

`Checkpoints` is in checkpoints.py. `train`, `save`, `batches` and `rank` are the program's own.
"""

import keras
import lightning
import torch
import transformers

from checkpoints import Checkpoints

# --- DDP: rank 0 alone saves, and the other ranks wait for it at the next step -------------------

checkpoints = Checkpoints() if rank == 0 else None
for step, batch in enumerate(batches):
    train(batch)
    if rank == 0 and (number := checkpoints.requested()):
        save(step)
        checkpoints.saved(number)


# --- FSDP, DeepSpeed, tensor parallelism: all ranks save, so they have to agree on the step ------
# Ask at every step if a step takes more than about 100 ms.


def agreed(number):
    """Return the number of rank 0 on every rank."""
    box = [number]
    if torch.distributed.is_initialized():
        torch.distributed.broadcast_object_list(box, src=0)
    return box[0]


for step, batch in enumerate(batches):
    train(batch)
    if step % 10 == 0 and (number := agreed(checkpoints.requested() if rank == 0 else 0)):
        save(step)
        torch.distributed.barrier()
        if rank == 0:
            checkpoints.saved(number)


# --- Hugging Face: Trainer(..., callbacks=[AnswerInTrainer()]), and at the start ------------------
# trainer.train(resume_from_checkpoint=trainer_utils.get_last_checkpoint(args.output_dir))


class AnswerInTrainer(transformers.TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        self.checkpoints = Checkpoints() if state.is_world_process_zero else None
        self.number = 0

    def on_step_end(self, args, state, control, **kwargs):
        self.number = agreed(self.checkpoints.requested() if self.checkpoints else 0)
        control.should_save = control.should_save or self.number > 0

    def on_save(self, args, state, control, **kwargs):
        if self.number and self.checkpoints:
            self.checkpoints.saved(self.number)


# --- Lightning: trainer.fit(model, ckpt_path=path if os.path.exists(path) else None) --------------


class AnswerInLightning(lightning.Callback):
    def on_train_start(self, trainer, module):
        self.checkpoints = Checkpoints() if trainer.is_global_zero else None

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        asked = self.checkpoints.requested() if self.checkpoints else 0
        if number := trainer.strategy.broadcast(asked):
            trainer.save_checkpoint("/ckpt/last.ckpt")  # on all ranks; it waits for them
            if self.checkpoints:
                self.checkpoints.saved(number)


# --- Keras. With parameter servers the chief runs the callbacks. With MultiWorkerMirroredStrategy -
# every worker has to save at the same step: use BackupAndRestore with a save_freq in steps instead,
# and print "saved checkpoint PATH" beside it.


class AnswerInKeras(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.checkpoints = Checkpoints()

    def on_train_batch_end(self, batch, logs=None):
        if number := self.checkpoints.requested():
            self.model.save("/ckpt/last.keras")
            self.checkpoints.saved(number)
