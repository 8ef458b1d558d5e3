"""Asynchronous training with parameter servers in TensorFlow, for a TFJob.

The operator sets TF_CONFIG. Parameter servers hold the variables and serve until they are stopped;
chief and workers compute gradients on synthetic data and send them to the servers over gRPC.
Without parameter servers, or without TF_CONFIG, each task trains on its own.
"""

import argparse
import json
import os
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf  # reads the log level when it is imported

_INPUTS = 64
_CLASSES = 10
# Width of the hidden layers; a task sends and receives 4.5, 0.3 or 0.04 MB in each step.
_HIDDEN = {"mlp": 1024, "medium": 256, "small": 64}


def main() -> None:
    arguments = _arguments()
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    task = config.get("task", {"type": "worker", "index": 0})
    members = {name: _tasks(written) for name, written in config.get("cluster", {}).items()}
    options = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=2
    )
    members.pop("evaluator", None)
    if not members.get("ps") or task["type"] == "evaluator":  # an evaluator is not in the cluster
        return train(arguments, task, target="", device=None, options=options, first=True)
    cluster = tf.train.ClusterSpec(members)
    server = tf.distribute.Server(
        cluster, job_name=task["type"], task_index=task["index"], config=options
    )
    if task["type"] == "ps":
        server.join()
        return None
    own = f"/job:{task['type']}/task:{task['index']}"
    # Tasks that compute need only the servers, and must not wait for each other.
    options.device_filters.extend(["/job:ps", own])
    device = tf.compat.v1.train.replica_device_setter(worker_device=own, cluster=cluster)
    chiefs = [name for name in ("chief", "master") if name in members]
    first = task["type"] in chiefs if chiefs else task["index"] == 0
    target = server.target
    if isinstance(members[task["type"]], dict):
        # A server does not know dynamic workers, and cannot fetch anything from them. So they are
        # its clients, and the whole graph is on the server.
        device, target = "/job:ps/task:0", f"grpc://{members['ps'][0]}"
    return train(arguments, task, target=target, device=device, options=options, first=first)


def _tasks(written: list[str] | dict[str, str]) -> list[str] | dict[int, str]:
    """Return the addresses of a type; a dynamic worker knows no other worker's address."""
    if isinstance(written, list):
        return written
    return {int(index): address for index, address in written.items()}


def train(
    arguments: argparse.Namespace,
    task: dict[str, Any],
    *,
    target: str,
    device: Any,
    options: Any,
    first: bool,
) -> None:
    """Run this task's steps, and print their rate, then the totals as JSON.

    The first task creates the variables: the chief, or worker 0 of a job without a chief.
    """
    with tf.Graph().as_default(), tf.compat.v1.device(device):
        tf.compat.v1.set_random_seed(1 + task["index"])
        loss, update = _model(arguments.model, arguments.batch)
        if arguments.shared:
            update = _with_step_count(update)
        initialize = tf.compat.v1.global_variables_initializer()
        missing = tf.compat.v1.report_uninitialized_variables()
        with tf.compat.v1.Session(target, config=options) as session:
            if first:
                session.run(initialize)
            while len(session.run(missing)) > 0:
                time.sleep(0.2)
            _loop(arguments, session, loss, update)


def _model(kind: str, batch: int) -> tuple[Any, Any]:
    """Return the loss of one batch and the operation that trains on it."""
    hidden = _HIDDEN[kind]
    labels = tf.random.uniform([batch], maxval=_CLASSES, dtype=tf.int32)
    # The inputs depend on the label, so that the model can learn it.
    layer = tf.random.normal([batch, _INPUTS]) + tf.one_hot(labels, _INPUTS)
    for number, width in enumerate((hidden, hidden, _CLASSES)):
        before = int(layer.shape[1])
        start = tf.random.normal([before, width], stddev=before**-0.5)
        weights = tf.compat.v1.get_variable(f"weights{number}", initializer=start)
        layer = tf.matmul(layer, weights)
        if width != _CLASSES:
            layer = tf.nn.relu(layer)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=layer)
    loss = tf.reduce_mean(losses)
    return loss, tf.compat.v1.train.GradientDescentOptimizer(0.05).minimize(loss)


def _with_step_count(update: Any) -> Any:
    """Return an operation that trains, then increments and returns the step count of all tasks."""
    zero = tf.constant(0, tf.int64)
    steps = tf.compat.v1.get_variable("steps_of_all", initializer=zero, trainable=False)
    with tf.control_dependencies([update]):
        return steps.assign_add(1, read_value=True)


def _loop(arguments: argparse.Namespace, session: Any, loss: Any, update: Any) -> None:
    value = 0.0
    began = printed = time.monotonic()
    cpu_began = time.process_time()
    step = done = 0
    # With --shared, `--steps` is not the number of this task's steps.
    total = "" if arguments.shared else f"/{arguments.steps}"
    while done < arguments.steps:
        value, step_count = session.run([loss, update])
        step += 1
        done = step_count if arguments.shared else step
        if step % arguments.print_every == 0:
            now = time.monotonic()
            rate = arguments.print_every / (now - printed)
            printed = now
            print(f"step={step}{total} loss={value:.4f} steps_per_second={rate:.3f}", flush=True)
    seconds = time.monotonic() - began
    totals = {
        "steps": step,
        "seconds": round(seconds, 3),
        "steps_per_second": round(step / seconds, 3),
        "cpu_seconds": round(time.process_time() - cpu_began, 3),
        "loss": round(float(value), 4),
    }
    print(json.dumps(totals), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=_HIDDEN, default="mlp")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument(
        "--shared", action="store_true", help="count the steps of all tasks together"
    )
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--print-every", type=int, default=20, metavar="STEPS")
    return parser.parse_args()


if __name__ == "__main__":
    main()
