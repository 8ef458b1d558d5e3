"""XGBoost: lines of the watch list, one for each round."""
# mypy: ignore-errors

import numpy as np
import xgboost

random = np.random.default_rng(0)
x = random.normal(size=(2000, 10))
y = x[:, 0] * x[:, 1] + x[:, 2] + random.normal(scale=0.1, size=2000)
train = xgboost.DMatrix(x[:1500], label=y[:1500])
test = xgboost.DMatrix(x[1500:], label=y[1500:])
xgboost.train(
    {"eta": 0.2, "max_depth": 4, "objective": "reg:squarederror", "nthread": 1, "silent": 1},
    train,
    num_boost_round=24,
    evals=[(train, "train"), (test, "eval")],
)
