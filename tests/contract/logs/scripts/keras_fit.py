"""Keras: `fit` of a small classifier; the argument is its `verbose`, 1 or 2."""
# mypy: ignore-errors

import sys

import keras
import numpy as np

random = np.random.default_rng(0)
x = random.normal(size=(1000, 8)).astype("float32")
y = (x[:, 0] * x[:, 1] > 0).astype("int32")
model = keras.Sequential(
    [keras.layers.Dense(32, activation="relu"), keras.layers.Dense(2, activation="softmax")]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(x, y, epochs=4, batch_size=20, validation_split=0.2, verbose=int(sys.argv[1]))
