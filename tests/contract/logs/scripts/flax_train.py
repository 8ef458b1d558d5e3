"""JAX and Flax: a small classifier, with absl's log as in the examples of Flax."""
# mypy: ignore-errors

import jax
import optax
from absl import app, logging
from flax import linen as nn

EPOCHS, STEPS = 8, 20


def main(_: list[str]) -> None:
    logging.set_verbosity(logging.INFO)
    logging.info("JAX process: %d / %d", jax.process_index(), jax.process_count())
    logging.info("JAX local devices: %r", jax.local_devices())
    model = nn.Sequential([nn.Dense(16), nn.relu, nn.Dense(2)])
    x = jax.random.normal(jax.random.key(0), (STEPS + 1, 64, 8))
    y = (x[..., 0] * x[..., 1] > 0).astype(int)
    weights = model.init(jax.random.key(1), x[0])
    optimizer = optax.adam(0.01)
    state = optimizer.init(weights)

    def loss_of(weights, x, y):
        logits = model.apply(weights, x)
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
        return loss, (logits.argmax(-1) == y).mean()

    gradient = jax.jit(jax.value_and_grad(loss_of, has_aux=True))
    for epoch in range(1, EPOCHS + 1):
        for i in range(STEPS):
            (loss, accuracy), slopes = gradient(weights, x[i], y[i])
            updates, state = optimizer.update(slopes, state)
            weights = optax.apply_updates(weights, updates)
        form = "epoch:% 3d, train_loss: %.4f, train_accuracy: %.2f, test_loss: %.4f"
        logging.info(form, epoch, loss, accuracy * 100, loss_of(weights, x[-1], y[-1])[0])


if __name__ == "__main__":
    app.run(main)
