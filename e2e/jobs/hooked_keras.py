"""A training with Keras' `fit` on the CPU, with a result that a hook must not change.

    python3 hooked_keras.py

It prints a line of JSON as `hooked.py` does. The hook acts only in a process that uses a GPU, so
TensorFlow is made to report a GPU, but trains on the CPU.
"""

import hashlib
import json
import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf  # reads the log level when it is imported


class Batches(keras.callbacks.Callback):
    """The job's own callback, which counts the trained batches."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ended += 1


def report_gpu() -> None:
    listed = tf.config.list_logical_devices
    tf.config.list_logical_devices = lambda kind=None: listed("CPU" if kind == "GPU" else kind)


def main() -> None:
    """Train twice, with a validation after each epoch."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(1)
    report_gpu()
    random = np.random.default_rng(0)
    values = random.normal(size=(96, 8)).astype("float32")
    classes = (values[:, 0] * values[:, 1] > 0).astype("int32")
    layers = [keras.layers.Dense(32, activation="relu"), keras.layers.Dense(2, "softmax")]
    model = keras.Sequential(layers)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    batches = Batches()
    for callbacks in ([batches], batches):
        options = {"epochs": 2, "batch_size": 8, "verbose": 0, "validation_split": 0.25}
        model.fit(values, classes, callbacks=callbacks, **options)
    weights = b"".join(array.tobytes() for array in model.get_weights())
    digest = hashlib.sha256(weights).hexdigest()
    print(json.dumps({"name": "fit", "found": digest, "steps": batches.ended}), flush=True)


if __name__ == "__main__":
    main()
