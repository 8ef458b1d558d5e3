"""CatBoost's own lines, every second round."""
# mypy: ignore-errors

import catboost
import numpy as np

random = np.random.default_rng(0)
x = random.normal(size=(1000, 10))
y = x[:, 0] * x[:, 1] + x[:, 2]
model = catboost.CatBoostRegressor(
    iterations=40, depth=4, thread_count=1, verbose=2, allow_writing_files=False
)
model.fit(x[:800], y[:800], eval_set=(x[800:], y[800:]))
