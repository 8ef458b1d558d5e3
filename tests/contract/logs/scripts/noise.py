"""Output without any measure of training: the argument names one of the functions below."""
# mypy: ignore-errors
# ruff: noqa: T201

import argparse
import json
import resource
import sys
import time

import numpy as np
from tqdm import tqdm


def download() -> None:
    for number, size in enumerate((170, 26, 5), 1):
        print(f"Downloading {number}/3 to ./data/part-{number}.tar.gz")
        for _ in tqdm(range(size), total=size, unit="MB", mininterval=0.05):
            time.sleep(0.005)
        print(f"Extracting ./data/part-{number}.tar.gz to ./data")


def tokenisation() -> None:
    for part, rows in {"train": 1000, "validation": 200, "test": 200}.items():
        print(f"Tokenising {part}: {rows} rows, batch_size=50, num_proc=1")
        with tqdm(total=rows, desc="Map", unit=" examples", mininterval=0.02) as bar:
            for _ in range(rows // 50):
                time.sleep(0.01)
                bar.update(50)


def settings() -> None:
    given = {"lr": 0.1, "loss": "mse", "batch_size": 32, "epochs": 90, "metrics": ["accuracy"]}
    given |= {"step_size": 30, "loss_weight": 0.5, "loss_scale": 65536, "max_steps": 100000}
    print(argparse.Namespace(**given))
    for key, value in given.items():
        print(f"  {key:.<20}{value}\n{key}: {value}\n{key}={value}")
    print(json.dumps({"config": given}, indent=2))


def traceback() -> None:
    print("Using 1 device, world size 4, batch 32, 1563 batches")
    np.zeros((32, 784)) @ np.zeros((512, 10))


def memory() -> None:
    for second in range(12):
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"[{second}s] rss {used:.1f} MiB, limit 2048 MiB ({used / 20.48:.1f}%), 3/8 cores")


globals()[sys.argv[1]]()
