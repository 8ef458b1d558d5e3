"""LightGBM with its log of the evaluation, every second round."""
# mypy: ignore-errors

import lightgbm
import numpy as np

random = np.random.default_rng(0)
x = random.normal(size=(2000, 10))
y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype(int)
train = lightgbm.Dataset(x[:1500], label=y[:1500])
lightgbm.train(
    {"objective": "binary", "metric": "binary_logloss", "num_threads": 1, "verbose": 1},
    train,
    num_boost_round=30,
    valid_sets=[train, lightgbm.Dataset(x[1500:], label=y[1500:], reference=train)],
    valid_names=["training", "valid_1"],
    callbacks=[lightgbm.log_evaluation(2), lightgbm.early_stopping(5)],
)
