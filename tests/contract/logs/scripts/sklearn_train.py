"""scikit-learn: its multi-layer perceptron, verbose."""
# mypy: ignore-errors

import numpy as np
from sklearn.neural_network import MLPClassifier

random = np.random.default_rng(0)
x = random.normal(size=(1500, 10))
y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype(int)
MLPClassifier((16,), max_iter=25, verbose=True, random_state=0).fit(x, y)
