"""The model and the parameter server of `elastic_ps.py` in TensorFlow.

A server does not know dynamic workers, and cannot fetch anything from them. So the workers are
clients: they compute in sessions of their own, and send gradients to the server.
"""

import os
import time
from collections.abc import Mapping
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf  # reads the log level when it is imported

_WIDTH = 128
_PIECE = 2**20
"""The most float32 numbers in a piece of a message; gRPC is slow with larger pieces."""
_DEVICE = "/job:ps/task:0"
Array = np.ndarray[Any, Any]
Weights = list[Array]


def serve(servers: Mapping[int, str], index: int) -> None:
    """Run the parameter server until the process ends."""
    cluster = tf.train.ClusterSpec({"ps": dict(servers)})
    tf.distribute.Server(cluster, job_name="ps", task_index=index, config=_one_thread()).join()


class Model:
    """A classifier that receives its weights with each batch."""

    def __init__(self, inputs: int, classes: int) -> None:
        self._shapes = [(inputs, _WIDTH), (_WIDTH, _WIDTH), (_WIDTH, classes)]
        self._graph = tf.Graph()
        with self._graph.as_default():
            self._inputs = tf.compat.v1.placeholder(tf.float32, [None, inputs])
            self._targets = tf.compat.v1.placeholder(tf.int64, [None])
            self._weights = [tf.compat.v1.placeholder(tf.float32, shape) for shape in self._shapes]
            layer = self._inputs
            for weights in self._weights[:-1]:
                layer = tf.tanh(tf.matmul(layer, weights))
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=self._targets, logits=tf.matmul(layer, self._weights[-1])
            )
            self._loss = tf.reduce_mean(losses)
            self._gradients = tf.gradients(self._loss, self._weights)
            self._session = tf.compat.v1.Session(config=_one_thread())

    def fresh(self) -> Weights:
        chance = np.random.default_rng(1)
        return [
            (chance.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
            for shape in self._shapes
        ]

    def gradients(self, weights: Weights, inputs: Array, targets: Array) -> tuple[float, Weights]:
        fed_weights = zip(self._weights, weights, strict=True)
        fed = {self._inputs: inputs, self._targets: targets, **dict(fed_weights)}
        loss, *gradients = self._session.run([self._loss, *self._gradients], feed_dict=fed)
        return float(loss), gradients


class Server:
    """The weights on the server at an address; all workers share these variables.

    `megabytes`: the size of an additional message that a worker receives and sends in each step.
    """

    def __init__(self, address: str, *, like: Weights, rate: float, megabytes: float) -> None:
        self._graph = tf.Graph()
        with self._graph.as_default(), tf.compat.v1.device(_DEVICE):
            self._given = [tf.compat.v1.placeholder(tf.float32, array.shape) for array in like]
            self._step = tf.compat.v1.placeholder(tf.int64, [])
            kept = [_variable(f"weights{n}", tf.zeros(array.shape)) for n, array in enumerate(like)]
            taken, done = (_variable(name, tf.zeros([], tf.int64)) for name in ("taken", "done"))
            pairs = list(zip(kept, self._given, strict=True))
            message = [_variable(f"message{n}", tf.zeros([size])) for n, size in pieces(megabytes)]
            filling = [variable.assign(given, read_value=False) for variable, given in pairs]
            filling += [piece.initializer for piece in message]
            # The counters are set last, so that a server with counters also has its weights.
            with tf.control_dependencies(filling):
                self._fill = [
                    counter.assign(self._step, read_value=False) for counter in (taken, done)
                ]  # fmt: skip
            moves = [
                variable.assign_sub(rate * given, use_locking=True, read_value=False)
                for variable, given in pairs
            ]
            with tf.control_dependencies(moves):
                self._apply = done.assign_add(1, use_locking=True)
            self._take = taken.assign_add(1, use_locking=True)
            self._read, self._done = [variable.read_value() for variable in kept], done.read_value()
            self._gets = [piece.read_value() for piece in message]
            self._puts = [
                (given, piece.assign(given, read_value=False))
                for piece in message
                for given in [tf.compat.v1.placeholder(tf.float32, piece.shape)]
            ]
            self._missing = tf.compat.v1.report_uninitialized_variables()
            self._session = tf.compat.v1.Session(f"grpc://{address}", config=_one_thread())

    def filled(self) -> bool:
        return len(self._session.run(self._missing)) == 0

    def fill(self, weights: Weights, step: int) -> None:
        given = dict(zip(self._given, weights, strict=True))
        self._session.run(self._fill, feed_dict={**given, self._step: step})

    def take(self) -> int:
        return int(self._session.run(self._take))

    def done(self) -> int:
        return int(self._session.run(self._done))

    def wait(self, seconds: float) -> None:
        got = [self._session.run(piece) for piece in self._gets]
        time.sleep(seconds)
        for (given, put), piece in zip(self._puts, got, strict=True):
            self._session.run(put, feed_dict={given: piece})

    def weights(self) -> Weights:
        return list(self._session.run(self._read))

    def apply(self, gradients: Weights) -> int:
        given = dict(zip(self._given, gradients, strict=True))
        return int(self._session.run(self._apply, feed_dict=given))


def pieces(megabytes: float) -> list[tuple[int, int]]:
    """Return the index and the size, in float32 numbers, of each piece of a message."""
    size = round(megabytes * 1e6 / 4)
    return [(at // _PIECE, min(_PIECE, size - at)) for at in range(0, size, _PIECE)]


def _variable(name: str, start: Any) -> Any:
    return tf.compat.v1.get_variable(name, initializer=start, use_resource=True)


def _one_thread() -> Any:
    return tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=2
    )  # fmt: skip
