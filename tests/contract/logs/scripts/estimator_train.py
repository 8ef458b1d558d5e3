"""TensorFlow's estimators (up to TensorFlow 2.15): train and evaluate, with their own log."""
# mypy: ignore-errors

import numpy as np
import tensorflow as tf

tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)
random = np.random.default_rng(0)
x = random.normal(size=(2000, 8)).astype("float32")
y = (x[:, 0] * x[:, 1] > 0).astype("int32")


def batches():
    return tf.data.Dataset.from_tensor_slices(({"x": x}, y)).repeat().batch(50)


estimator = tf.estimator.DNNClassifier(
    hidden_units=[32],
    feature_columns=[tf.feature_column.numeric_column("x", shape=(8,))],
    config=tf.estimator.RunConfig(log_step_count_steps=100, save_checkpoints_steps=500),
)
tf.estimator.train_and_evaluate(
    estimator,
    tf.estimator.TrainSpec(batches, max_steps=1000),
    tf.estimator.EvalSpec(batches, steps=10, throttle_secs=0),
)
