"""PaddlePaddle: `fit` of its high-level model, which prints a line every few steps."""
# mypy: ignore-errors

import numpy as np
import paddle
from paddle import nn

paddle.seed(0)
x = np.random.default_rng(0).normal(size=(640, 8)).astype("float32")


class Rows(paddle.io.Dataset):
    def __len__(self) -> int:
        return len(x)

    def __getitem__(self, index: int):
        return x[index], np.array([int(x[index, 0] * x[index, 1] > 0)])


model = paddle.Model(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2)))
optimizer = paddle.optimizer.Adam(0.01, parameters=model.parameters())
model.prepare(optimizer, nn.CrossEntropyLoss(), paddle.metric.Accuracy())
model.fit(Rows(), Rows(), batch_size=32, epochs=3, log_freq=5, verbose=2)
