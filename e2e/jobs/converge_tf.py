"""The models of `converge.py` in TensorFlow: a small CNN and a variational autoencoder."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# By default oneDNN is on only for CPUs with AVX-512; without it a step of the cnn takes six times
# as long.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import numpy as np
import tensorflow as tf  # reads both when it is imported

_CLASSES, _SIDE, _WIDTH, _LATENT = 10, 16, 64, 8
_KL_WEIGHT = 0.002
Array = np.ndarray[Any, Any]


def _weights(name: str, *shape: int) -> Any:
    inputs = int(np.prod(shape[:-1]))
    start = tf.random.normal(shape, stddev=(2 / inputs) ** 0.5)
    return tf.compat.v1.get_variable(name, initializer=start)


def _convolution(layer: Any, name: str, channels: int) -> Any:
    kernel = _weights(name, 3, 3, int(layer.shape[-1]), channels)
    layer = tf.nn.relu(tf.nn.conv2d(layer, kernel, strides=1, padding="SAME"))
    return tf.nn.max_pool2d(layer, ksize=2, strides=2, padding="SAME")


def _cnn() -> tuple[Any, Any, Any]:
    """Return inputs, targets and loss of a classifier of images."""
    inputs = tf.compat.v1.placeholder(tf.float32, [None, 1, _SIDE, _SIDE])
    targets = tf.compat.v1.placeholder(tf.int64, [None])
    layer = _convolution(tf.transpose(inputs, [0, 2, 3, 1]), "first", 16)
    layer = tf.reshape(_convolution(layer, "second", 32), [-1, 512])
    out = tf.matmul(layer, _weights("out", 512, _CLASSES))
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=out)
    return inputs, targets, tf.reduce_mean(losses)


def _vae() -> tuple[Any, Any, Any]:
    """Return inputs, targets and loss of a variational autoencoder of vectors."""
    inputs = tf.compat.v1.placeholder(tf.float32, [None, _WIDTH])
    targets = tf.compat.v1.placeholder(tf.float32, [None, _WIDTH])
    layer = tf.nn.relu(tf.matmul(inputs, _weights("encode", _WIDTH, 512)))
    layer = tf.matmul(layer, 0.5 * _weights("choose", 512, 2 * _LATENT))
    mean, log_variance = tf.split(layer, 2, axis=1)
    sample = mean + tf.random.normal(tf.shape(mean)) * tf.exp(0.5 * log_variance)
    layer = tf.nn.relu(tf.matmul(sample, _weights("decode", _LATENT, 512)))
    error = tf.reduce_mean((tf.matmul(layer, _weights("out", 512, _WIDTH)) - targets) ** 2)
    spread = mean**2 + tf.exp(log_variance) - log_variance - 1
    divergence = 0.5 * tf.reduce_mean(tf.reduce_sum(spread, axis=1))
    return inputs, targets, error + _KL_WEIGHT * divergence


_MODELS: dict[str, Callable[[], tuple[Any, Any, Any]]] = {"cnn": _cnn, "vae": _vae}


class _Training:
    """A model with Adam in a graph and a session of its own, with one thread."""

    def __init__(self, model: str, rate: float) -> None:
        self._graph = tf.Graph()
        with self._graph.as_default():
            tf.compat.v1.set_random_seed(1)
            self._inputs, self._targets, self._loss = _MODELS[model]()
            self._update = tf.compat.v1.train.AdamOptimizer(rate).minimize(self._loss)
            self._variables = tf.compat.v1.global_variables()
            options = tf.compat.v1.ConfigProto(
                intra_op_parallelism_threads=1, inter_op_parallelism_threads=1
            )
            self._session = tf.compat.v1.Session(config=options)
            self._session.run(tf.compat.v1.global_variables_initializer())

    def step(self, inputs: Array, targets: Array) -> float:
        fed = {self._inputs: inputs, self._targets: targets}
        loss, _ = self._session.run([self._loss, self._update], feed_dict=fed)
        return float(loss)

    def save(self, path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, *self._session.run(self._variables))

    def load(self, path: Path) -> None:
        with np.load(path) as saved, self._graph.as_default():
            for number, variable in enumerate(self._variables):
                variable.load(saved[f"arr_{number}"], self._session)


def make(model: str, rate: float) -> _Training:
    """Return an untrained model; its weights are always the same."""
    return _Training(model, rate)
